"""How much one batch takes: the limits of Spark's Kafka source, as pure rules over offset ranges.

Offsets are counted, not rows: key compaction leaves fewer rows than offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sluice.log_store.values import OffsetRange

K = TypeVar("K")


def at_most(limit: int, backlog: Mapping[K, OffsetRange]) -> dict[K, OffsetRange]:
    """Cut to about `limit` offsets together, in proportion to each backlog; a small one still gets at least one."""
    total = sum(wanted.count for wanted in backlog.values())
    if total <= limit:
        return dict(backlog)
    return {key: _share(wanted, limit, total) for key, wanted in backlog.items()}


def _share(wanted: OffsetRange, limit: int, total: int) -> OffsetRange:
    # Whole numbers: a backlog may be larger than a float counts exactly.
    part = limit * wanted.count // total if limit * wanted.count >= total else min(1, wanted.count)
    return OffsetRange(wanted.start, wanted.start + part)


def up_to(target: Mapping[K, int], backlog: Mapping[K, OffsetRange]) -> dict[K, OffsetRange]:
    """With Trigger.AvailableNow: nothing that came after the query began. Partitions without a target are new."""
    return {
        key: OffsetRange(wanted.start, max(wanted.start, min(wanted.end, target[key])))
        for key, wanted in backlog.items()
        if key in target
    }


@dataclass(slots=True)
class Patience:
    """`minOffsetsPerTrigger`: wait until there is enough to read, but not longer than `maxTriggerDelay`."""

    at_least: int
    longest_s: float
    _last_batch: float | None = None

    def lets_through(self, count: int, now: float) -> bool:
        """Whether a batch of so many offsets may run. The first one always may, as in Spark's Kafka source."""
        late = self._last_batch is None or now - self._last_batch >= self.longest_s
        if count >= self.at_least or late:
            self._last_batch = now
            return True
        return False
