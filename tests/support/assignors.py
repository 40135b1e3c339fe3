"""Groups and assignments written as text: `{"c1": "orders-0 orders-2"}`."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors import Assignment, Member, Strategy, assign

Text = Mapping[str, str]


def partitions(text: str) -> frozenset[TopicPartition]:
    pairs = (word.rpartition("-") for word in text.split())
    return frozenset(TopicPartition(topic, int(number)) for topic, _, number in pairs)


def members(
    subscriptions: Text,
    previous: Text | None = None,
    generations: Mapping[str, int] | None = None,
    instances: Text | None = None,
) -> list[Member]:
    return [
        Member(
            member_id=name,
            topics=frozenset(topics.split()),
            owned=partitions((previous or {}).get(name, "")),
            generation=(generations or {}).get(name, -1),
            instance_id=(instances or {}).get(name),
        )
        for name, topics in subscriptions.items()
    ]


def text(assignment: Assignment) -> dict[str, str]:
    return {name: " ".join(str(one) for one in owned) for name, owned in assignment.items()}


def assigned(
    strategy: Strategy,
    counts: Mapping[str, int],
    subscriptions: Text,
    previous: Text | None = None,
    generations: Mapping[str, int] | None = None,
    instances: Text | None = None,
) -> dict[str, str]:
    return text(assign(strategy, counts, members(subscriptions, previous, generations, instances)))
