"""What can be chosen about a consumer: Kafka's names and defaults, with underscores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sluice.log_store.errors import InvalidRequest
from sluice.streaming.assignors import strategy_named
from sluice.streaming.membership.options import is_cooperative


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    group: str | None = None
    """None: partitions are assigned by hand, and nothing can be committed."""
    group_instance_id: str | None = None
    """A static member: it may restart within the session timeout and finds its partitions again."""
    client_id: str = ""
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    """Where to begin without a commit, or when the log no longer has the position; none: raise."""
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Longest time between two polls; whoever takes longer is out of the group. Also the rebalance timeout."""
    max_poll_records: int = 500
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    """In order of preference. Rebalances are cooperative if all of them are."""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    """Of all that is fetched and not handed out yet."""
    max_partition_fetch_bytes: int = 1 << 20
    fetch_threads: int = 16
    """Long polls at the same time. With more partitions than this each of them waits for a shorter time."""
    metadata_max_age_ms: int = 30_000
    """How soon new partitions and new topics of a pattern are noticed."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    default_api_timeout_ms: int = 60_000
    """How long calls that must have an answer are repeated: commit, committed, position."""

    def __post_init__(self) -> None:
        if not self.partition_assignment_strategy:
            raise InvalidRequest(
                "partition_assignment_strategy: must not be empty", field="partition_assignment_strategy"
            )
        for name in self.partition_assignment_strategy:
            strategy_named(name)
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise InvalidRequest("auto_offset_reset: must be earliest, latest or none", field="auto_offset_reset")
        if self.group_instance_id is not None and self.group is None:
            raise InvalidRequest("group_instance_id: needs a group", field="group_instance_id")
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise InvalidRequest(f"{name}: must be at least 1", field=name)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidRequest(
                "heartbeat_interval_ms: must be less than session_timeout_ms", field="heartbeat_interval_ms"
            )

    @property
    def cooperative(self) -> bool:
        return is_cooperative(self.partition_assignment_strategy)

    @property
    def rebalance_timeout_ms(self) -> int:
        return self.max_poll_interval_ms


_POSITIVE = (
    "auto_commit_interval_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "max_poll_records",
    "fetch_max_wait_ms",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "fetch_threads",
    "metadata_max_age_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "default_api_timeout_ms",
)
