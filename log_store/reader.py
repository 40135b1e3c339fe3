"""Bounded, checked reads over the live files of a partition: used by the leader, by readers and by Spark executors.

The file list is the offset and time index: files are disjoint and sorted, so a position is found by bisection and
only the row groups that overlap the asked range are decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.log_store import parquet
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import CorruptData
from sluice.log_store.ranged_file import RangedFile
from sluice.log_store.records import micros_of, record_sizes
from sluice.log_store.store import Store, StoreNotFound

WHOLE_FILE_BYTES = 16 * 1024 * 1024
ONE_READ_BYTES = 1024 * 1024
BUNDLE_BYTES = 512 * 1024


class FileVanished(Exception):
    """A planned file is gone: plan the same offsets again on a newer snapshot (I-9)."""

    def __init__(self, file: DataFile) -> None:
        super().__init__(file.path)
        self.file = file


@dataclass(frozen=True, slots=True)
class Rows:
    """A bounded read: batches in offset order and where to go on."""

    batches: list[pa.RecordBatch]
    next_offset: int

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One unit of decoding: a small file, or one row group of a large one."""

    file: DataFile
    group: int | None


def files_between(files: Sequence[DataFile], count: int, start: int, end: int) -> list[DataFile]:
    """The files among the first `count` that may hold offsets `start <= o < end`."""
    first = bisect_right(files, start, hi=count, key=lambda file: file.end_offset)
    chosen = []
    for index in range(first, count):
        file = files[index]
        if file.base_offset >= end:
            break
        chosen.append(file)
    return chosen


def scan(
    store: Store,
    folder: str,
    files: Sequence[DataFile],
    start: int,
    end: int,
    *,
    columns: list[str] | None = None,
    readahead: int = 0,
) -> Iterator[pa.RecordBatch]:
    """All rows `start <= offset < end` of these files, in order. `readahead` pieces are decoded in parallel."""
    pieces = (piece for file in files for piece in _pieces(store, folder, file, start, end))
    if readahead <= 0:
        for piece in pieces:
            yield from _decode(store, folder, piece, start, end, columns)
        return
    with ThreadPoolExecutor(readahead, thread_name_prefix="sluice-scan") as pool:
        window: deque[Future[list[pa.RecordBatch]]] = deque()
        try:
            for bundle in _bundles(pieces):
                window.append(pool.submit(_decode_all, store, folder, bundle, start, end, columns))
                if len(window) > readahead:
                    yield from window.popleft().result()
            while window:
                yield from window.popleft().result()
        finally:
            for future in window:
                future.cancel()


def _pieces(store: Store, folder: str, file: DataFile, start: int, end: int) -> list[_Piece]:
    if file.size <= WHOLE_FILE_BYTES:
        return [_Piece(file, None)]
    with _open(store, folder, file) as source:
        bounds = parquet.group_offsets(parquet.open_file(source, _name(folder, file), file.footer_crc))
    return [_Piece(file, index) for index, (low, high) in enumerate(bounds) if low < end and high >= start]


def _bundles(pieces: Iterator[_Piece]) -> Iterator[list[_Piece]]:
    """Small pieces go to a thread together: handing each over would cost a good part of its decoding."""
    bundle: list[_Piece] = []
    size = 0
    for piece in pieces:
        bundle.append(piece)
        size += piece.file.size
        if size >= BUNDLE_BYTES:
            yield bundle
            bundle, size = [], 0
    if bundle:
        yield bundle


def _decode_all(
    store: Store, folder: str, pieces: list[_Piece], start: int, end: int, columns: list[str] | None
) -> list[pa.RecordBatch]:
    return [batch for piece in pieces for batch in _decode(store, folder, piece, start, end, columns)]


def _decode(
    store: Store, folder: str, piece: _Piece, start: int, end: int, columns: list[str] | None
) -> list[pa.RecordBatch]:
    file, name = piece.file, _name(folder, piece.file)
    with _open(store, folder, file) as source:
        at_once = piece.group is None and columns is None
        at_once = at_once and (start <= file.base_offset or file.size <= ONE_READ_BYTES)
        opened = parquet.open_file(_in_memory(source, name) if at_once else source, name, file.footer_crc)
        if opened.metadata.num_rows != file.records:
            raise CorruptData(f"{name} holds {opened.metadata.num_rows} rows, its log says {file.records}", file=name)
        covered = start <= file.base_offset and file.end_offset <= end
        groups = [piece.group] if piece.group is not None else _groups(opened, start, end, covered=covered)
        wanted = None if columns is None else ["offset", *(c for c in columns if c != "offset")]
        table = parquet.read_groups(opened, groups, name, wanted)
    _check_offsets(table, file, name, whole=len(groups) == opened.metadata.num_row_groups)
    batches: list[pa.RecordBatch] = (table if covered else _cut(table, start, end)).to_batches()
    return batches


