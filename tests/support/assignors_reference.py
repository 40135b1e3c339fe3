"""Sticky assignment for unequal subscriptions as Kafka describes it, slow and plain: full scans, names, no heaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors import Member
from sluice.streaming.assignors.java_order import in_table_order, partition_hash, string_hash, string_key

Moved = tuple[str, str]


class SlowBalance:
    def __init__(self, counts: Mapping[str, int], members: Sequence[Member]) -> None:
        self.members = {member.member_id: member for member in members}
        wanted = {topic for member in members for topic in member.topics}
        self.counts = {topic: count for topic, count in counts.items() if topic in wanted and count > 0}
        self.owned: dict[str, set[TopicPartition]] = {name: set() for name in self.members}
        self.moved: dict[TopicPartition, Moved] = {}
        self.tables: dict[tuple[str, Moved], int] = {}
        newest = max((member.generation for member in members), default=-1)
        self.former: dict[TopicPartition, str] = {}
        for name in in_table_order(self.members):
            member = self.members[name]
            for partition in member.owned if member.generation < newest else ():
                known = self.former.get(partition)
                if known is None or member.generation > self.members[known].generation:
                    self.former[partition] = name

    def run(self) -> dict[str, set[TopicPartition]]:
        topics = sorted(self.counts, key=lambda topic: (len(self.subscribers(topic)), string_key(topic)))
        every = [TopicPartition(topic, number) for topic in topics for number in range(self.counts[topic])]
        unsubscribed = False
        for partition in every:
            winner = self.winner(partition)
            if winner is not None and partition.topic in self.members[winner].topics:
                self.owned[winner].add(partition)
            unsubscribed |= winner is not None and partition.topic not in self.members[winner].topics
        free = [partition for partition in every if self.owner(partition) is None]
        for partition in free:
            self.owned[self.lightest(partition.topic)].add(partition)
        if not unsubscribed:
            self.even_out(free)
        self.even_out(every)
        return self.owned

    def winner(self, partition: TopicPartition) -> str | None:
        claims = sorted((m.generation, m.member_id) for m in self.members.values() if partition in m.owned)
        best = [name for generation, name in claims if generation == claims[-1][0]]
        return best[0] if len(best) == 1 else None

    def even_out(self, partitions: Sequence[TopicPartition]) -> None:
        moved = True
        while moved:
            moved = False
            for partition in partitions:
                if self.balanced():
                    break
                owner = self.owner(partition)
                assert owner is not None
                target = self.lightest(partition.topic)
                former = self.former.get(partition)
                if former in self.subscribers(partition.topic) and self.load(owner) > self.load(former) + 1:
                    target = former
                if self.load(owner) > self.load(target) + 1:
                    self.move(self.better(partition, owner, target), target)
                    moved = True

    def better(self, partition: TopicPartition, owner: str, target: str) -> TopicPartition:
        origin = self.moved[partition][0] if partition in self.moved else owner
        back = [p for p, pair in self.moved.items() if p.topic == partition.topic and pair == (target, origin)]
        slots = self.tables.get((partition.topic, (target, origin)), 16)
        topic = string_hash(partition.topic)

        def slot(one: TopicPartition) -> int:
            value = partition_hash(topic, one.partition)
            return (value ^ value >> 16) % slots

        return min(back, key=slot, default=partition)

    def move(self, partition: TopicPartition, target: str) -> None:
        source = self.owner(partition)
        assert source is not None
        self.owned[source].remove(partition)
        self.owned[target].add(partition)
        old = self.moved.pop(partition, None)
        if old is not None:
            source = old[0]
            if old not in [pair for p, pair in self.moved.items() if p.topic == partition.topic]:
                del self.tables[partition.topic, old]
        if source != target:
            self.moved[partition] = (source, target)
            alike = [p for p, pair in self.moved.items() if p.topic == partition.topic and pair == (source, target)]
            slots = self.tables.get((partition.topic, (source, target)), 16)
            self.tables[partition.topic, (source, target)] = slots * 2 if len(alike) > slots * 3 // 4 else slots

    def balanced(self) -> bool:
        return not any(
            self.load(subscriber) + 1 < self.load(name)
            for name, partitions in self.owned.items()
            for topic in {partition.topic for partition in partitions}
            for subscriber in self.subscribers(topic)
        )

    def subscribers(self, topic: str) -> list[str]:
        return [name for name, member in self.members.items() if topic in member.topics]

    def lightest(self, topic: str) -> str:
        return min(self.subscribers(topic), key=lambda name: (self.load(name), string_key(name)))

    def owner(self, partition: TopicPartition) -> str | None:
        return next((name for name, partitions in self.owned.items() if partition in partitions), None)

    def load(self, name: str | None) -> int:
        return 0 if name is None else len(self.owned[name])
