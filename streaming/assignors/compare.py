"""What each strategy would cost: how uneven it leaves a group, and how many partitions change hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice.streaming.assignors.claims import settled
from sluice.streaming.assignors.group import NOBODY, Group, Member, Owners, numbered
from sluice.streaming.assignors.registry import ASSIGNORS, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    strategy: Strategy
    assigned: int
    """Partitions that have an owner after this round."""
    withheld: int
    """Partitions that the next round gives out (cooperative-sticky only)."""
    moved: int
    """Partitions taken from a member that is still in the group."""
    imbalance: int
    """Most minus fewest partitions of a member; members that can get none do not count."""
    imbalance_per_topic: Mapping[str, int]
    """The same for each topic, among its subscribers."""


def compare(
    partitions_per_topic: Mapping[str, int],
    members: Collection[Member],
    strategies: Iterable[Strategy] = tuple(Strategy),
) -> list[Comparison]:
    group = numbered(partitions_per_topic, members)
    before = settled(group).owner
    return [_judged(group, before, strategy, ASSIGNORS[strategy](group)) for strategy in strategies]


def _judged(group: Group, before: Mapping[int, int], strategy: Strategy, owners: Owners) -> Comparison:
    withheld = owners.count(NOBODY)
    everybody = sorted({member for subscribers in group.subscribers for member in subscribers})
    return Comparison(
        strategy=strategy,
        assigned=len(owners) - withheld,
        withheld=withheld,
        moved=sum(owners[partition] != owner for partition, owner in before.items()),
        imbalance=_spread(owners, everybody),
        imbalance_per_topic={
            name: _spread(owners[group.starts[topic] : group.starts[topic + 1]], group.subscribers[topic])
            for topic, name in enumerate(group.topics)
        },
    )


def _spread(owners: Owners, members: Sequence[int]) -> int:
    counts = Counter(owners)
    loads = [counts[member] for member in members]
    return max(loads, default=0) - min(loads, default=0)