def _groups(opened: pq.ParquetFile, start: int, end: int, *, covered: bool) -> list[int]:
    if covered:
        return list(range(opened.metadata.num_row_groups))
    bounds = parquet.group_offsets(opened)
    return [index for index, (low, high) in enumerate(bounds) if low < end and high >= start]


@contextmanager
def _open(store: Store, folder: str, file: DataFile) -> Iterator[pa.NativeFile]:
    """A file may be gone when it is opened, and on an object store while it is read."""
    path = f"{folder}/{file.path}"
    try:
        # Where each byte comes over a line, a large file is not fetched for one of its row groups.
        ranged = store.durable_puts and file.size > WHOLE_FILE_BYTES
        source = pa.PythonFile(RangedFile(store, path, file.size), mode="r") if ranged else store.open_input(path)
        with source:
            yield source
    except StoreNotFound as error:
        raise FileVanished(file) from error


def _in_memory(source: pa.NativeFile, name: str) -> pa.NativeFile:
    """One read where (nearly) everything is wanted, instead of one for the footer and one per column."""
    try:
        return pa.BufferReader(source.read_buffer())
    except OSError as error:
        raise CorruptData(f"{name} cannot be read: {error}", file=name) from error


def _name(folder: str, file: DataFile) -> str:
    return f"{folder}/{file.path} (offsets {file.base_offset}..{file.end_offset - 1})"


def _check_offsets(table: pa.Table, file: DataFile, name: str, *, whole: bool) -> None:
    """The offsets are the one column whose values are known beforehand: they catch a page read as another."""
    offsets = table.column("offset").to_numpy()
    if len(offsets) == 0:
        return
    inside = offsets[0] >= file.base_offset and offsets[-1] < file.end_offset
    complete = not whole or (offsets[0] == file.base_offset and offsets[-1] == file.end_offset - 1)
    if not inside or not complete or not bool(np.all(offsets[1:] > offsets[:-1])):
        raise CorruptData(f"{name} holds offsets {offsets[0]}..{offsets[-1]} out of place", file=name)


def _cut(table: pa.Table, start: int, end: int) -> pa.Table:
    offsets = table.column("offset").to_numpy()
    low, high = np.searchsorted(offsets, [start, end])
    return table if low == 0 and high == len(offsets) else table.slice(int(low), int(high - low))


def take(batches: Iterator[pa.RecordBatch], start: int, end: int, max_records: int, max_bytes: int) -> Rows:
    """Rows up to the limits; the first record is returned even when it is larger than `max_bytes`."""
    taken: list[pa.RecordBatch] = []
    records, size = 0, 0
    for batch in batches:
        sizes = np.cumsum(record_sizes(batch))
        count = _fitting(sizes, max_records - records, max_bytes - size, at_least=0 if taken else 1)
        if count:
            taken.append(batch.slice(0, count))
            records += count
            size += int(sizes[count - 1])
        if count < batch.num_rows or records >= max_records or size >= max_bytes:
            return Rows(taken, _after(taken, start))
    return Rows(taken, end)


def _fitting(sizes: np.ndarray[Any, np.dtype[np.int64]], records: int, size: int, at_least: int) -> int:
    """How many rows fit, by the running total of their sizes."""
    rows = len(sizes)
    by_bytes = int(np.searchsorted(sizes, size, side="right"))
    return max(min(by_bytes, records, rows), min(at_least, rows))


def _after(taken: list[pa.RecordBatch], start: int) -> int:
    return int(taken[-1].column(0)[-1].as_py()) + 1 if taken else start


def first_at_or_after(
    store: Store, folder: str, files: Sequence[DataFile], start: int, end: int, ms: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the lowest offset whose record is at `ms` or later."""
    for file in files:
        if file.max_ms < ms or file.end_offset <= start:
            continue
        for batch in scan(store, folder, [file], start, end, columns=["offset", "timestamp"]):
            micros = micros_of(batch.column(1))
            hits = np.flatnonzero(micros >= ms * 1000)
            if len(hits):
                return int(batch.column(0)[int(hits[0])].as_py()), int(micros[hits[0]]) // 1000
    return None


def largest_timestamp(
    store: Store, folder: str, files: Sequence[DataFile], start: int, end: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the largest timestamp, lowest offset on ties."""
    best: tuple[int, int] | None = None
    # By falling maximum: the first file that cannot improve on what was found ends the search.
    for file in sorted(files, key=lambda f: (-f.max_ms, f.base_offset)):
        if best is not None and file.max_ms < best[1]:
            break
        for batch in scan(store, folder, [file], start, end, columns=["offset", "timestamp"]):
            micros = micros_of(batch.column(1))
            if len(micros) == 0:
                continue
            index = int(np.argmax(micros))
            found = (int(batch.column(0)[index].as_py()), int(micros[index]) // 1000)
            if best is None or (found[1], -found[0]) > (best[1], -best[0]):
                best = found
    return best
