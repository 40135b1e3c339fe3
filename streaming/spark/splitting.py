"""Into how many tasks a batch is cut: `minPartitions` and `maxRecordsPerPartition`, as pure rules.

Without either, a partition of the log is one task. A cut falls on any offset: only the row groups that overlap a
piece are read for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TypeVar

from sluice.log_store.values import OffsetRange

K = TypeVar("K")


def split(
    ranges: Mapping[K, OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[K, OffsetRange]]:
    """Every piece with the key of its range, in order; empty ranges are left out."""
    there = {key: wanted for key, wanted in ranges.items() if wanted.count > 0}
    parts = {key: 1 if max_records is None else -(-wanted.count // max_records) for key, wanted in there.items()}
    if min_partitions is not None and sum(parts.values()) < min_partitions:
        wished = _in_proportion({key: wanted.count for key, wanted in there.items()}, min_partitions)
        parts = {key: max(count, wished[key]) for key, count in parts.items()}
    return [(key, piece) for key, wanted in there.items() for piece in _cut(wanted, parts[key])]


def _in_proportion(sizes: Mapping[K, int], wished: int) -> dict[K, int]:
    """How many pieces of each, so that together there are about `wished` of about one size."""
    total = sum(sizes.values())
    # Small ranges stay whole; the large ones then share what is left, or they would be cut too coarsely.
    whole = {key for key, size in sizes.items() if _pieces(size, total, wished) == 1}
    rest_total = total - sum(sizes[key] for key in whole)
    rest_wished = max(1, wished - len(whole))
    return {key: 1 if key in whole else _pieces(size, rest_total, rest_wished) for key, size in sizes.items()}


def _pieces(size: int, total: int, wished: int) -> int:
    return max(1, min(size, (2 * size * wished + total) // (2 * total)))


def _cut(wanted: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces of equal size, but for one offset."""
    bounds = [wanted.start + wanted.count * index // parts for index in range(parts + 1)]
    return [OffsetRange(low, high) for low, high in pairwise(bounds) if low < high]
