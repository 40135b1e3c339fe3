"""Judges a history against what is stored. It knows nothing of the code under test and imports nothing of it.

What the clients wrote down is explained in `history`; `stored` comes from `storage`, which reads it with delta-rs.

A record's value names who sent it: `<producer>:<number>:<index>`; nobody sends a value twice, but an idempotent
producer repeats a request until it is answered. So every value may be in one place only, and a place, a topic with a
partition and an offset, may hold one value only, for ever.

Events that are looked at, with the fields of their invocation / of their end:

    produce    topic, producer, number, count, acks, idempotent, keys? tombstones? / at: [[partition, offset], …]
    read       topic, partition, from / hw, start, next, rows: [[offset, value], …]      fetches and delta-rs readers
    poll       group / rows: [[topic, partition, offset, value], …]                      members of groups
    position   topic, partition / start                                                  deletions and looks
    join       group / member, generation, partitions: [[topic, partition], …]           what a sync answered
    commit     group, member, generation, offsets: [[topic, partition, offset], …]
    committed  group / offsets: [[topic, partition, offset], …]
    notes      assigned (who, partitions: what is read from anew), two (since, until: two services were at work)
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.lab.facts import Anomaly, Call, Event, Place, Stored, Value, Write, calls_of, running_most, writes_of


class Checker:
    def __init__(
        self,
        events: Sequence[Event],
        stored: Mapping[Place, Stored],
        *,
        aside: Iterable[str] = (),
        copies: Sequence[tuple[str, int, int, Value]] = (),
    ) -> None:
        """`aside`: names of records in files that a forced take-over set aside (R-2), which only acks=1 allows.
        `copies`: what a job that writes exactly once has written: topic, partition, offset, value."""
        self.stored = stored
        self.aside = frozenset(aside)
        self.copies = copies
        self.found: list[Anomaly] = []
        self.allowed: Counter[str] = Counter()
        self.looked: Counter[str] = Counter()
        self.notes = [event for event in events if event["is"] == "note"]
        self.calls = calls_of(events)
        self.by: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            self.by[call.began["do"]].append(call)
        self.writes = [write for call in self.by["produce"] for write in writes_of(call)]
        self.sent: dict[str, Write] = {write.value: write for write in self.writes if write.value is not None}
        self.live = {topic for topic, _ in stored}
        self.two = [(event["since"], event["until"]) for event in self.notes if event["do"] == "two"]

    def run(self) -> list[Anomaly]:
        self.check_answers()
        self.check_stored()
        self.check_order()
        self.check_reads()
        self.check_polls()
        self.check_groups()
        self.check_committed()
        self.check_keys()
        self.check_rising("start", "log start")
        self.check_rising("hw", "high watermark")
        self.check_copies()
        return self.found

    def blame(self, kind: str, place: Place, offset: int, what: str) -> None:
        self.found.append(Anomaly(kind, place[0], place[1], offset, what))

    def table(self, place: Place) -> Stored | None:
        """None: the topic is gone, there is nothing to compare with."""
        if place in self.stored:
            return self.stored[place]
        return Stored({}) if place[0] in self.live else None

    # --- what producers were told ---------------------------------------------------------------

    def check_answers(self) -> None:
        """Acknowledged and lost; an offset given twice; refused, and stored all the same."""
        given: dict[tuple[Place, int], Write] = {}
        for write in self.writes:
            if write.place is None or write.offset < 0:
                continue
            self.looked["acknowledged records"] += 1
            if self.lawfully_lost(write):
                self.allowed["acks=1 set aside by a forced take-over"] += 1
                continue
            other = given.setdefault((write.place, write.offset), write)
            if other is not write:
                what = f"{other.value!r} and {write.value!r} were both acknowledged here"
                self.blame("offset reused", write.place, write.offset, what)
            self.check_kept(write.place, write.offset, write.value, "lost", f"acknowledged to {write.call.who}")
        for value, place, offset in self.everything():
            sender = self.sent.get(value)
            if sender is not None and sender.call.refused and not sender.call.began.get("idempotent"):
                error = sender.call.end["error"] if sender.call.end else ""
                self.blame("refused and stored", place, offset, f"{value!r} was refused with {error}")

    def lawfully_lost(self, write: Write) -> bool:
        """Only a take-over by force overtakes a log: once the loser is gone nothing can be lost any more."""
        if str(write.call.began["acks"]) != "1" or write.name not in self.aside or write.place is None:
            return False
        if not any(write.call.began["t"] < until for _, until in self.two):
            return False
        table = self.table(write.place)
        if table is None:
            return False
        row = table.rows.get(write.offset)
        return row is None or row[1] != write.value

    def check_kept(self, place: Place, offset: int, value: Value, kind: str, who: str) -> None:
        """What somebody was told is there still, or it fell to retention, deletion or compaction."""
        table = self.table(place)
        if table is None or offset < table.start:
            return
        row = table.rows.get(offset)
        if row is not None and row[1] == value:
            return
        if row is not None:
            self.blame("value changed", place, offset, f"{value!r}, {who}, is {row[1]!r} now")
        elif offset >= table.end:
            self.blame(kind, place, offset, f"{value!r}, {who}: the log ends at {table.end}")
        elif not table.compacted:
            self.blame(kind, place, offset, f"{value!r}, {who}, is missing")

    def everything(self) -> Iterator[tuple[str, Place, int]]:
        for place, table in self.stored.items():
            for offset in table.offsets:
                if (value := table.rows[offset][1]) is not None:
                    yield value, place, offset

    # --- what is stored -------------------------------------------------------------------------

    def check_stored(self) -> None:
        """Offsets missing or past the end; a value twice; a value that nobody sent."""
        where: dict[tuple[str, str], int] = {}
        for place, table in self.stored.items():
            self.looked["stored records"] += len(table.rows)
            if not table.compacted and table.offsets != list(range(table.start, table.end)):
                gaps = sorted(set(range(table.start, table.end)) ^ set(table.offsets))
                what = f"offsets {gaps[:5]} are missing or past the end, {table.start} to {table.end}"
                self.blame("offset missing", place, gaps[0], what)
        for value, place, offset in self.everything():
            if (place[0], value) in where:
                self.blame("duplicated", place, offset, f"{value!r} is at {where[place[0], value]}, too")
            where[place[0], value] = offset
            if value not in self.sent:
                self.blame("never sent", place, offset, f"nobody sent {value!r}")

    def check_order(self) -> None:
        """An idempotent producer's records in its order; and whoever was answered first comes first."""
        for place, table in self.stored.items():
            last: dict[str, tuple[int, int]] = {}
            writes = [
                (o, self.sent[v]) for o in table.offsets if (v := table.rows[o][1]) is not None and v in self.sent
            ]
            for offset, write in writes:
                began = write.call.began
                if write.call.given_up:
                    continue  # its producer went on under another identity, so a late arrival has no order
                if began.get("idempotent") and last.get(began["producer"], (-1, -1)) >= write.number:
                    what = f"{write.value!r} comes after number {last[began['producer']]}"
                    self.blame("reordered", place, offset, what)
                last[began["producer"]] = write.number
            earliest, first = math.inf, ""
            for offset, write in reversed(writes):
                if write.call.began["t"] > earliest:
                    what = f"{write.value!r} was sent after {first!r} behind it had been acknowledged"
                    self.blame("reordered", place, offset, what)
                if write.call.answered_at < earliest:
                    earliest, first = write.call.answered_at, str(write.value)

    # --- what readers saw -----------------------------------------------------------------------

    def seen(self) -> Iterator[tuple[Call, Place, int, Value]]:
        for call in self.by["read"]:
            if call.ok and call.end is not None:
                place = (call.began["topic"], call.began["partition"])
                for offset, value in call.end["rows"]:
                    yield call, place, offset, value
        for call in self.by["poll"]:
            if call.ok and call.end is not None:
                for topic, partition, offset, value in call.end["rows"]:
                    yield call, (topic, partition), offset, value

    def check_reads(self) -> None:
        """Past the HW; a value that changed, or moved; a HW that the log never reached; records left out."""
        values: dict[tuple[Place, int], tuple[Value, str]] = {}
        places: dict[tuple[str, str], tuple[int, int]] = {}
        for call, place, offset, value in self.seen():
            self.looked["records read"] += 1
            before, reader = values.setdefault((place, offset), (value, call.who))
            if before != value:
                self.blame("value changed", place, offset, f"{reader} read {before!r}, {call.who} {value!r}")
            if value is not None:
                self.check_origin(place, offset, value, call.who)
                at = places.setdefault((place[0], value), (place[1], offset))
                if at != (place[1], offset):
                    self.blame("duplicated", place, offset, f"{call.who} read {value!r}, which was also at {at}")
            self.check_kept(place, offset, value, "read past the HW", f"read by {call.who}")
        for call in self.by["read"]:
            if call.ok and call.end is not None:
                self.check_read(call, call.end)

    def check_origin(self, place: Place, offset: int, value: str, reader: str) -> None:
        write = self.sent.get(value)
        if write is None:
            self.blame("never sent", place, offset, f"{reader} read {value!r}, which nobody sent")
        elif write.call.ok and write.call.began["topic"] != place[0]:
            self.blame("never sent", place, offset, f"{reader} read {value!r} of {write.call.began['topic']}")

    def check_read(self, call: Call, end: Event) -> None:
        place = (call.began["topic"], call.began["partition"])
        offsets = [offset for offset, _ in end["rows"]]
        table = self.table(place)
        if end.get("hw") is not None and offsets and max(offsets) >= end["hw"]:
            self.blame("read past the HW", place, max(offsets), f"{call.who} was told that the HW is {end['hw']}")
        run = [call.began["from"] - 1, *offsets]
        self.check_run(place, run, "read", call.who)
        after = end.get("next")
        if after is None:
            return
        if after <= run[-1]:
            self.blame("read went back", place, after, f"{call.who} had {run[-1]}, and is to go on at {after}")
        elif table is not None and (left := table.held(run[-1] + 1, after)):
            self.blame("read skipped", place, left[0], f"{call.who} had {run[-1]}, and is to go on at {after}")
        elif table is not None and not offsets and (left := table.held(after, end["hw"])):
            what = f"{call.who} got nothing at {run[0] + 1}, and is to go on at {after}, below a HW of {end['hw']}"
            self.blame("read stands still", place, left[0], what)

    def check_run(self, place: Place, offsets: Sequence[int], kind: str, who: str) -> None:
        """Rising, and nothing left out that is there even now."""
        table = self.table(place)
        for before, after in itertools.pairwise(offsets):
            if after <= before:
                self.blame(f"{kind} went back", place, after, f"{who} had {before} before")
            elif after > before + 1 and table is not None and (left := table.held(before + 1, after)):
                self.blame(f"{kind} skipped", place, left[0], f"{who} had {before}, then {after}")

    def check_polls(self) -> None:
        """Per member and partition, from one assignment to the next."""
        last: dict[tuple[str, Place], int] = {}
        ends = [call.end for call in self.by["poll"] if call.ok and call.end is not None]
        assigned = [event for event in self.notes if event["do"] == "assigned"]
        for event in sorted([*ends, *assigned], key=lambda one: float(one["t"])):
            if event["do"] == "assigned":
                for topic, partition in event["partitions"]:
                    last.pop((event["who"], (topic, partition)), None)
                continue
            for topic, partition, offset, _ in event["rows"]:
                key = (event["who"], (topic, partition))
                if key in last:
                    self.check_run((topic, partition), [last[key], offset], "poll", event["who"])
                last[key] = offset

    # --- groups ---------------------------------------------------------------------------------

    def check_groups(self) -> None:
        """A partition owned twice in a generation; a commit accepted from a stale one."""
        owners: dict[tuple[str, int, Place], str] = {}
        begun: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for call in self.by["join"]:
            if not call.ok or call.end is None:
                continue
            group, member, generation = call.began["group"], call.end["member"], call.end["generation"]
            self.looked["assignments"] += 1
            begun[group].append((call.answered_at, generation))
            for topic, partition in call.end["partitions"]:
                other = owners.setdefault((group, generation, (topic, partition)), member)
                if other != member:
                    what = f"{other} and {member} of {group} both own it in generation {generation}"
                    self.blame("owned twice", (topic, partition), -1, what)
        newest = {group: running_most(times) for group, times in begun.items()}
        for call in self.by["commit"]:
            generation, group = call.began["generation"], call.began["group"]
            times, most = newest.get(group, ([], []))
            at = bisect.bisect_left(times, call.began["t"]) - 1
            if call.ok and at >= 0 and most[at] > generation:
                topic, partition, offset = call.began["offsets"][0]
                what = f"{call.who} committed for generation {generation} of {group} after {most[at]} had begun"
                self.blame("stale commit accepted", (topic, partition), offset, what)

    def check_committed(self) -> None:
        """A committed offset that went back; and records behind it that no member ever got."""
        got: dict[tuple[str, Place], set[int]] = defaultdict(set)
        for call in self.by["poll"]:
            for topic, partition, offset, _ in call.end["rows"] if call.ok and call.end is not None else ():
                got[call.began["group"], (topic, partition)].add(offset)
        commits: dict[tuple[str, Place], list[tuple[float, int]]] = defaultdict(list)
        for call in self.by["commit"]:
            for topic, partition, offset in call.began["offsets"] if call.ok else ():
                self.looked["commits"] += 1
                commits[call.began["group"], (topic, partition)].append((call.answered_at, offset))
        for (group, place), accepted in commits.items():
            end, table = max(offset for _, offset in accepted), self.table(place)
            left = [o for o in table.held(0, end) if o not in got[group, place]] if table is not None else []
            if left:
                self.blame("never delivered", place, left[0], f"{group} committed {end} and never got {left[:5]}")
            self.check_floor(group, place, *running_most(accepted))

    def check_floor(self, group: str, place: Place, times: Sequence[float], most: Sequence[int]) -> None:
        for call in self.by["committed"]:
            if not call.ok or call.end is None or call.began["group"] != group:
                continue
            shown = next((at for topic, partition, at in call.end["offsets"] if (topic, partition) == place), -1)
            at = bisect.bisect_left(times, call.began["t"]) - 1
            if at >= 0 and shown < most[at]:
                self.blame("commit went back", place, most[at], f"{group} had committed it, {shown} was read")

    # --- compaction, and what only rises --------------------------------------------------------

    def check_keys(self) -> None:
        """The last record of each key outlives compaction; an older one never comes back."""
        acked: dict[tuple[Place, str], Write] = {}
        doubtful: set[tuple[str, str]] = set()
        for write in self.writes:
            if write.key is None:
                continue
            if write.place is None or write.offset < 0:
                if write.value is None and not write.call.refused:
                    doubtful.add((write.call.began["topic"], write.key))
            elif not self.lawfully_lost(write) and (
                (write.place, write.key) not in acked or acked[write.place, write.key].offset < write.offset
            ):
                acked[write.place, write.key] = write
        newest = {
            (place, key): offset
            for place, table in self.stored.items()
            for offset in table.offsets
            if (key := table.rows[offset][0]) is not None
        }
        for (place, key), write in acked.items():
            table = self.table(place)
            if table is None or not table.compacted or write.offset < table.start:
                continue
            self.looked["keys"] += 1
            last = newest.get((place, key), -1)
            gone = last < 0 and (write.value is None or (place[0], key) in doubtful)
            if last < write.offset and not gone:
                what = f"the last value of {key!r} was {write.value!r}, now it is at {last}"
                self.blame("compacted key lost", place, write.offset, what)

    def check_rising(self, field: str, called: str) -> None:
        """Log starts and high watermarks only rise. A fenced service beside its successor may show older ones."""
        seen: dict[Place, list[tuple[float, float, int]]] = defaultdict(list)
        for call in (*self.by["read"], *self.by["position"]):
            if call.ok and call.end is not None and call.end.get(field) is not None:
                place = (call.began["topic"], call.began["partition"])
                seen[place].append((call.began["t"], call.answered_at, call.end[field]))
        for place, looks in seen.items():
            times, most = running_most([(until, number) for _, until, number in looks])
            for since, until, number in looks:
                at = bisect.bisect_left(times, since) - 1
                beside = any(since < end and until > begin for begin, end in self.two)
                if at >= 0 and most[at] > number and not beside:
                    self.blame(f"{called} went back", place, number, f"it was {most[at]} before")
            table = self.table(place)
            if table is not None and most[-1] > (stored := table.start if field == "start" else table.end):
                self.blame(f"{called} went back", place, stored, f"{most[-1]} was seen, {stored} is stored")

    def check_copies(self) -> None:
        """A job that writes exactly once wrote each record once, as it is in the log, and left none out."""
        seen: dict[Place, set[int]] = defaultdict(set)
        for topic, partition, offset, value in self.copies:
            self.looked["records copied by a job"] += 1
            if offset in seen[topic, partition]:
                self.blame("copied twice", (topic, partition), offset, f"{value!r}")
            seen[topic, partition].add(offset)
            self.check_kept((topic, partition), offset, value, "read past the HW", "copied by a job")
        for place, offsets in seen.items():
            self.check_run(place, sorted(offsets), "copy", "the job")
