"""How much accepted but uncommitted data the partitions of a process may hold together.

Each has a limit of its own, and the WAL has one; but a thousand partitions that are written to faster than they can be
committed would hold all that the WAL takes in memory as well.
"""

from __future__ import annotations

import threading

BATCH_OVERHEAD = 12 * 1024
"""Memory of a batch beside its rows, about: Arrow's buffers and objects, who waits for it, its part of the answer. Of a
few small records it is by far the larger part."""


class PendingBudget:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.held = 0

    def admits(self, size: int) -> bool:
        """A batch larger than everything is taken when it is alone."""
        return not self.held or self.held + size + BATCH_OVERHEAD <= self._limit

    def move(self, size: int) -> None:
        with self._lock:
            self.held += size


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
        self._budget.move(-self._held)
