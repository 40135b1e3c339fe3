"""What clients saw, written down as it happens, and the judge of it.

A worker writes one JSON line per event with O_APPEND, before it goes on: what it was told survives its death. The
content of a batch follows from the producer's name and the batch's number, so the history holds no values.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Rows = list[tuple[int, bytes]]
"""(offset, value) by offset."""


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def count_of(number: int) -> int:
    """Records of a producer's batch."""
    return 1 + number * 7 % 4


def values_of(producer: str, number: int) -> list[bytes]:
    return [f"{producer}:{number}:{index}".encode() for index in range(count_of(number))]


def part_of(values: list[bytes], number: int, partitions: int) -> dict[int, list[bytes]]:
    """Where a request addressed to the whole topic puts its records."""
    parts: dict[int, list[bytes]] = {}
    for index, value in enumerate(values):
        parts.setdefault((number + index) % partitions, []).append(value)
    return parts


class HistoryFile:
    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")  # the last writer was killed inside a line: nobody was told

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "t": boottime(), "pid": os.getpid(), **fields}).encode() + b"\n"
        with self._lock:
            os.write(self._fd, line)


def parse(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue  # cut by a kill


@dataclass(slots=True)
class History:
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, *paths: Path) -> History:
        return cls([event for path in paths for event in parse(path.read_bytes() if path.exists() else b"")])

    def of(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        return [e for e in self.events if e["kind"] == kind and all(e.get(k) == v for k, v in fields.items())]

    def producer(self, name: str) -> dict[str, Any] | None:
        return next(iter(self.of("producer", name=name)), None)

    def next_number(self, name: str, *, idempotent: bool) -> int:
        """An idempotent producer goes on after its last answer; another never repeats a batch it has tried."""
        kind = "ack" if idempotent else "try"
        return 1 + max((e["number"] for e in self.of(kind, name=name)), default=-1)

    @property
    def acks(self) -> list[dict[str, Any]]:
        return self.of("ack")


@dataclass(frozen=True, slots=True)
class Verdict:
    lost: list[str]
    duplicates: list[bytes]
    gaps: list[str]
    disorder: list[str]
    acked: int
    rows: int

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicates or self.gaps or self.disorder)

    def __str__(self) -> str:
        shown = [f"{self.acked} acknowledged, {self.rows} rows"]
        for name in ("lost", "duplicates", "gaps", "disorder"):
            found = getattr(self, name)
            shown.append(f"{name} {len(found)}" + (f": {found[:5]}" if found else ""))
        return "; ".join(shown)


def judge(acks: Iterable[Mapping[str, Any]], tables: Mapping[int, Rows]) -> Verdict:
    """Every acknowledged value at its acknowledged offset, no value twice, offsets dense from 0, order per producer."""
    by_offset = {number: dict(rows) for number, rows in tables.items()}
    lost, acked = [], 0
    everything = {value for rows in tables.values() for _, value in rows}
    for ack in acks:
        acked += count_of(ack["number"])
        lost += _lost(ack, by_offset, everything)
    values = Counter(value for rows in tables.values() for _, value in rows)
    return Verdict(
        lost=lost,
        duplicates=[value for value, times in values.items() if times > 1],
        gaps=[gap for number, rows in tables.items() for gap in _gaps(number, rows)],
        disorder=[text for number, rows in tables.items() for text in _disorder(number, rows)],
        acked=acked,
        rows=sum(len(rows) for rows in tables.values()),
    )


def _lost(ack: Mapping[str, Any], tables: Mapping[int, Mapping[int, bytes]], everything: set[bytes]) -> list[str]:
    values = values_of(ack["name"], ack["number"])
    lost = [f"{value!r} is nowhere" for value in values if value not in everything]
    parts = {int(p): base for p, base in ack["parts"].items()}
    if ack["mode"] == "topic":
        expected = part_of(values, ack["number"], ack["partitions"]) if parts else {}
    else:
        expected = {next(iter(parts)): values}
    for partition, part in expected.items():
        for index, value in enumerate(part):
            offset = parts[partition] + index
            if tables[partition].get(offset) != value:
                lost.append(f"{partition}@{offset} holds {tables[partition].get(offset)!r}, acknowledged was {value!r}")
    return lost


def _gaps(partition: int, rows: Rows) -> list[str]:
    offsets = [offset for offset, _ in rows]
    if offsets == list(range(len(offsets))):
        return []
    first = next((i for i, offset in enumerate(offsets) if offset != i), len(offsets))
    return [f"partition {partition}: offset {first} is missing or there twice"]


def _disorder(partition: int, rows: Rows) -> list[str]:
    last: dict[str, tuple[int, int]] = {}
    wrong = []
    for offset, value in rows:
        name, number, index = value.decode().split(":")
        place = (int(number), int(index))
        if last.get(name, (-1, -1)) >= place:
            wrong.append(f"{partition}@{offset}: {value!r} after {last[name]}")
        last[name] = place
    return wrong
