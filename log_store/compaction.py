"""What a key compaction cleans, and when it is due. Pure: time is an argument.

::

    log start        first dirty offset          end of the range            high watermark
    |---- clean -----|---------- dirty ----------|-- too young --|- active -|
      rows whose key   the last row of each key    untouched, and shadows nothing
      came again go    stays, null keys go
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.log_store.compaction_tombstones import spans_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.segments import segment_bounds
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """What the choice needs to know of a partition, as one thing."""

    version: int
    files: Sequence[DataFile]
    segments: Sequence[OffsetRange]
    """Oldest first; the last one is active."""
    first_dirty: int
    last_cleaning: int

    @classmethod
    def of(cls, state: PartitionState) -> LogView:
        return cls(
            version=state.version,
            files=tuple(state.files),
            segments=tuple(segment_bounds(state.rolls, state.log_start, state.end)),
            first_dirty=state.first_dirty,
            last_cleaning=state.last_cleaning,
        )

    @property
    def log_start(self) -> int:
        return self.segments[0].start


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The range that one cleaning of a partition would cover, and whether it is worth while."""

    log_start: int
    first_dirty: int
    end: int
    """Exclusive; the base of a segment."""
    clean_bytes: int
    dirty_bytes: int
    limit: str
    """Why the range ends where it does."""
    due: bool
    reason: str
    """Why it is due, or why not."""
    look_again_ms: int | None = None
    """When time alone may make it due; None: only new records can."""

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Neighbours inside one segment: cleaned together, into one file at most."""

    files: tuple[DataFile, ...]
    dirty: bool

    @property
    def start(self) -> int:
        return self.files[0].base_offset

    @property
    def end(self) -> int:
        return self.files[-1].end_offset

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class FileReason:
    file: DataFile
    action: str
    reason: str


# --- which range, and is it due ------------------------------------------------------------------


def cleanable(view: LogView, config: TopicConfig, now_ms: int) -> Cleanable:
    first_dirty = max(view.first_dirty, view.log_start)
    closed = [(s, _files_in(view.files, s)) for s in view.segments[:-1] if s.end > first_dirty]
    end, limit, young_until = _range_end(view, closed, first_dirty, config, now_ms)
    clean = sum(f.size for f in view.files if view.log_start < f.end_offset <= first_dirty)
    dirty = sum(f.size for f in view.files if is_dirty(f, first_dirty, end))
    due, reason, overdue_at = _due(closed, clean, dirty, config, now_ms)
    later = [ms for ms in (young_until, overdue_at) if ms is not None and ms > now_ms]
    return Cleanable(
        log_start=view.log_start,
        first_dirty=first_dirty,
        end=end,
        clean_bytes=clean,
        dirty_bytes=dirty,
        limit=limit,
        due=due,
        reason=reason,
        look_again_ms=min(later, default=None) if config.compact else None,
    )


_Closed = Sequence[tuple[OffsetRange, Sequence[DataFile]]]


def is_dirty(file: DataFile, first_dirty: int, end: int) -> bool:
    """Does it lie in the dirty range? The file at the log start may begin below it (R-11)."""
    return file.end_offset > first_dirty and max(file.base_offset, first_dirty) < end


def _files_in(files: Sequence[DataFile], segment: OffsetRange) -> list[DataFile]:
    first = bisect_right(files, segment.start, key=lambda file: file.end_offset)
    return list(files[first : bisect_left(files, segment.end, key=lambda file: file.base_offset)])


def _range_end(
    view: LogView, closed: _Closed, first_dirty: int, config: TopicConfig, now_ms: int
) -> tuple[int, str, int | None]:
    """(end, why there, when a segment that is too young will not be so any more)"""
    lag_ms = config.min_compaction_lag_ms
    # As in Kafka no timestamp is looked at without a lag: a record from the future holds nothing up.
    for segment, files in closed if lag_ms > 0 else ():
        newest = max((file.max_ms for file in files), default=None)
        if newest is not None and newest > now_ms - lag_ms:
            return (
                max(segment.start, first_dirty),
                f"younger than min.compaction.lag.ms = {lag_ms}",
                newest + lag_ms,
            )
    return max(view.segments[-1].start, first_dirty), "the active segment is never cleaned", None


def _due(closed: _Closed, clean: int, dirty: int, config: TopicConfig, now_ms: int) -> tuple[bool, str, int | None]:
    """(due, why, when max.compaction.lag.ms will make it due)"""
    if not config.compact:
        return False, "cleanup.policy has no `compact`", None
    # The oldest record of a segment, where Kafka takes its first batch: merges may not change what is due.
    stamps = [file.min_ms for _, files in closed for file in files if file.min_ms > 0]
    overdue_at = min(stamps) + config.max_compaction_lag_ms + 1 if stamps else None
    if not dirty:
        return False, "nothing new that may be cleaned", overdue_at
    ratio = dirty / (clean + dirty)
    least = config.min_cleanable_dirty_ratio
    if overdue_at is not None and now_ms >= overdue_at:
        return True, f"its oldest record is older than max.compaction.lag.ms = {config.max_compaction_lag_ms}", None
    if ratio > least:
        return True, f"{ratio:.0%} of it is dirty, more than min.cleanable.dirty.ratio = {least:.0%}", None
    return False, f"{ratio:.0%} of it is dirty, not more than min.cleanable.dirty.ratio = {least:.0%}", overdue_at


def dirtiest_first(found: Sequence[Cleanable], *, every: bool = False) -> list[int]:
    """Positions of what is due, or of `every` one, in the order in which it is to be cleaned."""
    return sorted((i for i, one in enumerate(found) if one.due or every), key=lambda i: (-found[i].ratio, i))


def bounded(view: LogView, wanted: Cleanable, most_bytes: int, most_records: int) -> Cleanable:
    """The same cleaning of fewer dirty segments, one at least, so that the keys of the range fit into memory."""
    size = records = 0
    end = wanted.first_dirty
    for segment in view.segments[:-1]:
        if segment.end <= wanted.first_dirty or segment.end > wanted.end:
            continue
        files = _files_in(view.files, segment)
        size += sum(file.size for file in files)
        records += sum(file.records for file in files)
        if end > wanted.first_dirty and (size > most_bytes or records > most_records):
            return _ending_at(view, wanted, end)
        end = segment.end
    return wanted


def _ending_at(view: LogView, wanted: Cleanable, end: int) -> Cleanable:
    dirty = sum(f.size for f in view.files if is_dirty(f, wanted.first_dirty, end))
    return Cleanable(
        log_start=wanted.log_start,
        first_dirty=wanted.first_dirty,
        end=end,
        clean_bytes=wanted.clean_bytes,
        dirty_bytes=dirty,
        limit="as many keys as fit into memory at once",
        due=wanted.due,
        reason=wanted.reason,
    )


# --- which files ---------------------------------------------------------------------------------


def file_groups(
    view: LogView, first_dirty: int, end: int, target_bytes: int, files: Sequence[DataFile] | None = None
) -> list[FileGroup]:
    """The files of a range in pieces of work. No piece crosses a roll (R-10), nor the border of clean and dirty.

    A large file is a piece of its own: its neighbours are not rewritten for its sake, nor it for theirs.
    """
    chosen = view.files if files is None else files
    places = {file.path: place for place, file in enumerate(view.files)}
    groups: list[FileGroup] = []
    for segment in view.segments:
        if segment.start >= end:
            break
        inside = [file for file in _files_in(chosen, segment) if file.base_offset < end]
        for dirty in (False, True):
            part = [file for file in inside if (file.end_offset > first_dirty) is dirty]
            groups += [FileGroup(tuple(run), dirty) for run in _runs(places, part, target_bytes)]
    return groups


def _runs(places: Mapping[str, int], files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    run: list[DataFile] = []
    size = 0
    for file in files:
        large = file.size * 2 >= target_bytes
        # What stands between two files of a piece would lie inside the range of its output.
        neighbours = bool(run) and places[run[-1].path] + 1 == places[file.path]
        if run and (large or not neighbours or size + file.size > target_bytes):
            yield run
            run, size = [], 0
        run.append(file)
        size += file.size
        if large:
            yield run
            run, size = [], 0
    if run:
        yield run


def file_reasons(view: LogView, chosen: Cleanable, now_ms: int) -> list[FileReason]:
    """What a cleaning does to each file, in words, before a row was read."""
    return [_reason(file, chosen, now_ms) for file in view.files]


def _reason(file: DataFile, chosen: Cleanable, now_ms: int) -> FileReason:
    if file.end_offset <= chosen.first_dirty:
        if any(span.horizon_ms <= now_ms for span in spans_of(file)):
            return FileReason(file, "rewrite", "holds tombstones that are past their delete horizon")
        return FileReason(file, "check", "clean: rewritten only if a key of it came again")
    if is_dirty(file, chosen.first_dirty, chosen.end):
        return FileReason(file, "clean", "dirty: the last record of each key stays; left alone if that is all of them")
    return FileReason(file, "leave", chosen.limit)
