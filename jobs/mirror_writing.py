"""Rows of a micro-batch become data files of the copy, written by executors. Whole columns, no record in Python."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sluice.jobs.cluster import StoreSpec
from sluice.jobs.data_files import write_data_file
from sluice.log_store.delta_log import DataFile
from sluice.log_store.records import STORED_SCHEMA
from sluice.log_store.store import Store

FILE_BYTES = 64 * 1024 * 1024
"""Arrow bytes of one file: what a task holds of a partition. Merges make larger ones."""
RESULT = "topic string, partition int, file binary"


class CopyTarget(NamedTuple):
    """Where the rows of one partition go."""

    folder: str
    continues_at: int
    rolls: tuple[int, ...]
    """No file crosses them (R-10)."""
    codec: tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class BatchWriter:
    """Sent to executors: takes rows sorted by topic, partition and offset, answers the files it wrote."""

    spec: StoreSpec
    epoch: int
    now_ms: int
    targets: Mapping[tuple[str, int], CopyTarget]
    file_bytes: int = FILE_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = self.spec.open()
        open_file: _OpenFile | None = None
        for batch in batches:
            for where, rows in _partitions(batch):
                target = self.targets.get(where)
                if target is None:
                    continue  # a partition that the source has gained: the next query copies it from its beginning
                for piece in cut(rows, target.continues_at, target.rolls):
                    begins = int(piece.column("offset")[0].as_py())
                    if open_file is not None and not open_file.takes(where, begins, self.file_bytes):
                        yield open_file.written(store, self)
                        open_file = None
                    if open_file is None:
                        open_file = _OpenFile(where, target, segment_of(target.rolls, begins))
                    open_file.add(piece)
        if open_file is not None:
            yield open_file.written(store, self)


@dataclass(slots=True)
class _OpenFile:
    where: tuple[str, int]
    target: CopyTarget
    segment: int
    pieces: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0

    def takes(self, where: tuple[str, int], offset: int, limit: int) -> bool:
        same = where == self.where and segment_of(self.target.rolls, offset) == self.segment
        return same and self.size < limit

    def add(self, piece: pa.RecordBatch) -> None:
        self.pieces.append(piece)
        self.size += piece.nbytes

    def written(self, store: Store, writer: BatchWriter) -> pa.RecordBatch:
        file = write_data_file(
            store, self.target.folder, self.pieces, epoch=writer.epoch, codec=self.target.codec, now_ms=writer.now_ms
        )
        topic, partition = self.where
        return pa.record_batch(
            [pa.array([topic]), pa.array([partition], pa.int32()), pa.array([pickle.dumps(file)], pa.binary())],
            names=["topic", "partition", "file"],
        )


def read_result(data: bytes) -> DataFile:
    file: DataFile = pickle.loads(data)  # noqa: S301 - written by our own executor a moment ago
    return file


def segment_of(rolls: tuple[int, ...], offset: int) -> int:
    return int(np.searchsorted(np.array(rolls, dtype=np.int64), offset, side="right"))


def cut(rows: pa.RecordBatch, continues_at: int, rolls: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    """Rows that the copy does not hold yet, in pieces that cross no segment boundary."""
    offsets = rows.column("offset").to_numpy()
    bounds = [continues_at, *(roll for roll in rolls if roll > continues_at)]
    cuts = [int(at) for at in np.searchsorted(offsets, bounds)]
    for low, high in zip(cuts, [*cuts[1:], rows.num_rows], strict=True):
        if high > low:
            yield rows.slice(low, high - low)


def _partitions(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Runs of rows of one partition, as rows of a log."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode()
    numbers = topics.indices.to_numpy().astype(np.int64) << 32 | batch.column("partition").to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    stored = pa.Table.from_batches([batch.select(STORED_SCHEMA.names)]).cast(STORED_SCHEMA).combine_chunks()
    rows = stored.to_batches()[0]
    for low, high in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        where = (batch.column("topic")[low].as_py(), batch.column("partition")[low].as_py())
        yield where, rows.slice(low, high - low)
