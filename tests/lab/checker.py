"""Judges a history against what is stored. It knows nothing of the code under test and imports nothing of it.

What the clients wrote down is explained in `history`; `stored` comes from `storage`, which reads it with delta-rs.

A record's value names who sent it: `<producer>:<number>:<index>`; nobody sends a value twice, but an idempotent
producer repeats a request until it is answered. So every value may be in one place only, and a place, a topic with a
partition and an offset, may hold one value only, for ever.

Events that are looked at, with the fields of their invocation / of their end:

    produce    topic, producer, number, count, acks, idempotent, keys? tombstones? / at: [[partition, offset], …]
    read       topic, partition, from / hw, start, next, rows: [[offset, value], …]      fetches and delta-rs readers
    poll       group, asked? / rows: [[topic, partition, offset, value], …]              members of groups; asked:
                                                                                         [[topic, partition, offset]]
    position   topic, partition / start                                                  deletions and looks
    join       group / member, generation, partitions: [[topic, partition], …]           what a sync answered
    commit     group, member, generation, offsets: [[topic, partition, offset], …]
    committed  group / offsets: [[topic, partition, offset], …]
    delete     topic: without its id                                                     of a topic
    notes      assigned (who, partitions: what is read from anew), two (since, until: two services were at work),
               nemesis (since: until its own time something was made to go wrong)
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from tests.lab.facts import BEHIND_S, Anomaly, Call, Event, Facts, Place, Value, Write, running_most


class Checker(Facts):
    def run(self) -> list[Anomaly]:
        self.check_answers()
        self.check_stored()
        self.check_order()
        self.check_batches()
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

    # --- what producers were told ---------------------------------------------------------------

    def check_answers(self) -> None:
        """Acknowledged and lost; an offset given twice; refused, and stored all the same."""
        given: dict[tuple[Place, int], Write] = {}
        vanished: dict[str, list[Write]] = defaultdict(list)
        for write in self.writes:
            if write.place is None or not write.acked:
                continue
            self.looked["acknowledged records"] += 1
            if self.table(write.place) is None and not self.was_deleted(write):
                vanished[write.place[0]].append(write)
            if self.lawfully_lost(write):
                self.allowed["acks=1 set aside by a forced take-over"] += 1
                continue
            other = given.setdefault((write.place, write.offset), write)
            if other is not write:
                what = f"{other.value!r} and {write.value!r} were both acknowledged here"
                self.blame("offset reused", write.place, write.offset, what)
            self.check_kept(write.place, write.offset, write.value, "lost", f"acknowledged to {write.call.who}")
            if write.value is None:
                self.check_key(write, write.place, write.offset)
        for topic, writes in vanished.items():
            what = f"the topic is gone with {len(writes)} acknowledged records, and nobody asked to delete it"
            self.blame("lost", writes[0].place or (topic, -1), writes[0].offset, what)
        for value, place, offset in self.everything():
            sender = self.sent.get(value)
            if sender is not None and sender.call.refused and not sender.call.began.get("idempotent"):
                error = sender.call.end["error"] if sender.call.end else ""
                self.blame("refused and stored", place, offset, f"{value!r} was refused with {error}")

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

    def check_key(self, write: Write, place: Place, offset: int) -> None:
        row = self.stored[place].rows.get(offset) if place in self.stored else None
        if row is not None and row[1] == write.value and row[0] != write.key:
            self.blame("key changed", place, offset, f"{write.name!r} was sent with {write.key!r}, and has {row[0]!r}")

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
            if value in self.sent:
                self.check_key(self.sent[value], place, offset)
            else:
                self.blame("never sent", place, offset, f"nobody sent {value!r}")

    def check_order(self) -> None:
        """Records of a request in its order, and an idempotent producer's; whoever was answered first comes first."""
        for place, table in self.stored.items():
            last: dict[tuple[str, int], tuple[int, int]] = {}
            writes = [
                (o, self.sent[v]) for o in table.offsets if (v := table.rows[o][1]) is not None and v in self.sent
            ]
            for offset, write in writes:
                before = max(last.get(order, (-1, -1)) for order in write.orders)
                if before >= write.number:
                    self.blame("reordered", place, offset, f"{write.value!r} comes after number {before}")
                last |= dict.fromkeys(write.orders, write.number)
            earliest, first = math.inf, ""
            for offset, write in reversed(writes):
                if write.call.began["t"] > earliest:
                    what = f"{write.value!r} was sent after {first!r} behind it had been acknowledged"
                    self.blame("reordered", place, offset, what)
                if write.call.answered_at < earliest:
                    earliest, first = write.call.answered_at, str(write.value)

    def check_batches(self) -> None:
        """Offsets in an answer rise, too; of tombstones, which have no value, nothing else tells the order."""
        last: dict[tuple[str, Place], int] = {}
        for write in self.writes:
            if write.place is None or not write.acked:
                continue
            before = last.get((write.call.began["op"], write.place), -1)
            if write.offset < before:
                self.blame("reordered", write.place, write.offset, f"{write.name!r} was sent after the one at {before}")
            last[write.call.began["op"], write.place] = write.offset

    # --- what readers saw -----------------------------------------------------------------------

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

    def check_run(
        self, place: Place, offsets: Sequence[int], kind: str, who: str, elsewhere: Collection[int] = ()
    ) -> None:
        """Rising, and nothing left out that is there even now, but what is `elsewhere`."""
        table = self.table(place)
        for before, after in itertools.pairwise(offsets):
            held = table.held(before + 1, after) if table is not None and after > before + 1 else []
            if after <= before:
                self.blame(f"{kind} went back", place, after, f"{who} had {before} before")
            elif left := [offset for offset in held if offset not in elsewhere]:
                self.blame(f"{kind} skipped", place, left[0], f"{who} had {before}, then {after}")

    def check_polls(self) -> None:
        """Per member and partition, from one assignment to the next. Members that are not told of theirs may have lost
        a partition and got it back: between, others of the group got what they did not."""
        last: dict[tuple[str, Place], int] = {}
        got: dict[tuple[str, Place], set[int]] = defaultdict(set)
        assigned = [Call(event, event) for event in self.notes if event["do"] == "assigned"]
        told = {call.who for call in assigned}
        polls = [call for call in self.by["poll"] if call.ok]
        for call in sorted([*polls, *assigned], key=lambda one: float((one.end or one.began)["t"])):
            for topic, partition in call.began.get("partitions", ()):
                last.pop((call.who, (topic, partition)), None)
            for topic, partition, offset in call.began.get("asked", ()):
                last.setdefault((call.who, (topic, partition)), offset - 1)
            for topic, partition, offset, _ in call.rows:
                place = (topic, partition)
                others = () if call.who in told else got[call.began["group"], place]
                before = last.get((call.who, place), offset - 1)
                self.check_run(place, [before, offset], "poll", call.who, others)
                last[call.who, place] = offset
                got[call.began["group"], place].add(offset)

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
            for topic, partition, offset, _ in call.rows:
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
        doubtful: dict[tuple[str, str], float] = {}  # until when a tombstone that nobody answered for may be stored
        for write in self.writes:
            if write.key is None:
                continue
            if write.place is None or not write.acked:
                if write.value is None and not write.call.refused:
                    at = (write.call.began["topic"], write.key)
                    doubtful[at] = max(doubtful.get(at, 0.0), self.may_come_until(write.call))
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
            late = doubtful.get((place[0], key), -math.inf) >= write.call.began["t"]
            gone = last < 0 and (write.value is None or late)
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
            # It began at the log start, and whatever is there in the end was there, or came later.
            self.check_run(place, [-1, *sorted(offsets)], "copy", "the job")
        self.check_left_behind(seen)

    def check_left_behind(self, copied: Mapping[Place, Collection[int]]) -> None:
        """A batch takes what all partitions have: when it has a record, it has every one that is much older."""
        newest = max((self.sent[v].call.began["t"] for *_, v in self.copies if v in self.sent), default=-math.inf)
        topics, last = {topic for topic, _ in copied}, {place: max(offsets) for place, offsets in copied.items()}
        left: dict[Place, Write] = {}
        for write in self.writes:
            if write.place is None or write.place[0] not in topics or str(write.call.began["acks"]) != "all":
                continue
            stored = write.place in self.stored and write.offset in self.stored[write.place].rows
            if stored and write.offset > last.get(write.place, -1) and write.call.answered_at + BEHIND_S < newest:
                left.setdefault(write.place, write)
        for place, write in left.items():
            self.blame("copy skipped", place, write.offset, f"{write.name!r} and the rest; newer ones were copied")
