"""How much accepted but uncommitted data the partitions of a process may hold together.

Each has a limit of its own, and the WAL has one; but a thousand partitions that are written to faster than they can be
committed would hold all that the WAL takes in memory as well.
"""

from __future__ import annotations

import threading
from collections import deque

BATCH_OVERHEAD = 12 * 1024
"""Memory of a batch beside its rows, about: Arrow's buffers and objects, who waits for it, its part of the answer. Of a
few small records it is by far the larger part."""


class PendingBudget:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held = 0
        self._given_back: deque[int] = deque()

    @property
    def held(self) -> int:
        if self._given_back:
            self.move(0)
        return self._held

    def admits(self, size: int) -> bool:
        """A batch larger than everything is taken when it is alone."""
        held = self.held
        return not held or held + size + BATCH_OVERHEAD <= self._limit

    def move(self, size: int) -> None:
        with self._lock:
            while self._given_back:
                size -= self._given_back.popleft()
            self._held += size

    def give_back(self, size: int) -> None:
        """From a finalizer: the garbage collector may run it in a thread that is inside `move`, so it must not lock."""
        self._given_back.append(size)


class PendingShare:
    """What one queue of batches holds. A queue that is dropped, as with its topic, gives back what it held."""

    def __init__(self, budget: PendingBudget) -> None:
        self._budget = budget
        self.size = 0
        """Without the overhead."""
        self._held = 0

    def add(self, size: int) -> None:
        self.size += size
        self._move(size + BATCH_OVERHEAD)

    def remove(self, size: int) -> None:
        self.size -= size
        self._move(-size - BATCH_OVERHEAD)

    def admits(self, size: int) -> bool:
        return self._budget.admits(size)

    def _move(self, size: int) -> None:
        self._held += size
        self._budget.move(size)

    def __del__(self) -> None:
        self._budget.give_back(self._held)
