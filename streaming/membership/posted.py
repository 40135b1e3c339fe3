"""What the thread of a membership and the thread that polls tell each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.log_store.errors import SluiceError
from sluice.log_store.values import TopicPartition
from sluice.streaming.membership.calls import Identity


@dataclass(frozen=True, slots=True)
class Wish:
    """To join: with what, and what is given up if the group no longer knows us."""

    metadata: Callable[[], Mapping[str, Mapping[str, Any]]]
    """Asked before every try: topics of a pattern may have come."""
    owns: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Arrived:
    identity: Identity
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Posted:
    arrived: Arrived | None = None
    rejoin: str | None = None
    lost: str | None = None
    failure: SluiceError | None = None

    @property
    def pending(self) -> bool:
        return not (self.arrived is None and self.rejoin is None and self.lost is None and self.failure is None)
