"""Remembers which partitions were moved while an assignment is being balanced, so that none is swapped for another."""

from __future__ import annotations

from sluice.streaming.assignors.group import Group
from sluice.streaming.assignors.java_order import HashSet, partition_hash, string_hash


class Moves:
    __slots__ = ("_between", "_group", "_of", "_returned", "_topic_hashes")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._of: dict[int, tuple[int, int]] = {}
        self._between: dict[tuple[int, int, int], HashSet] = {}
        self._returned: set[int] = set()
        self._topic_hashes = [string_hash(topic) for topic in group.topics]

    def better_choice(self, topic: int, partition: int, owner: int, target: int) -> int:
        """The partition to give to `target` for `partition`: one of the topic that came from there, if there is one.

        It may belong to the member from which `partition` came. Taking it from there evens out nothing by itself, so
        this is done only once for each: two members could otherwise hand it to and fro for ever.
        """
        origin = self._of[partition][0] if partition in self._of else owner
        opposite = self._between.get((topic, target, origin))
        if opposite is None:
            return partition
        choice = opposite.first()
        if origin != owner:
            if choice in self._returned:
                return partition
            self._returned.add(choice)
        return choice

    def record(self, topic: int, partition: int, source: int, target: int) -> None:
        if partition in self._of:
            source = self._forget(topic, partition)
            if source == target:
                return
        self._of[partition] = (source, target)
        number_hash = partition_hash(self._topic_hashes[topic], partition - self._group.starts[topic])
        self._between.setdefault((topic, source, target), HashSet()).add(partition, number_hash)

    def _forget(self, topic: int, partition: int) -> int:
        source, target = self._of.pop(partition)
        between = self._between[topic, source, target]
        between.remove(partition)
        if not between:
            del self._between[topic, source, target]
        return source
