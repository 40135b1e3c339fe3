"""One group in memory: the value that the machine steps, and what it has committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.records import Committed
from sluice.streaming.coordinator.status import Sample, Window
from sluice.streaming.groups import Group, Phase


@dataclass(slots=True, eq=False)
class GroupEntry:
    group: Group
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    """What is durable, and nothing else."""
    in_flight: Counter[TopicPartition] = field(default_factory=Counter)
    """Offsets on their way to the log, or from there: what is deleted now must be deleted after them."""
    windows: dict[TopicPartition, Window] = field(default_factory=dict)
    wake: int | None = None
    """Boot time at which a timer will look at the group; None: none is set."""

    @property
    def is_pristine(self) -> bool:
        """Nothing was ever stored of it, and nobody is about to join: it need not be remembered."""
        group = self.group
        unused = group.phase is Phase.EMPTY and group.generation == 0 and group.protocol_type is None
        return unused and not (group.pending or group.stores or self.offsets or self.in_flight)

    def begin(self, where: Iterable[TopicPartition]) -> None:
        for one in where:
            self.in_flight[one] += 1

    def end(self, where: Iterable[TopicPartition]) -> None:
        for one in where:
            self.in_flight[one] -= 1
            if self.in_flight[one] <= 0:
                del self.in_flight[one]

    def take(self, where: TopicPartition, committed: Committed | None) -> None:
        if committed is None:
            self.offsets.pop(where, None)
            self.windows.pop(where, None)
        else:
            self.offsets[where] = committed

    def sample(
        self,
        where: TopicPartition,
        new: Committed,
        interval_ms: int,
        end_of: Callable[[str, int], int | None],
    ) -> None:
        """Remember how far behind a commit was; not of each one when they come quickly."""
        window = self.windows.get(where)
        if window is None:
            window = self.windows[where] = Window()
        if window.wants(new.commit_ms, interval_ms):
            end = end_of(where.topic, where.partition)
            window.add(Sample(new.commit_ms, new.offset, None if end is None else max(0, end - new.offset)))

    def stored(self) -> set[TopicPartition]:
        """Every offset that is in the log, or will be."""
        return {*self.offsets, *self.in_flight}


class GroupView(NamedTuple):
    """A group as it was at one moment."""

    group: Group
    offsets: Mapping[TopicPartition, Committed]
    samples: Mapping[TopicPartition, tuple[Sample, ...]]


def view_of(entry: GroupEntry) -> GroupView:
    samples = {where: window.samples() for where, window in entry.windows.items()}
    return GroupView(entry.group, dict(entry.offsets), samples)
