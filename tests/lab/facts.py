"""What the checker works on: calls with their ends, single records, stored partitions, and what a history says about
them. Nothing here knows the code under test."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Event = Mapping[str, Any]
Place = tuple[str, int]
Value = str | None

IN_DOUBT_S = 60.0
"""How long after its client asked for the last time a request may still be done. Clients wait 6 s for an answer and the
service gives up after 4 s, so this is ten times as much."""
UNCOMMITTED_S = 30.0
"""How long a record may wait for its commit while nothing is made to go wrong, on a machine that is very busy; the most
that was ever seen is a quarter of it."""
BEHIND_S = 60.0
"""How much longer than a record that a job has copied another one may have been in the log without being copied. Every
batch takes all that there is when it is planned, so this is the time of one planning, many times over."""


@dataclass(slots=True)
class Stored:
    """A partition as delta-rs reads it."""

    rows: dict[int, tuple[str | None, Value]]
    """Key and value by offset; rows below the log start are left out (R-11)."""
    start: int = 0
    end: int = 0
    compacted: bool = False
    trims: bool = False
    """Retention by size and deletions of records may move the log start; of other topics nothing may go."""
    tombstones: dict[int, str] = field(default_factory=dict)
    """What the headers of records without a value call them."""
    twice: list[int] = field(default_factory=list)
    """Offsets that more than one row has."""
    offsets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = sorted(self.rows)

    def name(self, offset: int) -> str:
        """Of the record there, as its sender called it; empty if nothing tells."""
        value = self.rows[offset][1]
        return value if value is not None else self.tombstones.get(offset, "")

    def held(self, first: int, end: int) -> list[int]:
        """Offsets that are there, from `first` to before `end`."""
        return self.offsets[bisect.bisect_left(self.offsets, first) : bisect.bisect_left(self.offsets, end)]


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    topic: str
    partition: int
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.topic}-{self.partition}@{self.offset}: {self.what}"


@dataclass(slots=True)
class Call:
    """An invocation and its end."""

    began: Event
    end: Event | None = None

    @property
    def ok(self) -> bool:
        return self.end is not None and self.end["is"] == "ok"

    @property
    def refused(self) -> bool:
        return self.end is not None and self.end["is"] == "fail"

    @property
    def given_up(self) -> bool:
        """Nobody knows, and whoever asked asks no more."""
        return self.end is not None and self.end["is"] == "info"

    @property
    def answered_at(self) -> float:
        return float(self.end["t"]) if self.end is not None and self.ok else math.inf

    @property
    def who(self) -> str:
        return str(self.began["who"])

    def during(self, times: Iterable[tuple[float, float]]) -> bool:
        until = float(self.end["t"]) if self.end is not None else math.inf
        return any(self.began["t"] < end and until > begin for begin, end in times)

    @property
    def rows(self) -> list[Any]:
        """What a reader got."""
        return list(self.end["rows"]) if self.end is not None and self.ok else []


@dataclass(slots=True)
class Write:
    """One record of a produce call."""

    call: Call
    name: str
    """What is written into its value, or for a tombstone into a header."""
    value: Value
    key: str | None
    number: tuple[int, int]
    place: Place | None
    offset: int
    refused: bool = False
    """It was, by itself or with its whole request, and for certain."""
    unplaced: bool = False
    """It was acknowledged, and nobody was told where it is."""

    @property
    def acked(self) -> bool:
        return self.place is not None and self.offset >= 0

    @property
    def orders(self) -> list[tuple[str, int]]:
        """Names of the orders in which it has a place: that of its request, and an idempotent producer's."""
        began = self.call.began
        request = (str(began["producer"]), int(began["number"]))
        # One that gives up a record goes on under another identity, so a late arrival has no order.
        return [request, (request[0], -1)] if began.get("idempotent") and not self.call.given_up else [request]


