"""Rows of one data file: opened, checked and decoded, row group by row group.

A run is what is opened once: a small file, or neighbouring row groups of a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.log_store import parquet
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import CorruptData
from sluice.log_store.ranged_file import RangedFile
from sluice.log_store.store import Store, StoreNotFound

RUN_BYTES = 4 * 1024 * 1024
"""Encoded bytes of one run."""
RANGED_BYTES = 16 * 1024 * 1024
"""Size from which on an object is not fetched whole for a part of it."""
ONE_READ_BYTES = 1024 * 1024


class FileVanished(Exception):
    """A planned file is gone: plan the same offsets again on a newer snapshot (I-9)."""

    def __init__(self, file: DataFile) -> None:
        super().__init__(file.path)
        self.file = file


class Run(NamedTuple):
    file: DataFile
    size: int
    """Encoded bytes, about."""
    footer: pq.FileMetaData | None = None
    """Of a large file: read and checked once for all of its runs."""
    groups: tuple[int, ...] = ()


def runs_of(store: Store, folder: str, file: DataFile, start: int, end: int) -> list[Run]:
    """What has to be decoded for the offsets `start <= o < end`."""
    if file.size <= RUN_BYTES:
        return [Run(file, file.size)]
    with _open(store, folder, file) as source:
        footer = parquet.open_file(source, _name(folder, file), file.footer_crc).metadata
    needed = _groups(footer, file, start, end)
    at_once = max(1, RUN_BYTES * footer.num_row_groups // file.size)
    cuts = range(0, len(needed), at_once)
    return [Run(file, RUN_BYTES, footer, tuple(needed[cut : cut + at_once])) for cut in cuts]


def rows_of(
    store: Store, folder: str, run: Run, start: int, end: int, columns: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """Rows `start <= offset < end` of a run, decoded as they are asked for."""
    file, name = run.file, _name(folder, run.file)
    wanted = None if columns is None else ["offset", *(c for c in columns if c != "offset")]
    with _open(store, folder, file) as source:
        covered = _covered(file, start, end)
        whole = wanted is None and (covered or file.size <= ONE_READ_BYTES)
        opened = _opened(source, run, name, whole=whole)
        if opened.metadata.num_rows != file.records:
            raise CorruptData(f"{name} holds {opened.metadata.num_rows} rows, its log says {file.records}", file=name)
        groups = run.groups or _groups(opened.metadata, file, start, end)
        # Over a line each read costs a round trip: the whole run comes with one.
        steps = [list(groups)] if _ranged(store, file) else [[group] for group in groups]
        for step in steps:
            before = file.base_offset - 1
            exact = step[0] == 0
            for batch in parquet.read_groups(opened, step, name, wanted):
                before = _last_offset(batch, file, name, before, exact=exact)
                exact = False
                kept = batch if covered else _cut(batch, start, end)
                if kept.num_rows:
                    yield kept
            if step[-1] == opened.metadata.num_row_groups - 1 and before != file.end_offset - 1:
                raise CorruptData(f"{name} ends with offset {before}", file=name)


def _opened(source: pa.NativeFile, run: Run, name: str, *, whole: bool) -> pq.ParquetFile:
    if run.footer is not None:
        return parquet.reopened(source, run.footer)
    return parquet.open_file(_in_memory(source, name) if whole else source, name, run.file.footer_crc)


def _covered(file: DataFile, start: int, end: int) -> bool:
    return start <= file.base_offset and file.end_offset <= end


def _groups(footer: pq.FileMetaData, file: DataFile, start: int, end: int) -> list[int]:
    if _covered(file, start, end):
        return list(range(footer.num_row_groups))
    bounds = parquet.group_offsets(footer)
    return [index for index, (low, high) in enumerate(bounds) if low < end and high >= start]


def _ranged(store: Store, file: DataFile) -> bool:
    """Where each byte comes over a line, a large file is not fetched for one of its row groups."""
    return store.durable_puts and file.size > RANGED_BYTES


@contextmanager
def _open(store: Store, folder: str, file: DataFile) -> Iterator[pa.NativeFile]:
    """A file may be gone when it is opened, and on an object store while it is read."""
    path = f"{folder}/{file.path}"
    try:
        ranged = _ranged(store, file)
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


def _last_offset(batch: pa.RecordBatch, file: DataFile, name: str, before: int, *, exact: bool) -> int:
    """The offsets are the one column whose values are known beforehand: they catch a page read as another. All must be
    above `before`; `exact`: the first is the next one."""
    offsets = batch.column("offset").to_numpy()
    if len(offsets) == 0:
        return before
    low = offsets[0] == before + 1 if exact else offsets[0] > before
    if not low or offsets[-1] >= file.end_offset or not bool(np.all(offsets[1:] > offsets[:-1])):
        raise CorruptData(f"{name} holds offsets {offsets[0]}..{offsets[-1]} out of place", file=name)
    return int(offsets[-1])


def _cut(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = batch.column("offset").to_numpy()
    low, high = np.searchsorted(offsets, [start, end])
    return batch if low == 0 and high == len(offsets) else batch.slice(int(low), int(high - low))
