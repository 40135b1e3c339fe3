"""Sticky assignment when members subscribe to different topics: fill the emptiest first, then move while it helps.

Kafka tests before each move whether the whole group is balanced, which costs as much as an assignment. That test only
ends the search early: where it says yes no move is left to be made. Going on until a pass moves nothing is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from sluice.streaming.assignors.claims import Claims
from sluice.streaming.assignors.group import NOBODY, Group, Owners
from sluice.streaming.assignors.moves import Moves

Batches = list[tuple[int, Sequence[int]]]
"""Topics with partitions of theirs, those with the fewest subscribers first."""


def share_by_subscription(group: Group, claims: Claims) -> Owners:
    return _Balance(group, claims).owners if group.total else []


class _Balance:
    """Works topic by topic: what is moved within a topic changes the loads of its own subscribers only.

    So one heap of these is enough, and a pass over all partitions costs little more than their number.
    """

    def __init__(self, group: Group, claims: Claims) -> None:
        self._group = group
        self._former = claims.former
        self._topics = group.topics_by_member()
        self._moves = Moves(group)
        self.owners: Owners = [NOBODY] * group.total
        self._loads = [0] * len(group.members)
        self._run(somebody_unsubscribed=self._keep(claims))

    def _keep(self, claims: Claims) -> bool:
        """Leaves members what they may still read. Returns whether one lost a partition that it does not want."""
        lost = False
        for partition, member in claims.owner.items():
            if self._group.topic_of(partition) in self._topics[member]:
                self.owners[partition] = member
                self._loads[member] += 1
            else:
                lost = True
        return lost

    def _run(self, somebody_unsubscribed: bool) -> None:
        group = self._group
        order = sorted(range(len(group.topics)), key=lambda topic: (len(group.subscribers[topic]), topic))
        every: Batches = [(topic, group.partitions_of(topic)) for topic in order]
        free: Batches = [(topic, [p for p in numbers if self.owners[p] == NOBODY]) for topic, numbers in every]
        self._fill(free)
        # What has no owner yet moves without disturbing anybody, so it is tried alone first.
        if not somebody_unsubscribed:
            self._improve(self._movable(free))
        self._improve(self._movable(every))

    def _movable(self, batches: Batches) -> Batches:
        return [(topic, numbers) for topic, numbers in batches if len(self._group.subscribers[topic]) > 1 and numbers]

    def _fill(self, batches: Batches) -> None:
        members = len(self._loads)
        for topic, numbers in batches:
            heap = self._heap(topic)
            for partition in numbers:
                lightest = heap[0] % members
                self.owners[partition] = lightest
                self._loads[lightest] += 1
                heapreplace(heap, heap[0] + members)

    def _heap(self, topic: int) -> list[int]:
        """The subscribers by load, then by number; both in one integer, which compares fast."""
        members, loads = len(self._loads), self._loads
        heap = [loads[member] * members + member for member in self._group.subscribers[topic]]
        heapify(heap)
        return heap

    def _improve(self, batches: Batches) -> None:
        """Passes over the partitions until no move makes the loads more even."""
        moved = True
        while moved:
            moved = False
            for topic, numbers in batches:
                moved = self._improve_topic(topic, numbers) or moved

    def _improve_topic(self, topic: int, numbers: Sequence[int]) -> bool:
        owners, loads, members = self.owners, self._loads, len(self._loads)
        heap = self._heap(topic)
        moved = False
        for partition in numbers:
            owner = owners[partition]
            while heap[0] // members != loads[heap[0] % members]:
                heappop(heap)
            target = self._target(topic, partition, owner, heap[0] % members)
            if loads[owner] <= loads[target] + 1:
                continue
            moved = True
            choice = self._moves.better_choice(topic, partition, owner, target)
            source = owners[choice]
            self._moves.record(topic, choice, source, target)
            owners[choice] = target
            loads[source] -= 1
            loads[target] += 1
            heappush(heap, loads[source] * members + source)
            heappush(heap, loads[target] * members + target)
        return moved

    def _target(self, topic: int, partition: int, owner: int, lightest: int) -> int:
        former = self._former.get(partition)
        if former is None or topic not in self._topics[former]:
            return lightest
        return former if self._loads[owner] > self._loads[former] + 1 else lightest
