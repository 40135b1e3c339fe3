"""The work of a task: the rows of a slice, straight from storage, as Arrow batches in the schema of the source.

The planner's files are read first. When one is gone (a merge or retention removed it, and its delay has passed) the
rest of the range is planned again on the newest version (I-9): rows come once and in order, whatever happens meanwhile.
Nothing here loops over records.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa

from sluice.log_store import reader
from sluice.log_store.clock import SystemClock
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import CorruptData, StorageError
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.store import Store
from sluice.log_store.values import OffsetRange
from sluice.streaming.spark.address import Address
from sluice.streaming.spark.batches import OutputBatches
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.partition_view import MAX_REPLANS, FollowedPartition, raise_if_live
from sluice.streaming.spark.planning import Slice
from sluice.streaming.spark.retrying import Retry
from sluice.streaming.spark.roots import open_to_read

READAHEAD = 4
"""Pieces that are fetched and decoded ahead, where each is a round trip."""


def read_slice(options: SourceOptions, piece: Slice) -> Iterator[pa.RecordBatch]:
    output = OutputBatches(options.columns, piece)
    rows = _SliceRows(options, piece, output.stored_columns).batches()
    return output.made_of(rows)


class _SliceRows:
    def __init__(self, options: SourceOptions, piece: Slice, columns: list[str]) -> None:
        self._store = _store(piece.root, _Storage(options.address, piece.root))
        self._piece = piece
        self._columns = columns
        self._judge = LossJudge(fail=options.fail_on_data_loss)
        self._retry = Retry(options.retries, options.retry_interval_ms)
        self._failures = 0
        self._replans = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Stored rows in order. Goes on behind the last row that was handed out, on whatever files hold the rest."""
        files: tuple[DataFile, ...] = self._piece.files
        position, end = self._piece.wanted.start, self._piece.wanted.end
        while position < end:
            try:
                for batch in self._scan(files, position, end):
                    if batch.num_rows:
                        yield batch
                        position = int(batch.column(0)[-1].as_py()) + 1
                        self._failures = self._replans = 0
                return
            except FileVanished as vanished:
                position, files = self._planned_again(position, end, vanished.file)
            except StorageError as error:
                self._pause(error)

    def _scan(self, files: tuple[DataFile, ...], start: int, end: int) -> Iterator[pa.RecordBatch]:
        chosen = reader.files_between(files, len(files), start, end)
        ahead = READAHEAD if self._store.durable_puts else 0
        return reader.scan(
            self._store, self._piece.ref.folder, chosen, start, end, columns=self._columns, readahead=ahead
        )

    def _planned_again(self, position: int, end: int, lost: DataFile) -> tuple[int, tuple[DataFile, ...]]:
        self._replans += 1
        if self._replans > MAX_REPLANS:
            raise CorruptData(f"{self._piece.ref.folder}: files vanish faster than reads can be planned")
        followed = FollowedPartition(self._store, self._piece.ref, SystemClock())
        view = self._retry.run(f"reading the log of {self._piece.ref.tp}", lambda: followed.look(afresh=True))
        view.check_reaches(end)
        raise_if_live(lost, view)
        left = self._judge.readable(self._piece.ref.tp, OffsetRange(position, end), view.log_start, view.end)
        return left.start, view.files(left)

    def _pause(self, error: StorageError) -> None:
        if self._failures >= self._retry.times:
            raise error
        self._retry.wait(self._retry.pause_s(self._failures))
        self._failures += 1


class _Storage:
    """The key of an open store: equal for the tasks of one query, so that a worker opens it once."""

    def __init__(self, address: Address, root: str) -> None:
        self.options = address.storage_options(root)
        self._key = tuple(sorted(self.options.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Storage) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=8)
def _store(root: str, storage: _Storage) -> Store:
    return open_to_read(root, storage.options)
