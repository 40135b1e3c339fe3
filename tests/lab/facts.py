"""The shapes that the checker works on: calls with their ends, single records, stored partitions. Of this file and
`checker` nothing knows the code under test."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Event = Mapping[str, Any]
Place = tuple[str, int]
Value = str | None


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
