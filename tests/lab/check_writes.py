"""What producers were told against what is stored and what readers saw."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

from tests.lab.facts import Facts, Place, Write, name_of


class WriteChecks(Facts):
    def check_writes(self) -> None:
        self.check_answers()
        self.check_refusals()
        self.check_stored()
        self.check_starts()
        self.check_deleted()
        self.check_order()
        self.check_batches()
        self.check_keys()

    # --- what producers were told ---------------------------------------------------------------

    def check_answers(self) -> None:
        """Acknowledged and lost; an offset given twice; a record without an answer, or somewhere else."""
        given: dict[tuple[Place, int], Write] = {}
        vanished: dict[str, list[Write]] = defaultdict(list)
        names = {name for name, _, _ in self.everything()}
        for write in self.writes:
            if write.unplaced and not self.may_be_gone(write) and write.name not in names:
                what = f"{write.name!r} was acknowledged to {write.call.who} without an offset, and is nowhere"
                self.blame("lost", (write.call.began["topic"], -1), -1, what)
            if write.place is None or not write.acked:
                continue
            self.looked["acknowledged records"] += 1
            self.check_place(write, write.place, write.offset, "acknowledged")
            table = self.table(write.place)
            if table is None and not self.was_deleted(write):
                vanished[write.place[0]].append(write)
            if self.lawfully_lost(write):
                self.allowed["acks=1 set aside by a take-over"] += 1
                continue
            other = given.setdefault((write.place, write.offset), write)
            if other is not write:
                what = f"{other.name!r} and {write.name!r} were both acknowledged here"
                self.blame("offset reused", write.place, write.offset, what)
            self.check_there(write, write.place)
        for topic, writes in vanished.items():
            what = f"the topic is gone with {len(writes)} acknowledged records, and nobody asked to delete it"
            self.blame("lost", writes[0].place or (topic, -1), writes[0].offset, what)
        for call in self.by["produce"]:
            if call.ok and call.end is not None and len(call.end["at"]) != call.began["count"]:
                what = f"{call.who} sent {call.began['count']} records and was answered for {len(call.end['at'])}"
                self.blame("answer incomplete", (call.began["topic"], -1), -1, what)

    def check_there(self, write: Write, place: Place) -> None:
        table = self.table(place)
        if table is None:
            self.allowed["acknowledged, gone with its topic"] += 1
        elif write.offset < table.start:
            self.allowed["acknowledged, then below the log start"] += 1
        elif write.offset not in table.rows and table.compacted and write.offset < table.end:
            self.allowed["acknowledged, then compacted away"] += 1
        self.check_kept(place, write.offset, write.value, "lost", f"acknowledged to {write.call.who}")
        row = table.rows.get(write.offset) if table is not None else None
        if table is None or row is None or row[1] is not None or write.value is not None:
            return
        self.check_key(write, place, write.offset)
        if (name := table.name(write.offset)) != write.name:
            self.blame("value changed", place, write.offset, f"the tombstone {write.name!r} is {name!r} now")

    def may_be_gone(self, write: Write) -> bool:
        """Nobody can tell where it was: its topic is gone, trimmed or compacted."""
        tables = [table for place, table in self.stored.items() if place[0] == write.call.began["topic"]]
        return not tables or any(table.trims or table.compacted for table in tables)

    def check_place(self, write: Write, place: Place, offset: int, how: str) -> None:
        """In the topic, and in the partition, that it was sent to."""
        topic, partition = write.call.began["topic"], write.call.began.get("partition")
        # Nobody knows which life of a topic a request met that was not answered.
        elsewhere = place[0] != topic if write.call.ok else name_of(place[0]) != name_of(topic)
        if elsewhere or partition not in (None, place[1]):
            to = topic if partition is None else f"{topic}-{partition}"
            self.blame("misplaced", place, offset, f"{write.name!r} was sent to {to}, and is {how} here")

    def check_refusals(self) -> None:
        for name, place, offset in self.everything():
            sender = self.sent.get(name)
            if sender is not None and sender.refused and not sender.call.began.get("idempotent"):
                error = (sender.call.end or {}).get("error", "an error of its own")
                self.blame("refused and stored", place, offset, f"{name!r} was refused with {error}")

    def check_key(self, write: Write, place: Place, offset: int) -> None:
        row = self.stored[place].rows.get(offset) if place in self.stored else None
        if row is not None and row[1] == write.value and row[0] != write.key:
            self.blame("key changed", place, offset, f"{write.name!r} was sent with {write.key!r}, and has {row[0]!r}")

    # --- what is stored -------------------------------------------------------------------------

    def check_stored(self) -> None:
        """Offsets missing, past the end or in two rows; a record twice; one that nobody sent, or not to here."""
        where: dict[str, tuple[Place, int]] = {}
        for place, table in self.stored.items():
            self.looked["stored records"] += len(table.rows)
            if table.twice:
                self.blame("offset reused", place, table.twice[0], f"{table.twice[:5]} are in more than one row each")
            right = set(table.offsets if table.compacted else range(table.start, table.end))
            if wrong := sorted(right.symmetric_difference(table.offsets) | {o for o in right if o >= table.end}):
                what = f"offsets {wrong[:5]} are missing or past the end, {table.start} to {table.end}"
                self.blame("offset missing", place, wrong[0], what)
        for name, place, offset in self.everything():
            if name not in self.sent:
                self.blame("never sent", place, offset, f"nobody sent {name!r}")
                continue
            if name in where:
                self.blame("duplicated", place, offset, f"{name!r} is at {where[name]}, too")
            where[name] = (place, offset)
            self.check_key(self.sent[name], place, offset)
            self.check_place(self.sent[name], place, offset, "stored")

    def check_starts(self) -> None:
        """A log start rises because of retention or a deletion of records, and for no other reason."""
        asked: dict[Place, int] = defaultdict(int)
        for call in self.by["position"]:
            if not call.refused and "before" in call.began:
                place = (call.began["topic"], call.began["partition"])
                asked[place] = max(asked[place], call.began["before"])
        for place, table in self.stored.items():
            if table.start and not table.trims:
                self.blame("lost", place, table.start, f"the log starts at {table.start}, and nothing of it may go")
            elif table.start > asked[place] and table.start >= table.end:
                # Retention by size keeps what it is to keep.
                self.blame("lost", place, table.start, f"everything is gone; {asked[place]} was the most asked for")

    def check_deleted(self) -> None:
        """What was acknowledged to be deleted stays so."""
        written: dict[str, float] = {}
        for write in self.writes:
            if write.acked:
                topic = write.call.began["topic"]
                written[topic] = min(written.get(topic, math.inf), write.call.answered_at)
        for call in self.by["delete"]:
            back = [t for t, at in written.items() if name_of(t) == call.began["topic"] and at < call.began["t"]]
            for topic in back if call.ok else ():
                if topic in self.live:
                    self.blame("deleted and there", (topic, -1), -1, "it was written to, then deleted, and lives on")

    # --- order ----------------------------------------------------------------------------------

    def names_anywhere(self) -> dict[Place, dict[int, str]]:
        """What was ever said to be at an offset, by storage, acknowledgements and readers; also what is gone now."""
        found: dict[Place, dict[int, str]] = defaultdict(dict)
        for name, place, offset in self.everything():
            found[place][offset] = name
        for write in self.writes:
            if write.place is not None and write.acked and not self.lawfully_lost(write):
                found[write.place].setdefault(write.offset, write.name)
        for _, place, offset, value in self.seen():
            if value is not None:
                found[place].setdefault(offset, value)
        return found

    def check_order(self) -> None:
        """Records of a request in its order, and an idempotent producer's; whoever was answered first comes first."""
        for place, names in self.names_anywhere().items():
            last: dict[tuple[str, int], tuple[int, int]] = {}
            writes = [(offset, self.sent[names[offset]]) for offset in sorted(names) if names[offset] in self.sent]
            for offset, write in writes:
                before = max(last.get(order, (-1, -1)) for order in write.orders)
                if before >= write.number:
                    self.blame("reordered", place, offset, f"{write.name!r} comes after number {before}")
                last |= dict.fromkeys(write.orders, write.number)
            earliest, first = math.inf, ""
            for offset, write in reversed(writes):
                if write.call.began["t"] > earliest:
                    what = f"{write.name!r} was sent after {first!r} behind it had been acknowledged"
                    self.blame("reordered", place, offset, what)
                if write.call.answered_at < earliest:
                    earliest, first = write.call.answered_at, write.name

    def check_batches(self) -> None:
        """Offsets in an answer rise, too."""
        last: dict[tuple[str, Place], int] = {}
        for write in self.writes:
            if write.place is None or not write.acked:
                continue
            before = last.get((write.call.began["op"], write.place), -1)
            if write.offset < before:
                self.blame("reordered", write.place, write.offset, f"{write.name!r} was sent after the one at {before}")
            last[write.call.began["op"], write.place] = write.offset

    # --- compaction -----------------------------------------------------------------------------

    def check_keys(self) -> None:
        """The last record of each key outlives compaction; an older one never comes back. A key has one partition."""
        acked, doubtful = self.last_of_keys()
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
            if last < 0 and write.value is not None and late:
                self.allowed["a key that a tombstone in doubt may have taken"] += 1
            elif last < write.offset and not (last < 0 and write.value is None):
                what = f"the last value of {key!r} was {write.value!r}, now it is at {last}"
                self.blame("compacted key lost", place, write.offset, what)
        homes: dict[tuple[str, str], Place] = {}
        for place, key in itertools.chain(acked, newest):
            if (home := homes.setdefault((place[0], key), place)) != place:
                self.blame("misplaced", place, -1, f"the key {key!r} is in {home[1]}, too")

    def last_of_keys(self) -> tuple[dict[tuple[Place, str], Write], dict[tuple[str, str], float]]:
        """What was acknowledged last of each key; and until when tombstones that nobody answered for may be stored."""
        acked: dict[tuple[Place, str], Write] = {}
        doubtful: dict[tuple[str, str], float] = {}
        for write in self.writes:
            if write.key is None:
                continue
            if write.place is None or not write.acked:
                if write.value is None and not write.refused:
                    at = (write.call.began["topic"], write.key)
                    doubtful[at] = max(doubtful.get(at, 0.0), self.may_come_until(write.call))
            elif not self.lawfully_lost(write) and (
                (write.place, write.key) not in acked or acked[write.place, write.key].offset < write.offset
            ):
                acked[write.place, write.key] = write
        return acked, doubtful
