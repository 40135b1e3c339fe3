"""What the parts of a query's membership tell each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.log_store.values import TopicPartition
from sluice.streaming.membership.options import is_cooperative
from sluice.streaming.spark.group_commits import Entry
from sluice.streaming.spark.options import GroupOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMember:
    """What `streaming.membership` must be told."""

    group: str
    group_instance_id: str | None
    client_id: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    partition_assignment_strategy: tuple[str, ...]
    metadata_max_age_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 2_000

    @property
    def cooperative(self) -> bool:
        return is_cooperative(self.partition_assignment_strategy)

    @classmethod
    def of(cls, options: GroupOptions, client_id: str) -> SparkMember:
        return cls(
            group=options.group_id,
            group_instance_id=options.instance_id,
            client_id=client_id,
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            partition_assignment_strategy=tuple(str(name) for name in options.strategies),
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """What may be read now."""

    tenures: Mapping[TopicPartition, int]
    """A number for each time that a partition was taken over. Another number than before: it may have been in other
    hands meanwhile."""
    generation: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A commit, and the tenure of the partition that it was decided under."""

    tenure: int
    entry: Entry
