"""What an assignor is asked: members and partitions, numbered so that the strategies work on plain integers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors.java_order import string_key

MAX_PARTITIONS = 1_000_000
"""More than any group reads; a mistyped number must not fill the memory."""

NO_GENERATION = -1
NOBODY = -1
"""Owner of a partition that is given to no member in this round."""

Assignment = dict[str, list[TopicPartition]]
Owners = list[int]
"""For each number of a partition the number of its member, or NOBODY."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    """Set for a static member."""
    owned: frozenset[TopicPartition] = frozenset()
    """What it read until now, as it says."""
    generation: int = NO_GENERATION
    """The generation in which it got `owned`."""


@dataclass(frozen=True, slots=True)
class Group:
    """Members and topics in Java's string order, and the partitions of all topics numbered in one row.

    Only topics that exist, have partitions and are subscribed to by a member are here, as in Kafka.
    """

    members: tuple[Member, ...]
    topics: tuple[str, ...]
    starts: tuple[int, ...]
    """The number of partition 0 of each topic, and the number of all partitions at the end."""
    subscribers: tuple[tuple[int, ...], ...]
    """For each topic the numbers of its members, ascending."""

    @property
    def total(self) -> int:
        return self.starts[-1]

    def partitions_of(self, topic: int) -> range:
        return range(self.starts[topic], self.starts[topic + 1])

    def topic_of(self, partition: int) -> int:
        return bisect_right(self.starts, partition) - 1

    def topics_by_member(self) -> list[set[int]]:
        found: list[set[int]] = [set() for _ in self.members]
        for topic, members in enumerate(self.subscribers):
            for member in members:
                found[member].add(topic)
        return found

    def claims(self) -> list[list[int]]:
        """For each member the numbers of what it owned and what still exists, ascending."""
        numbers = {topic: number for number, topic in enumerate(self.topics)}
        return [self._numbered(member.owned, numbers) for member in self.members]

    def _numbered(self, owned: Collection[TopicPartition], numbers: Mapping[str, int]) -> list[int]:
        found = []
        for claim in owned:
            topic = numbers.get(claim.topic)
            if topic is not None and 0 <= claim.partition < len(self.partitions_of(topic)):
                found.append(self.starts[topic] + claim.partition)
        return sorted(found)


def numbered(partitions_per_topic: Mapping[str, int], members: Collection[Member]) -> Group:
    _check(partitions_per_topic, members)
    ordered = tuple(sorted(members, key=lambda member: string_key(member.member_id)))
    by_topic: dict[str, list[int]] = {}
    for number, member in enumerate(ordered):
        for topic in member.topics:
            if partitions_per_topic.get(topic, 0) > 0:
                by_topic.setdefault(topic, []).append(number)
    topics = tuple(sorted(by_topic, key=string_key))
    starts = [0]
    for topic in topics:
        starts.append(starts[-1] + partitions_per_topic[topic])
    return Group(ordered, topics, tuple(starts), tuple(tuple(by_topic[topic]) for topic in topics))


def _check(partitions_per_topic: Mapping[str, int], members: Collection[Member]) -> None:
    for topic, count in partitions_per_topic.items():
        if count < 0:
            raise InvalidRequest(f"partitions_per_topic: topic {topic!r} has {count} partitions; must be 0 or more")
    total = sum(partitions_per_topic.values())
    if total > MAX_PARTITIONS:
        raise InvalidRequest(f"partitions_per_topic: {total} partitions in total; at most {MAX_PARTITIONS} are allowed")
    if len({member.member_id for member in members}) < len(members):
        raise InvalidRequest("members: two of them have the same member id")


def named(group: Group, owners: Owners) -> Assignment:
    """Every member in string order with its partitions by topic and number; members without any have an empty list."""
    found: list[list[TopicPartition]] = [[] for _ in group.members]
    for number, topic in enumerate(group.topics):
        for partition, owner in enumerate(owners[group.starts[number] : group.starts[number + 1]]):
            if owner != NOBODY:
                found[owner].append(TopicPartition(topic, partition))
    return {member.member_id: partitions for member, partitions in zip(group.members, found, strict=True)}
