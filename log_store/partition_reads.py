"""Reads of one partition as clients ask for them: fetch, scan, offsets by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from sluice.log_store import reader
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import CorruptData, OffsetOutOfRange
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.partition import PartitionLog
from sluice.log_store.reader import Rows
from sluice.log_store.store import Store

MAX_REPLANS = 10
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fetched:
    high_watermark: int
    log_start: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """`offset` -1 and `timestamp_ms` -1: there is none, as in Kafka's answer."""

    offset: int
    timestamp_ms: int = -1


class PartitionReads:
    def __init__(self, partition: PartitionLog) -> None:
        self._partition = partition
        self._runtime = partition.runtime
        self._folder = partition.ref.folder

    def fetch(self, offset: int, *, max_records: int = 500, max_bytes: int = 1_048_576) -> Fetched:
        """Rows from `offset` on, within the limits; at least one if there is any."""
        self._catch_up()

        def attempt() -> Fetched:
            files, count, start, end = self._partition.view()
            self._check_offset(offset, start)
            if offset >= end:
                self._raise_if_stopped()
                return Fetched(end, start, Rows([], offset))
            batches, stop = self._cached(offset, end)
            if batches is None:
                chosen = reader.files_between(files, count, offset, end)
                batches = reader.scan(self._runtime.store, self._folder, chosen, offset, end)
            return Fetched(end, start, reader.take(batches, offset, stop, max_records, max_bytes))

        return self._replanned(attempt)

    def scan(
        self, start: int | None = None, end: int | None = None, *, columns: list[str] | None = None, readahead: int = 2
    ) -> Iterator[pa.RecordBatch]:
        """All rows between two offsets, in order, in constant memory; re-planned when a file vanishes on the way."""
        self._catch_up()
        _, _, log_start, high = self._partition.view()
        position = log_start if start is None else start
        stop = high if end is None else min(end, high)
        self._check_offset(position, log_start)
        lost: DataFile | None = None
        while position < stop:
            files, count, log_start, _ = self._partition.view()
            self._check_offset(position, log_start)
            chosen = reader.files_between(files, count, position, stop)
            self._raise_if_still_live(lost, chosen)
            try:
                for batch in reader.scan(
                    self._runtime.store, self._folder, chosen, position, stop, columns=columns, readahead=readahead
                ):
                    if batch.num_rows:
                        yield batch
                        position = int(batch.column(0)[-1].as_py()) + 1
                return
            except FileVanished as vanished:
                lost = vanished.file
                self._catch_up(forced=True)

    def earliest(self) -> FoundOffset:
        self._catch_up()
        return FoundOffset(self._partition.log_start)

    def latest(self) -> FoundOffset:
        self._catch_up()
        return FoundOffset(self._partition.high_watermark)

    def at_time(self, ms: int) -> FoundOffset:
        """The lowest offset whose record is at `ms` or later."""
        return self._search(lambda files, start, end: reader.first_at_or_after(*self._at, files, start, end, ms))

    def max_timestamp(self) -> FoundOffset:
        return self._search(lambda files, start, end: reader.largest_timestamp(*self._at, files, start, end))

    # --- how ---------------------------------------------------------------------------------------

    @property
    def _at(self) -> tuple[Store, str]:
        return self._runtime.store, self._folder

    def _search(self, find: Callable[[list[DataFile], int, int], tuple[int, int] | None]) -> FoundOffset:
        self._catch_up()

        def attempt() -> FoundOffset:
            files, count, start, end = self._partition.view()
            found = find(reader.files_between(files, count, start, end), start, end)
            return FoundOffset(-1) if found is None else FoundOffset(*found)

        return self._replanned(attempt)

    def _catch_up(self, *, forced: bool = False) -> None:
        self._partition.open()
        if self._runtime.leadership.fenced or self._partition.unsettled or forced:
            self._partition.refresh()

    def _check_offset(self, offset: int, start: int) -> None:
        end = self._partition.log_end
        if not start <= offset <= end:
            raise OffsetOutOfRange(
                f"offset {offset} of {self._partition.ref.tp} is outside {start}..{end}", log_start=start, log_end=end
            )

    def _raise_if_stopped(self) -> None:
        """At the end of a log that stops at a damaged commit, "no more rows" would be a lie."""
        if self._partition.problem is not None:
            raise self._partition.problem

    def _cached(self, offset: int, end: int) -> tuple[Iterator[pa.RecordBatch] | None, int]:
        """(cached rows, None if there are none; the offset up to which they, or else the files, are complete)"""
        tails = self._runtime.tails.get(self._folder, offset)
        if not tails:
            return None, end

        def batches() -> Iterator[pa.RecordBatch]:
            for tail in tails:
                low, high = max(offset, tail.base_offset), min(end, tail.end_offset)
                if low < high:
                    yield from tail.rows.slice(low - tail.base_offset, high - low).to_batches()

        return batches(), min(end, tails[-1].end_offset)

    def _replanned(self, attempt: Callable[[], _T]) -> _T:
        """Run a read; when a file vanished under it, plan the same offsets on a newer snapshot (I-9)."""
        for _ in range(MAX_REPLANS):
            try:
                return attempt()
            except FileVanished as vanished:
                lost = vanished.file
                self._catch_up(forced=True)
                self._raise_if_still_live(lost, self._partition.view()[0])
        raise CorruptData(f"{self._folder}: files vanish faster than reads can be planned")

    def _raise_if_still_live(self, lost: DataFile | None, files: list[DataFile]) -> None:
        if lost is not None and any(file.path == lost.path for file in files):
            raise CorruptData(
                f"{self._folder}/{lost.path} is part of the log and missing: "
                f"offsets {lost.base_offset}..{lost.end_offset - 1} cannot be read",
                file=lost.path,
                start=lost.base_offset,
                end=lost.end_offset,
            )
