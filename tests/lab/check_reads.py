"""What readers saw: fetches, delta-rs, members of groups, and the copy that a Spark job made."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from tests.lab.facts import BEHIND_S, Call, Event, Facts, Place, Value, Write, most_before, running_most


class ReadChecks(Facts):
    def check_readers(self) -> None:
        self.check_reads()
        self.check_fresh()
        self.check_ranges()
        self.check_polls()
        self.check_rising("start", "log start")
        self.check_rising("hw", "high watermark")
        self.check_copies()

    # --- reads ----------------------------------------------------------------------------------

    def check_reads(self) -> None:
        """Past the HW; a value that changed, or moved; a HW that the log never reached; records left out."""
        values: dict[tuple[Place, int], tuple[Value, str]] = {}
        places: dict[str, tuple[Place, int]] = {}
        for call, place, offset, value in self.seen():
            self.looked["records read"] += 1
            before, reader = values.setdefault((place, offset), (value, call.who))
            if before != value:
                self.blame("value changed", place, offset, f"{reader} read {before!r}, {call.who} {value!r}")
            if value is not None:
                self.check_origin(place, offset, value, call.who)
                at = places.setdefault(value, (place, offset))
                if at != (place, offset):
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
            self.blame("misplaced", place, offset, f"{reader} read {value!r} of {write.call.began['topic']}")

    def check_read(self, call: Call, end: Event) -> None:
        place = (call.began["topic"], call.began["partition"])
        offsets = [offset for offset, _ in end["rows"]]
        table = self.table(place)
        if end.get("hw") is not None and offsets and max(offsets) >= end["hw"]:
            self.blame("read past the HW", place, max(offsets), f"{call.who} was told that the HW is {end['hw']}")
        run = [call.began["from"] - 1, *offsets]
        self.check_run(place, run, "read", call.who)
        if table is not None and not table.compacted:
            # One answer is one look at the log: what is missing in it was not there, even if it is gone by now.
            start = end.get("start") or 0
            gaps = [a for b, a in itertools.pairwise(offsets) if a > b + 1 and a > start and not table.held(b + 1, a)]
            if gaps:
                what = f"{call.who} got nothing right before it, of a log that started at {start}"
                self.blame("read skipped", place, gaps[0], what)
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

    def check_fresh(self) -> None:
        """What was acknowledged with acks=all before somebody looked, he sees. A commit that was torn, as by a crash of
        the machine, is in no table until it is recovered."""
        for call in self.by["read"]:
            if not call.ok or call.end is None:
                continue
            place, hw = (call.began["topic"], call.began["partition"]), call.end.get("hw")
            table = self.table(place)
            due = most_before(*self.acknowledged_ends.get(place, ([], [])), call.began["t"])
            if hw is not None:
                seen, excused = hw, self.beside(call)
            elif call.began.get("whole"):
                seen = max((offset + 1 for offset, _ in call.rows), default=call.began["from"])
                excused = table is None or table.compacted or call.during(self.tearing)
            else:
                continue
            if seen < due and not excused:
                self.blame("stale read", place, seen, f"{call.who} saw no more, {due} had been acknowledged before")

    def check_ranges(self) -> None:
        """Nobody is told that an offset does not exist which was there all the time."""
        for call in (*self.by["read"], *self.by["poll"]):
            if not call.refused or call.end is None or call.end["error"] != "OFFSET_OUT_OF_RANGE":
                continue
            began = call.began
            asked = began.get("asked") or [[began["topic"], began["partition"], began["from"]]]
            for topic, partition, offset in asked:
                table = self.table((topic, partition))
                there = table is not None and table.start <= offset <= self.visible((topic, partition), began["t"])
                if there and not self.beside(call):
                    what = f"{call.who} was told that it is out of range"
                    self.blame("refused inside the log", (topic, partition), offset, what)

    # --- polls ----------------------------------------------------------------------------------

    def check_polls(self) -> None:
        """Per member and partition, from one assignment to the next; and where each of them begins. Members that are
        not told of theirs may have lost a partition and got it back: between, others of the group got what they did
        not."""
        last: dict[tuple[str, Place], int] = {}
        begins: dict[tuple[str, Place], float] = {}
        got: dict[tuple[str, Place], set[int]] = defaultdict(set)
        assigned = [Call(event, event) for event in self.notes if event["do"] == "assigned"]
        told = {call.who for call in assigned}
        polls = [call for call in self.by["poll"] if call.ok]
        came: dict[str, float] = {}
        for call in self.by["poll"]:
            came[call.who] = min(came.get(call.who, math.inf), call.began["t"])
        for call in sorted([*polls, *assigned], key=lambda one: float((one.end or one.began)["t"])):
            for topic, partition in call.began.get("partitions", ()):
                last.pop((call.who, (topic, partition)), None)
                begins[call.who, (topic, partition)] = call.began["t"]
            for topic, partition, offset in call.began.get("asked", ()):
                last.setdefault((call.who, (topic, partition)), offset - 1)
            for topic, partition, offset, _ in call.rows:
                place, at = (topic, partition), (call.who, (topic, partition))
                others = () if call.who in told else got[call.began["group"], place]
                if (since := begins.pop(at, None)) is not None or (at not in last and call.who not in told):
                    self.check_begin(call, place, offset, came[call.who] if since is None else since)
                self.check_run(place, [last.get(at, offset - 1), offset], "poll", call.who, others)
                last[at] = offset
                got[call.began["group"], place].add(offset)

    def check_begin(self, call: Call, place: Place, offset: int, since: float) -> None:
        """A member goes on where its group was: not before what had been committed when it got the partition, and not
        behind what anybody had asked to commit."""
        commits = [one for one in self.commits.get((call.began["group"], place), ()) if one.began < call.answered_at]
        floor = max((one.offset for one in commits if one.answered < since), default=0)
        most = max((one.offset for one in commits), default=0)
        table = self.table(place)
        if offset < floor:
            what = f"{call.who} begins here; {floor} had been committed when it got the partition"
            self.blame("poll went back", place, offset, what)
        elif table is not None and (left := table.held(most, offset)):
            what = f"{call.who} begins at {offset}, and nobody had asked to commit more than {most}"
            self.blame("poll skipped", place, left[0], what)

    # --- what only rises ------------------------------------------------------------------------

    def check_rising(self, field: str, called: str) -> None:
        """Log starts and high watermarks only rise. A fenced service beside its successor may show older ones."""
        seen: dict[Place, list[tuple[Call, int]]] = defaultdict(list)
        for call in (*self.by["read"], *self.by["position"]):
            if call.ok and call.end is not None and call.end.get(field) is not None:
                seen[call.began["topic"], call.began["partition"]].append((call, call.end[field]))
        for place, looks in seen.items():
            times, most = running_most([(call.answered_at, number) for call, number in looks])
            for call, number in looks:
                before = most_before(times, most, call.began["t"])
                if before > number and not self.beside(call):
                    self.blame(f"{called} went back", place, number, f"it was {before} before")
            table = self.table(place)
            if table is not None and most[-1] > (stored := table.start if field == "start" else table.end):
                self.blame(f"{called} went back", place, stored, f"{most[-1]} was seen, {stored} is stored")

    # --- copies ---------------------------------------------------------------------------------

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
