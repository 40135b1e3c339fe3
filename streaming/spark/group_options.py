"""The options that make a streaming query a member of a consumer group."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.streaming.assignors.registry import Strategy
from sluice.streaming.spark.address import Address
from sluice.streaming.spark.option_values import OptionValues, wrong
from sluice.streaming.spark.subscriptions import Assigned, Subscription

_TIMES = ("group.rebalance.timeout.ms", "group.session.timeout.ms", "group.heartbeat.interval.ms")
FINISHED_FILE = "group.finished.file"
GROUP_OPTIONS = ("group.id", "group.instance.id", "partition.assignment.strategy", *_TIMES, FINISHED_FILE)

REBALANCE_TIMEOUT_MS = 15 * 60_000
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    group_id: str
    instance_id: str | None = None
    strategies: tuple[Strategy, ...] = (Strategy.COOPERATIVE_STICKY,)
    """In order of preference."""
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS
    """How long a rebalance waits for a member that is in the middle of a batch."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    finished_file: str | None = None
    """The stamp of a batch as JSON: when the query ends, that one is finished though Spark has not said so."""


def group_of(
    values: OptionValues, address: Address, subscription: Subscription, *, streaming: bool
) -> GroupOptions | None:
    group_id = values.text("group.id")
    if group_id is None:
        for name in GROUP_OPTIONS:
            if name in values:
                raise wrong(name, "needs group.id")
        return None
    if not streaming:
        raise wrong("group.id", "only a streaming query can be a member of a group")
    if address.server is None:
        raise wrong("group.id", "needs 'server': the service keeps the groups")
    if isinstance(subscription, Assigned):
        raise wrong("assign", "contradicts group.id: a group shares out the partitions, use subscribe")
    rebalance, session, heartbeat = (values.whole(name, minimum=1, maximum=_INT_MAX) for name in _TIMES)
    made = GroupOptions(
        group_id=group_id.strip(),
        instance_id=values.text("group.instance.id"),
        strategies=_strategies(values),
        rebalance_timeout_ms=rebalance or REBALANCE_TIMEOUT_MS,
        session_timeout_ms=session or SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=heartbeat or HEARTBEAT_INTERVAL_MS,
        finished_file=values.text(FINISHED_FILE),
    )
    if made.heartbeat_interval_ms >= made.session_timeout_ms:
        raise wrong("group.heartbeat.interval.ms", f"must be less than the session, {made.session_timeout_ms} ms")
    return made


def _strategies(values: OptionValues) -> tuple[Strategy, ...]:
    name = "partition.assignment.strategy"
    chosen = values.names(name) or (Strategy.COOPERATIVE_STICKY,)
    for strategy in chosen:
        if strategy not in tuple(Strategy):
            raise wrong(name, f"{strategy!r} is none of {', '.join(Strategy)}")
    return tuple(Strategy(strategy) for strategy in chosen)
