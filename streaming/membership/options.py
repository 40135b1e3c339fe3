"""What a membership must be told."""

from __future__ import annotations

from typing import Protocol

COOPERATIVE = frozenset({"cooperative-sticky"})
"""Strategies that take away only what moves."""


class MemberOptions(Protocol):
    @property
    def group(self) -> str | None: ...
    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def session_timeout_ms(self) -> int: ...
    @property
    def heartbeat_interval_ms(self) -> int: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def partition_assignment_strategy(self) -> tuple[str, ...]: ...
    @property
    def metadata_max_age_ms(self) -> int: ...
    @property
    def retry_backoff_ms(self) -> int: ...
    @property
    def retry_backoff_max_ms(self) -> int: ...
    @property
    def cooperative(self) -> bool: ...


def is_cooperative(strategies: tuple[str, ...]) -> bool:
    """Rebalances are cooperative if every strategy that may be chosen is."""
    return COOPERATIVE.issuperset(strategies)
