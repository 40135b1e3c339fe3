"""Bounded, checked reads over the live files of a partition: used by the leader, by readers and by Spark executors.

The file list is the offset and time index: files are disjoint and sorted, so a position is found by bisection and
only the row groups that overlap the asked range are decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.log_store.delta_log import DataFile
from sluice.log_store.file_rows import Run, rows_of, runs_of
from sluice.log_store.records import micros_of, record_sizes
from sluice.log_store.store import Store

BUNDLE_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Rows:
    """A bounded read: batches in offset order and where to go on."""

    batches: list[pa.RecordBatch]
    next_offset: int

    @property
    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


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
    """All rows `start <= offset < end` of these files, in order.

    `readahead` runs of row groups are decoded in parallel; with none, a row group when its first row is asked for.
    """
    runs = (run for file in files for run in runs_of(store, folder, file, start, end))
    if readahead <= 0:
        for run in runs:
            yield from rows_of(store, folder, run, start, end, columns)
        return
    with ThreadPoolExecutor(readahead, thread_name_prefix="sluice-scan") as pool:
        window: deque[Future[list[pa.RecordBatch]]] = deque()
        try:
            for bundle in _bundles(runs):
                window.append(pool.submit(_decode_all, store, folder, bundle, start, end, columns))
                if len(window) > readahead:
                    yield from window.popleft().result()
            while window:
                yield from window.popleft().result()
        finally:
            for future in window:
                future.cancel()


def _bundles(runs: Iterator[Run]) -> Iterator[list[Run]]:
    """Small files go to a thread together: handing each over would cost a good part of its decoding."""
    bundle: list[Run] = []
    size = 0
    for run in runs:
        bundle.append(run)
        size += run.size
        if size >= BUNDLE_BYTES:
            yield bundle
            bundle, size = [], 0
    if bundle:
        yield bundle


def _decode_all(
    store: Store, folder: str, runs: list[Run], start: int, end: int, columns: list[str] | None
) -> list[pa.RecordBatch]:
    return [batch for run in runs for batch in rows_of(store, folder, run, start, end, columns)]


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
        if count < batch.num_rows or records >= max_records or size > max_bytes:  # an empty record fits even then
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
