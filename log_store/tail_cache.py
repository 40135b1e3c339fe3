"""The newest committed rows of all partitions, kept as Arrow within one byte budget."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

ENTRY_BYTES = 2_048
"""What a table costs beside its data (measured): a record alone in its version is mostly this."""
MOST_TAILS = 1_024


@dataclass(frozen=True, slots=True)
class Tail:
    base_offset: int
    end_offset: int
    rows: pa.Table
    size: int


class TailCache:
    """Oldest out first, whichever partition it belongs to. Per partition the ranges are contiguous."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._size = 0
        self._order: deque[str] = deque()
        self._tails: dict[str, deque[Tail]] = {}

    @property
    def size_bytes(self) -> int:
        return self._size

    def add(self, partition: str, base_offset: int, end_offset: int, rows: pa.Table) -> None:
        size = rows.nbytes + ENTRY_BYTES
        if size > self._budget:
            # Nothing older may stay in front of a hole.
            self.drop(partition)
            return
        with self._lock:
            self._tails.setdefault(partition, deque()).append(Tail(base_offset, end_offset, rows, size))
            self._order.append(partition)
            self._size += size
            while self._size > self._budget:
                self._evict_oldest()

    def _evict_oldest(self) -> None:
        partition = self._order.popleft()
        tails = self._tails.get(partition)
        if tails:  # dropped partitions leave stale names in the order
            self._size -= tails.popleft().size
            if not tails:
                del self._tails[partition]

    def get(self, partition: str, offset: int) -> list[Tail]:
        """The cached runs from the one that holds `offset` on, not all if there are many; empty if it is not cached."""
        with self._lock:
            tails = self._tails.get(partition)
            if not tails or not tails[0].base_offset <= offset < tails[-1].end_offset:
                return []
            index = bisect_right(tails, offset, key=lambda tail: tail.base_offset) - 1
            return list(islice(tails, index, index + MOST_TAILS))

    def between(self, partition: str, start: int, end: int) -> tuple[int, list[pa.Table]]:
        """What is cached of the rows from `start` to `end`: where it begins (`end` if nothing is), and the rows."""
        with self._lock:
            tails = self._tails.get(partition)
            if not tails or tails[-1].end_offset < end:
                return end, []
            index = max(0, bisect_right(tails, start, key=lambda tail: tail.base_offset) - 1)
            found = [tail for tail in islice(tails, index, None) if tail.base_offset < end]
        rows = []
        for tail in found:
            low, high = max(start, tail.base_offset), min(end, tail.end_offset)
            rows.append(tail.rows.slice(low - tail.base_offset, high - low))
        return max(start, found[0].base_offset) if found else end, rows

    def drop(self, partition: str) -> None:
        with self._lock:
            for tail in self._tails.pop(partition, ()):
                self._size -= tail.size
            self._order = deque(name for name in self._order if name != partition)
