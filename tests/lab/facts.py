"""What the checker works on: calls with their ends, single records, stored partitions, and what a history says about
them. Of this file and `checker` nothing knows the code under test."""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]
Place = tuple[str, int]
Value = str | None

IN_DOUBT_S = 60.0
"""How long after its client asked for the last time a request may still be done. Clients wait 6 s for an answer and the
service gives up after 4 s, so this is ten times as much."""
UNCOMMITTED_S = 60.0
"""How long a record may wait for its commit while nothing is made to go wrong: then its partition is parked."""
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
    offsets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = sorted(self.rows)

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


def calls_of(events: Iterable[Event]) -> list[Call]:
    calls: dict[str, Call] = {}
    for event in events:
        if event["is"] == "invoke":
            calls[event["op"]] = Call(event)
        elif event["is"] != "note" and event["op"] in calls:
            calls[event["op"]].end = event
    return list(calls.values())


def writes_of(call: Call) -> Iterator[Write]:
    began = call.began
    at = call.end["at"] if call.end is not None and call.ok else [[-1, -1]] * began["count"]
    for index, (partition, offset) in enumerate(at):
        name = f"{began['producer']}:{began['number']}:{index}"
        value = None if index in began.get("tombstones", ()) else name
        key = began["keys"][index] if "keys" in began else None
        place = (began["topic"], partition) if partition >= 0 else None
        yield Write(call, name, value, key, (began["number"], index), place, offset)


def running_most(pairs: Iterable[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Times in order, and the largest number up to each."""
    times: list[float] = []
    most: list[int] = []
    for time, number in sorted(pairs):
        times.append(time)
        most.append(max(number, most[-1] if most else number))
    return times, most


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


def storms_of(notes: Iterable[Event]) -> list[tuple[float, float]]:
    """When something was made to go wrong with the service or its storage; one after the other."""
    return [(event["since"], event["t"]) for event in notes if event["do"] == "nemesis" and "since" in event]


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
        self.sent: dict[str, Write] = {write.value: write for write in self.writes if write.value is not None}
        self.live = {topic for topic, _ in stored}
        self.two = [(event["since"], event["until"]) for event in self.notes if event["do"] == "two"]
        self.storms = storms_of(self.notes)
        self.last_words = last_words(events)

    def table(self, place: Place) -> Stored | None:
        """None: the topic is gone, there is nothing to compare with."""
        if place in self.stored:
            return self.stored[place]
        return Stored({}) if place[0] in self.live else None

    def everything(self) -> Iterator[tuple[str, Place, int]]:
        for place, table in self.stored.items():
            for offset in table.offsets:
                if (value := table.rows[offset][1]) is not None:
                    yield value, place, offset

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
        """Only a take-over by force overtakes a log: once the loser is gone nothing can be lost any more, and what the
        loser had time to commit cannot be lost either."""
        if str(write.call.began["acks"]) != "1" or write.name not in self.aside or write.place is None:
            return False
        if not any(
            write.call.began["t"] < until and peaceful_s(write.call.answered_at, since, self.storms) < UNCOMMITTED_S
            for since, until in self.two
        ):
            return False
        table = self.table(write.place)
        return table is not None and table.rows.get(write.offset) != (write.key, write.value)

    def may_come_until(self, call: Call) -> float:
        """An idempotent producer repeats its request until it gives up or its process is killed."""
        asked_last = float(call.end["t"]) if call.end is not None else self.last_words[life_of(call.who)]
        return asked_last + IN_DOUBT_S
