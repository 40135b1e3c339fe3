"""What a mirror adds to its copy of a partition: pure decisions on the two logs.

The end of the copy is the checkpoint: rows below it are there, rows from it on are not. Offsets are the source's, so
a batch that is repeated finds nothing left to add.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.values import PartitionRef

CONFIG = "mirror.source"


@dataclass(frozen=True, slots=True)
class Pair:
    """One partition of the source and its copy."""

    source: PartitionRef
    copy: PartitionRef


@dataclass(frozen=True, slots=True)
class SourceLog:
    """A partition of the source, as far as a copy follows it."""

    log_start: int
    end: int
    rolls: tuple[int, ...] = ()

    @classmethod
    def of(cls, state: PartitionState) -> SourceLog:
        return cls(state.log_start, state.end, tuple(state.rolls))


def source_name(cluster_id: str, meta: TopicMeta) -> str:
    """The value of `mirror.source`: which incarnation of which topic of which cluster (R-8)."""
    return f"{cluster_id}/{meta.name}/{meta.topic_id}"


def check_copy(copy: TopicMeta, source: TopicMeta) -> None:
    """Is this topic the copy of that one? A copy of an earlier incarnation must not be continued with other rows."""
    name = copy.configs.get(CONFIG, "")
    if not name:
        raise PlanRefused(f"topic {copy.name!r} is there and has no {CONFIG}: a mirror writes only to its own copies")
    if name.rpartition("/")[2] != source.topic_id:
        raise PlanRefused(
            f"topic {copy.name!r} is a copy of {name}, and the source's topic now has id {source.topic_id}: it was "
            "created anew; delete the copy to begin again"
        )


def starting_offset(copy: PartitionState, source: SourceLog) -> int:
    """Where to go on; rows that the source has deleted are passed over."""
    if copy.end > source.end:
        raise PlanRefused(f"the copy ends at {copy.end}, past the end of its source at {source.end}")
    return max(copy.end, source.log_start)


def mirror_plan(copy: PartitionState, source: SourceLog, files: Sequence[DataFile], reason: str) -> Plan | None:
    """Add files, and follow the source's log start; None if there is nothing to do."""
    adds = tuple(sorted(files, key=lambda file: file.base_offset))
    end = adds[-1].end_offset if adds else copy.end
    # A source that deleted everything it had not yet given us: the copy goes on where the source does.
    if source.log_start > end:
        end = min(source.log_start, source.end)
    start = max(copy.log_start, min(source.log_start, end))
    if end == copy.end and start == copy.log_start:
        return None
    newest = copy.rolls[-1] if copy.rolls else -1
    return Plan(
        plan_id=f"mirror-{uuid.uuid4().hex}",
        kind=PlanKind.MIRROR,
        reason=reason,
        base_version=copy.version,
        removes=tuple(file.path for file in copy.files if file.end_offset <= start),
        adds=tuple(file for file in adds if file.end_offset > start),
        log_start=start,
        continues_at=copy.end,
        end=end,
        rolls=tuple(roll for roll in source.rolls if max(copy.end, newest + 1) <= roll < end),
    )
