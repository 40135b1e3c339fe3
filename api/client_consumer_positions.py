"""Where a consumer stands in each of its partitions: what it may fetch, hand out and commit.

Pure rules: no I/O, no threads, no time. For each partition there are up to three offsets, `stored <= done <= position`
unless somebody seeks:

- `position`: the next offset to hand out. Unknown until somebody places it.
- `done`: what was handed out by earlier polls. Whoever asks for more has dealt with what came before, so this much may
  be committed without being asked.
- `stored`: what the group is known to have committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition


@dataclass(frozen=True, slots=True)
class Question:
    """A fetch. Its answer counts only while nobody moved the partition meanwhile."""

    partition: TopicPartition
    offset: int
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    revoked: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]


@dataclass(slots=True)
class _Place:
    version: int
    position: int | None = None
    done: int | None = None
    stored: int | None = None
    reached: int | None = None
    """While a loop goes through the records of one poll: the offset behind the one it is at."""
    paused: bool = False
    out_of_range: bool = False

    @property
    def handed_out(self) -> int | None:
        return self.position if self.reached is None else self.reached

    def move(self, offset: int | None, version: int) -> None:
        self.position = self.done = offset
        self.reached = None
        self.version = version


class Positions:
    def __init__(self) -> None:
        self._places: dict[TopicPartition, _Place] = {}
        self._versions = 0

    # --- what is assigned ------------------------------------------------------------------------

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        return tuple(self._places)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._places

    def change(self, wanted: Collection[TopicPartition]) -> Change:
        """What would be taken away and what would come. What stays keeps its position."""
        kept = set(wanted)
        revoked = tuple(one for one in self._places if one not in kept)
        added = tuple(dict.fromkeys(one for one in wanted if one not in self._places))
        return Change(revoked, added)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._places:
                self._places[partition] = _Place(self._next_version())

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in tuple(partitions):
            self._places.pop(partition, None)

    # --- where it stands -------------------------------------------------------------------------

    def unplaced(self) -> tuple[TopicPartition, ...]:
        """Whose position nobody knows yet."""
        return tuple(one for one, place in self._places.items() if place.position is None)

    def fell_out(self, partition: TopicPartition) -> bool:
        """Whether its position was no longer in the log: what is committed does not help then."""
        return self._place(partition).out_of_range

    def place(self, partition: TopicPartition, offset: int, *, committed: bool) -> None:
        """A first position: what the group committed, or where the reset rule begins."""
        place = self._place(partition)
        place.move(offset, self._next_version())
        place.stored = offset if committed else None
        place.out_of_range = False

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if offset < 0:
            raise InvalidRequest(f"cannot seek {partition} to {offset}: offsets begin at 0", field="offset")
        place = self._place(partition)
        place.move(offset, self._next_version())
        place.out_of_range = False

    def fall_out(self, question: Question) -> None:
        """The log does not hold the offset that was asked for."""
        if self.accepts(question):
            place = self._places[question.partition]
            place.move(None, self._next_version())
            place.out_of_range = True

    def position(self, partition: TopicPartition) -> int | None:
        return self._place(partition).handed_out

    def version(self, partition: TopicPartition) -> int:
        """Another after every seek and every new assignment; -1 for what is not assigned."""
        place = self._places.get(partition)
        return -1 if place is None else place.version

    def pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        for place in [self._place(partition) for partition in partitions]:
            place.paused = paused

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        return tuple(one for one, place in self._places.items() if place.paused)

    # --- fetching and handing out ----------------------------------------------------------------

    def question(self, partition: TopicPartition) -> Question | None:
        """None: nothing to fetch from it now."""
        place = self._places.get(partition)
        if place is None or place.paused or place.position is None:
            return None
        return Question(partition, place.position, place.version)

    def accepts(self, question: Question) -> bool:
        return self.version(question.partition) == question.version

    def hand_out(self, partition: TopicPartition, next_offset: int) -> None:
        """Everything before `next_offset` is with the caller now."""
        place = self._place(partition)
        if place.position is None or next_offset < place.position:
            raise ValueError(f"{partition} stands at {place.position}: cannot hand out up to {next_offset}")
        place.position = next_offset

    def poll_begins(self) -> None:
        """Whoever polls again is done with what it got."""
        for place in self._places.values():
            place.reached = None
            place.done = place.position

    def reach(self, question: Question, offset: int | None) -> bool:
        """A loop is at this offset of what it was handed, or through with it (None). False: somebody moved away."""
        if not self.accepts(question):
            return False
        self._places[question.partition].reached = offset
        return True

    def rewind(self) -> None:
        """The loop was left: what it did not reach is to be handed out again."""
        for partition, place in self._places.items():
            if place.reached is not None:
                self.seek(partition, place.reached)

    # --- committing ------------------------------------------------------------------------------

    def current(self) -> dict[TopicPartition, int]:
        """All that was handed out."""
        found = {one: place.handed_out for one, place in self._places.items()}
        return {one: offset for one, offset in found.items() if offset is not None}

    def to_commit(self, among: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What earlier polls handed out and the group does not have yet."""
        return {
            one: place.done
            for one, place in self._places.items()
            if place.done is not None and place.done != place.stored and (among is None or one in among)
        }

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            place = self._places.get(partition)
            if place is not None:
                place.stored = offset

    def _place(self, partition: TopicPartition) -> _Place:
        try:
            return self._places[partition]
        except KeyError:
            raise InvalidRequest(f"{partition} is not assigned to this consumer", field="partition") from None

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions
