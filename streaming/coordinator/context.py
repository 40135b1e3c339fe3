"""What the parts of the coordinator share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sluice.conf.settings import GroupSettings
from sluice.log_store.engine import LogStore
from sluice.streaming.coordinator.timers import Timers
from sluice.streaming.groups import GroupRules, Now, Response


class Waiter:
    """A request whose answer may come later: the token that the group machine knows it by."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[Response], None]) -> None:
        self.answer = answer
        """Called once, from any thread; must be short."""


@dataclass(frozen=True, slots=True)
class Context:
    log: LogStore
    settings: GroupSettings
    rules: GroupRules
    timers: Timers
    later: Callable[[float, Callable[[], None]], None]
    """Run what may block, after so many seconds."""

    def now(self) -> Now:
        clock = self.log.runtime.clock
        return Now(int(clock.boottime() * 1000), clock.wall_ms())

    def is_live(self, topic: str, topic_id: str) -> bool:
        """Whether the topic of this name is still that incarnation (R-8)."""
        meta = self.log.catalog.state.find(topic)
        return meta is not None and meta.topic_id == topic_id

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """None when it is not known without opening the partition."""
        meta = self.log.catalog.state.find(topic)
        if meta is None or partition >= meta.partitions:
            return None
        led = self.log.partition(topic, partition)
        return led.high_watermark if led.opened else None


def rules_of(settings: GroupSettings) -> GroupRules:
    return GroupRules(
        min_session_timeout_ms=settings.min_session_timeout_ms,
        max_session_timeout_ms=settings.max_session_timeout_ms,
        max_size=settings.max_size,
        initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
    )
