"""The newest committed rows of all partitions, kept as Arrow within one byte budget."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

import pyarrow as pa


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
        size = rows.nbytes
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
        """The cached runs from the one that holds `offset` on; empty when it is not cached."""
        with self._lock:
            tails = list(self._tails.get(partition, ()))
        index = bisect_right(tails, offset, key=lambda tail: tail.base_offset) - 1
        return tails[index:] if index >= 0 and offset < tails[-1].end_offset else []

    def drop(self, partition: str) -> None:
        with self._lock:
            for tail in self._tails.pop(partition, ()):
                self._size -= tail.size
            self._order = deque(name for name in self._order if name != partition)