@dataclass(frozen=True, slots=True)
class Commit:
    """Of one partition, by a member of a group."""

    offset: int
    began: float
    answered: float
    ok: bool


def calls_of(events: Iterable[Event]) -> list[Call]:
    calls: dict[str, Call] = {}
    for event in events:
        if event["is"] == "invoke":
            calls[event["op"]] = Call(event)
        elif event["is"] != "note" and event["op"] in calls:
            calls[event["op"]].end = event
    return list(calls.values())


def writes_of(call: Call) -> Iterator[Write]:
    """`at` has a place for each record, `[-1, -1]` where nobody knows, null where it was refused."""
    began, end = call.began, call.end if call.ok else None
    at = end["at"] if end is not None else [None if call.refused else [-1, -1]] * began["count"]
    for index, found in enumerate(at):
        partition, offset = found or (-1, -1)
        name = f"{began['producer']}:{began['number']}:{index}"
        value = None if index in began.get("tombstones", ()) else name
        key = began["keys"][index] if "keys" in began else None
        place = (began["topic"], partition) if partition >= 0 else None
        unplaced = end is not None and index in end.get("unplaced", ())
        yield Write(call, name, value, key, (began["number"], index), place, offset, found is None, unplaced)


def running_most(pairs: Iterable[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Times in order, and the largest number up to each."""
    times: list[float] = []
    most: list[int] = []
    for time, number in sorted(pairs):
        times.append(time)
        most.append(max(number, most[-1] if most else number))
    return times, most


def most_before(times: Sequence[float], most: Sequence[int], before: float) -> int:
    """Of what `running_most` found; -1: nothing yet."""
    at = bisect.bisect_left(times, before) - 1
    return most[at] if at >= 0 else -1


def life_of(who: str) -> str:
    """The process that a client was in: `<kind>.<life>`, and more behind it if it goes on under another name."""
    return who.split(".")[1] if "." in who else who


def last_words(events: Iterable[Event]) -> dict[str, float]:
    """When each process of clients wrote its last line: one that was killed asked nothing after that."""
    found: dict[str, float] = {}
    for event in events:
        life = life_of(str(event["who"]))
        found[life] = max(found.get(life, -math.inf), float(event["t"]))
    return found


def storms_of(notes: Iterable[Event], kind: str | None = None) -> list[tuple[float, float]]:
    """When something, or this, was made to go wrong with the service or its storage; one after the other."""
    found = [event for event in notes if event["do"] == "nemesis" and "since" in event]
    return [(event["since"], event["t"]) for event in found if kind in (None, event["kind"])]


def peaceful_s(since: float, until: float, storms: Sequence[tuple[float, float]]) -> float:
    return until - since - sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in storms)


def name_of(topic: str) -> str:
    """Without the id of one that was made again: `<topic>@<topic id>`."""
    return topic.partition("@")[0]


class Facts:
    """A history and what is stored; what follows from them for single records."""

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
        self.by: dict[str, list[Call]] = defaultdict(list)
        for call in calls_of(events):
            self.by[call.began["do"]].append(call)
        self.writes = [write for call in self.by["produce"] for write in writes_of(call)]
        self.sent: dict[str, Write] = {write.name: write for write in self.writes}
        self.live = {topic for topic, _ in stored}
        self.two = [(event["since"], event["until"]) for event in self.notes if event["do"] == "two"]
        self.storms, self.tearing = storms_of(self.notes), storms_of(self.notes, "torn-commit")
        self.waited_s = 0.0
        """How long, in peace, the record waited that waited longest of those that were lost lawfully."""
        self.last_words = last_words(events)

    def table(self, place: Place) -> Stored | None:
        """None: the topic is gone, there is nothing to compare with."""
        if place in self.stored:
            return self.stored[place]
        return Stored({}) if place[0] in self.live else None

    def blame(self, kind: str, place: Place, offset: int, what: str) -> None:
        self.found.append(Anomaly(kind, place[0], place[1], offset, what))

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

    def beside(self, call: Call) -> bool:
        """Whether two services were at work meanwhile: the one that is fenced may know less."""
        return call.during(self.two)

    @cached_property
    def acknowledged_ends(self) -> dict[Place, tuple[list[float], list[int]]]:
        """For each partition, since when everybody must see its records up to where (acks=all)."""
        found: dict[Place, list[tuple[float, int]]] = defaultdict(list)
        for write in self.writes:
            if write.place is not None and write.acked and str(write.call.began["acks"]) == "all":
                found[write.place].append((write.call.answered_at, write.offset + 1))
        return {place: running_most(pairs) for place, pairs in found.items()}

    @cached_property
    def shown_ends(self) -> dict[Place, tuple[list[float], list[int]]]:
        """The same for high watermarks that readers were told."""
        found: dict[Place, list[tuple[float, int]]] = defaultdict(list)
        for call in self.by["read"]:
            if call.ok and call.end is not None and call.end.get("hw") is not None:
                found[call.began["topic"], call.began["partition"]].append((call.answered_at, call.end["hw"]))
        return {place: running_most(pairs) for place, pairs in found.items()}

    def visible(self, place: Place, before: float) -> int:
        """How far the log was committed at that time, as far as anybody was told."""
        ends = (self.acknowledged_ends, self.shown_ends)
        return max(most_before(*one.get(place, ([], [])), before) for one in ends)

    @cached_property
    def commits(self) -> dict[tuple[str, Place], list[Commit]]:
        """What members asked to commit, by group and partition. One that was refused may have been done by an earlier
        try of the same request."""
        found: dict[tuple[str, Place], list[Commit]] = defaultdict(list)
        for call in self.by["commit"]:
            for topic, partition, offset in call.began["offsets"]:
                one = Commit(offset, call.began["t"], call.answered_at, call.ok)
                found[call.began["group"], (topic, partition)].append(one)
        return found

    def everything(self) -> Iterator[tuple[str, Place, int]]:
        """What is stored, by name."""
        for place, table in self.stored.items():
            for offset in table.offsets:
                yield table.name(offset), place, offset

    def seen(self) -> Iterator[tuple[Call, Place, int, Value]]:
        for call in self.by["read"]:
            for offset, value in call.rows:
                yield call, (call.began["topic"], call.began["partition"]), offset, value
        for call in self.by["poll"]:
            for topic, partition, offset, value in call.rows:
                yield call, (topic, partition), offset, value

    def was_deleted(self, write: Write) -> bool:
        """With its topic. A delete that was over before the record was sent had another one; one that nobody answered
        may still come for a while."""
        asked = [call for call in self.by["delete"] if call.began["topic"] == name_of(write.call.began["topic"])]
        over = [call.answered_at if call.ok else self.may_come_until(call) for call in asked if not call.refused]
        return any(at > write.call.began["t"] for at in over)

    def lawfully_lost(self, write: Write) -> bool:
        """Only a take-over overtakes a log: once the loser is gone nothing can be lost any more, and what the loser had
        time to commit, or was seen to have committed, cannot be lost either."""
        if str(write.call.began["acks"]) != "1" or write.name not in self.aside or write.place is None:
            return False
        waits = [
            peaceful_s(write.call.answered_at, since, self.storms)
            for since, until in self.two
            if write.call.began["t"] < until and self.visible(write.place, since) <= write.offset
        ]
        if min(waits, default=math.inf) >= UNCOMMITTED_S:
            return False
        table = self.table(write.place)
        if table is None or (write.offset in table.rows and table.name(write.offset) == write.name):
            return False
        self.waited_s = max(self.waited_s, min(waits))
        return True

    def may_come_until(self, call: Call) -> float:
        """An idempotent producer repeats its request until it gives up or its process is killed."""
        asked_last = float(call.end["t"]) if call.end is not None else self.last_words[life_of(call.who)]
        return asked_last + IN_DOUBT_S
