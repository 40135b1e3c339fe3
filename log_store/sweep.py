"""Which files of a partition's folder may be deleted: a pure choice (R-6).

Removed by a commit: after `file.delete.delay.ms`, for readers that planned before. Never named by a commit: after
`orphan.retention.ms`, because it may belong to a commit or plan that is still on its way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sluice.log_store.store import Listed

DATA_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class SweepChoice:
    removed: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    next_due_ms: int | None = None
    """When the next removed file comes due; None if none is waiting."""


def choose_sweep(
    listing: Sequence[Listed],
    live: Collection[str],
    removed: Mapping[str, int],
    *,
    now_ms: int,
    delete_delay_ms: int,
    orphan_retention_ms: int | None,
) -> SweepChoice:
    """`orphan_retention_ms` None: files that no commit names stay, whatever their age."""
    due: list[str] = []
    orphans: list[str] = []
    waiting: list[int] = []
    for item in listing:
        if not item.name.endswith(DATA_SUFFIX) or item.name in live:
            continue
        if item.name in removed:
            due_at = removed[item.name] + delete_delay_ms
            if now_ms >= due_at:
                due.append(item.name)
            else:
                waiting.append(due_at)
        elif orphan_retention_ms is not None and now_ms - item.modified_ms >= orphan_retention_ms:
            orphans.append(item.name)
    return SweepChoice(tuple(due), tuple(orphans), min(waiting, default=None))
