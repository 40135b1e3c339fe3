"""A partition's log as whole segments with their files, at one version: what retention and other plans look at."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.log_store.delta_log import DataFile
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.segments import segment_bounds
from sluice.log_store.values import OffsetRange


@dataclass(frozen=True, slots=True)
class Segment:
    """The offsets between two rolls and the files that hold them (R-10). The last one of a log is active."""

    offsets: OffsetRange
    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def newest_ms(self) -> int | None:
        """The largest record timestamp; None where compaction left no record."""
        return max((file.max_ms for file in self.files), default=None)


@dataclass(frozen=True, slots=True)
class LogShape:
    """A copy that stays as it is while the partition goes on."""

    version: int
    log_start: int
    end: int
    files: tuple[DataFile, ...]
    rolls: tuple[int, ...]

    @classmethod
    def of(cls, state: PartitionState) -> LogShape:
        """The caller sees to it that the state does not change meanwhile."""
        return cls(state.version, state.log_start, state.end, tuple(state.files), tuple(state.rolls))

    def below_start(self) -> tuple[DataFile, ...]:
        """Files that a moved log start left behind."""
        return tuple(file for file in self.files if file.end_offset <= self.log_start)

    def segments(self) -> list[Segment]:
        """From the log start on, oldest first; the file at the boundary counts whole."""
        found: list[Segment] = []
        at = len(self.below_start())
        for bounds in segment_bounds(self.rolls, self.log_start, self.end):
            first = at
            while at < len(self.files) and self.files[at].base_offset < bounds.end:
                at += 1
            found.append(Segment(bounds, self.files[first:at]))
        return found
