"""The strategies by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

from sluice.log_store.errors import InvalidRequest
from sluice.streaming.assignors.eager import by_range, round_robin
from sluice.streaming.assignors.group import Assignment, Group, Member, Owners, named, numbered
from sluice.streaming.assignors.sticky import cooperative_sticky, sticky


class Strategy(StrEnum):
    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    STICKY = "sticky"
    COOPERATIVE_STICKY = "cooperative-sticky"


ASSIGNORS: Mapping[Strategy, Callable[[Group], Owners]] = {
    Strategy.RANGE: by_range,
    Strategy.ROUND_ROBIN: round_robin,
    Strategy.STICKY: sticky,
    Strategy.COOPERATIVE_STICKY: cooperative_sticky,
}


def strategy_named(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError:
        raise InvalidRequest(f"strategy {name!r} is none of {', '.join(Strategy)}") from None


def assign(strategy: Strategy, partitions_per_topic: Mapping[str, int], members: Collection[Member]) -> Assignment:
    """What each member is to read, by topic and partition. The order of the members does not matter."""
    group = numbered(partitions_per_topic, members)
    return named(group, ASSIGNORS[strategy](group))
