"""Which segments of a partition are past their time or their room: a pure decision.

Whole segments (R-10), oldest first, and each rule stops at the first that stays: first what lies below the log start,
then what is too much, then what is too old. The same decision serves the service itself, the job and its dry run.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sluice.log_store.delta_log import DataFile
from sluice.log_store.log_shape import LogShape, Segment
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import OffsetRange

UNLIMITED = -1


class RetentionReason(StrEnum):
    """Why a segment goes."""

    BELOW_START = "below the log start"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True)
class Expired:
    segment: Segment
    reason: RetentionReason
    why: str
    """The comparison, with its numbers."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What goes, and where the log starts then."""

    expired: tuple[Expired, ...]
    log_start: int
    empties_log: bool
    """The active segment goes too: a new empty one begins at the log end."""

    @property
    def files(self) -> list[DataFile]:
        return [file for one in self.expired for file in one.segment.files]

    @property
    def reason(self) -> str:
        counted = Counter(one.reason for one in self.expired)
        return ", ".join(f"{count} segments by {reason}" for reason, count in counted.items())

    def to_plan(self, base_version: int) -> Plan:
        return Plan(
            plan_id=uuid.uuid4().hex,
            kind=PlanKind.RETENTION,
            reason=self.reason,
            base_version=base_version,
            removes=tuple(file.path for file in self.files),
            log_start=self.log_start,
            empties_log=self.empties_log,
        )


def decide_retention(log: LogShape, config: TopicConfig, now_ms: int | None) -> Retention | None:
    """None: everything stays. `now_ms` None: wall time cannot be trusted, nothing goes by its age (R-13)."""
    segments = log.segments()
    expired = _below_start(log)
    taken = 0
    if config.delete:
        by_size = _too_much(segments, config.retention_bytes)
        by_time = _too_old(segments[len(by_size) :], config.retention_ms, now_ms)
        expired += [*by_size, *by_time]
        taken = len(by_size) + len(by_time)
    if not expired:
        return None
    all_gone = taken == len(segments)
    log_start = log.end if all_gone else segments[taken].offsets.start
    return Retention(tuple(expired), log_start, empties_log=all_gone)


def _below_start(log: LogShape) -> list[Expired]:
    below = log.below_start()
    if not below:
        return []
    segment = Segment(OffsetRange(below[0].base_offset, below[-1].end_offset), below)
    return [Expired(segment, RetentionReason.BELOW_START, f"ends at or before the log start {log.log_start}")]


def _too_much(segments: Sequence[Segment], retention_bytes: int) -> list[Expired]:
    """A segment goes if what is left then is still at least retention.bytes."""
    left = sum(segment.bytes for segment in segments)
    found: list[Expired] = []
    if retention_bytes == UNLIMITED or left < retention_bytes:
        return found
    for segment in segments:
        if _is_empty_end(segment, segments) or left - segment.bytes < retention_bytes:
            break
        left -= segment.bytes
        found.append(Expired(segment, RetentionReason.SIZE, f"{left} bytes stay, at least {retention_bytes}"))
    return found


def _too_old(segments: Sequence[Segment], retention_ms: int, now_ms: int | None) -> list[Expired]:
    """A segment goes if its newest record is older than retention.ms; a record from the future keeps it."""
    found: list[Expired] = []
    if retention_ms == UNLIMITED or now_ms is None:
        return found
    for segment in segments:
        newest = segment.newest_ms
        if _is_empty_end(segment, segments) or (newest is not None and now_ms - newest <= retention_ms):
            break
        age = "holds no record" if newest is None else f"newest record {now_ms - newest} ms old, over {retention_ms}"
        found.append(Expired(segment, RetentionReason.TIME, age))
    return found


def _is_empty_end(segment: Segment, segments: Sequence[Segment]) -> bool:
    """The active segment without any offset: there is nothing to take, and its successor would begin where it does."""
    return segment is segments[-1] and segment.offsets.count == 0


def next_due_ms(log: LogShape, config: TopicConfig) -> int | None:
    """When age alone will take the oldest segment, if nothing is appended meanwhile; None: never."""
    if not config.delete or config.retention_ms == UNLIMITED or log.log_start >= log.end:
        return None
    newest = log.segments()[0].newest_ms
    return 0 if newest is None else newest + config.retention_ms + 1
