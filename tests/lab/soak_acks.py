"""Which offsets a soak was told: each of them once, and together all that there are."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Place = tuple[str, int]


class Acks:
    """Ranges of acknowledged offsets, kept merged: in the end one for each partition, from 0 on."""

    def __init__(self) -> None:
        self._ranges: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        self.twice: list[str] = []

    def add(self, topic: str, parts: Iterable[dict[str, Any]]) -> None:
        """What an answer said: `partition`, `base_offset`, `count`."""
        for part in parts:
            self._add((topic, part["partition"]), part["base_offset"], part["base_offset"] + part["count"])

    def _add(self, place: Place, first: int, end: int) -> None:
        ranges = self._ranges[place]
        at = bisect.bisect_left(ranges, (first, end))
        before, after = ranges[at - 1] if at else (-1, -1), ranges[at] if at < len(ranges) else (end + 1, -1)
        if before[1] > first or after[0] < end:
            self.twice.append(f"{place[0]}-{place[1]}: {first} to {end} were acknowledged twice")
            return
        low = at - (before[1] == first)
        high = at + (after[0] == end)
        ranges[low:high] = [(before[0] if low < at else first, after[1] if high > at else end)]

    def count(self, topic: str) -> int:
        return sum(end - first for (name, _), found in self._ranges.items() if name == topic for first, end in found)

    def wrong(self, ends: dict[Place, int]) -> list[str]:
        """`ends`: where each log ends."""
        found = list(self.twice)
        for place, end in ends.items():
            if (ranges := self._ranges[place]) != ([(0, end)] if end else []):
                found.append(f"{place[0]}-{place[1]} ends at {end}, acknowledged were {ranges[:5]}")
        return found
