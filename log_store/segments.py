"""When a segment ends (R-10).

A segment is the offset range between two rolls. The rolls are decided at append, by what is known about the
active segment and the next batch; merges, retention and compaction take them as given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sluice.log_store.config_kinds import INT_MAX
from sluice.log_store.errors import CorruptData
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import OffsetRange

NO_TIMESTAMP = -1


class RollReason(StrEnum):
    BYTES = "bytes"
    TIME = "time"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class ActiveSegment:
    """What the roll rule needs to know of the newest segment. Empty until `after` was called once."""

    base_offset: int
    bytes: int = 0
    first_timestamp_ms: int = NO_TIMESTAMP
    """Largest timestamp of the first batch, as in Kafka; stays NO_TIMESTAMP if that batch had none."""
    max_timestamp_ms: int = NO_TIMESTAMP
    created_ms: int = NO_TIMESTAMP
    """Wall time of the first append: measures the age only when the first batch has no timestamp."""

    @property
    def empty(self) -> bool:
        return self.bytes == 0

    def after(self, batch_bytes: int, batch_max_ts_ms: int, now_ms: int) -> ActiveSegment:
        """The segment with one more batch."""
        grown = replace(
            self, bytes=self.bytes + batch_bytes, max_timestamp_ms=max(self.max_timestamp_ms, batch_max_ts_ms)
        )
        if not self.empty:
            return grown
        return replace(grown, first_timestamp_ms=max(batch_max_ts_ms, NO_TIMESTAMP), created_ms=now_ms)

    def to_json(self) -> list[int]:
        return [self.base_offset, self.bytes, self.first_timestamp_ms, self.max_timestamp_ms, self.created_ms]

    @classmethod
    def from_json(cls, data: list[Any]) -> ActiveSegment:
        if len(data) != 5 or not all(type(value) is int for value in data):
            raise CorruptData(f"stored active segment is damaged: {data!r}")
        return cls(*data)


def should_roll(
    active: ActiveSegment,
    batch_bytes: int,
    batch_max_ts_ms: int,
    batch_end_offset: int,
    config: TopicConfig,
    now_ms: int,
) -> RollReason | None:
    """Must a new segment begin before this batch? `batch_end_offset` is the offset after its last record.

    An empty segment never rolls: its successor would begin at the same offset.
    """
    if active.empty:
        return None
    if active.bytes + batch_bytes > config.segment_bytes:
        return RollReason.BYTES
    if _age_ms(active, batch_max_ts_ms, now_ms) > config.roll_ms:
        return RollReason.TIME
    if batch_end_offset - 1 - active.base_offset > INT_MAX:
        return RollReason.OFFSETS
    return None


def _age_ms(active: ActiveSegment, batch_max_ts_ms: int, now_ms: int) -> int:
    """By record time, so that a replay of old data rolls as it did when it was new."""
    if active.first_timestamp_ms >= 0:
        return batch_max_ts_ms - active.first_timestamp_ms
    return now_ms - active.created_ms


def segment_bounds(rolls: Sequence[int], log_start: int, end: int) -> list[OffsetRange]:
    """The segments between `log_start` and `end`, oldest first. The last one is active and may be empty.

    `rolls` are the offsets at which a segment began; those outside say nothing and are passed over.
    """
    starts = [log_start, *sorted({roll for roll in rolls if log_start < roll <= end})]
    return [OffsetRange(start, stop) for start, stop in zip(starts, [*starts[1:], end], strict=True)]
