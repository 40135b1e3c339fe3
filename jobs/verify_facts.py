"""What a data file really holds, measured by reading all of it: in this process or on a Spark executor.

Whole columns at a time: no record becomes a Python object.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.log_store.records import MAX_TIMESTAMP_MS, STORED_SCHEMA
from sluice.log_store.store import Store, StoreNotFound

CHUNK = 4 * 1024 * 1024
_TAIL = 8
_WRAP = 2**64


@dataclass(frozen=True, slots=True)
class RowSums:
    """An order-independent checksum of rows that any SQL engine can compute too; sums are modulo 2^64."""

    rows: int = 0
    offsets: int = 0
    micros: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0
    null_headers: int = 0

    def __add__(self, other: RowSums) -> RowSums:
        return RowSums(
            rows=self.rows + other.rows,
            offsets=(self.offsets + other.offsets) % _WRAP,
            micros=(self.micros + other.micros) % _WRAP,
            key_bytes=self.key_bytes + other.key_bytes,
            value_bytes=self.value_bytes + other.value_bytes,
            null_keys=self.null_keys + other.null_keys,
            null_values=self.null_values + other.null_values,
            null_headers=self.null_headers + other.null_headers,
        )


@dataclass(frozen=True, slots=True)
class FileFacts:
    path: str
    missing: bool = False
    size: int = -1
    file_crc: int = 0
    footer_crc: int = 0
    damage: str = ""
    """Why it could not be read to its end."""
    sums: RowSums = RowSums()
    low_offset: int = -1
    high_offset: int = -1
    low_us: int = -1
    high_us: int = -1
    null_offsets: int = 0
    null_timestamps: int = 0
    disorder: int | None = None
    """The first offset that does not come after the one before it."""
    bad_times: int = 0
    """Timestamps that are no whole milliseconds, or outside 1970 to 9999."""


def file_facts(store: Store, folder: str, path: str) -> FileFacts:
    """Read one file completely. Only storage that fails raises; what is wrong with the file is an answer."""
    try:
        with store.open_input(f"{folder}/{path}") as source:
            size = int(source.size())
            file_crc = _crc(source)
            if size < _TAIL + 4:
                return FileFacts(path, size=size, file_crc=file_crc, damage=f"{size} bytes are no Parquet file")
            footer_crc = _footer_crc(source, size)
            return _rows(source, path, size, file_crc, footer_crc)
    except StoreNotFound:
        return FileFacts(path, missing=True)


def _crc(source: pa.NativeFile) -> int:
    crc = 0
    source.seek(0)
    while piece := source.read_buffer(CHUNK):
        if piece.size == 0:
            break
        crc = zlib.crc32(piece, crc)
    return crc


def _footer_crc(source: pa.NativeFile, size: int) -> int:
    length = int.from_bytes(source.read_at(4, size - _TAIL), "little") + _TAIL
    return zlib.crc32(source.read_at(length, size - length)) if length <= size else -1


def _rows(source: pa.NativeFile, path: str, size: int, file_crc: int, footer_crc: int) -> FileFacts:
    measured = _Measured()
    damage = ""
    try:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        if file.schema_arrow.equals(STORED_SCHEMA):
            for batch in file.iter_batches(use_threads=False):
                measured.take(batch)
        else:
            damage = "it has another schema than the table"
    except (pa.ArrowException, OSError, ValueError) as error:
        damage = f"it cannot be read: {' '.join(str(error).split())}"
    return FileFacts(path, size=size, file_crc=file_crc, footer_crc=footer_crc, damage=damage, **measured.facts())


class _Measured:
    """Grows batch by batch."""

    def __init__(self) -> None:
        self.sums = RowSums()
        self._low: list[int] = []
        self._high: list[int] = []
        self._low_us: list[int] = []
        self._high_us: list[int] = []
        self._nulls = [0, 0]
        self._previous = -1
        self._disorder: int | None = None
        self._bad_times = 0

    def take(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        offsets, stamps = batch.column("offset"), batch.column("timestamp")
        self._nulls[0] += offsets.null_count
        self._nulls[1] += stamps.null_count
        self.sums += row_sums(batch)
        numbers = offsets.drop_null().to_numpy()
        if len(numbers):
            self._order(numbers)
            self._low.append(int(numbers.min()))
            self._high.append(int(numbers.max()))
        micros = stamps.drop_null().cast(pa.int64()).to_numpy()
        if len(micros):
            self._low_us.append(int(micros.min()))
            self._high_us.append(int(micros.max()))
            odd = (micros % 1000 != 0) | (micros < 0) | (micros > MAX_TIMESTAMP_MS * 1000 + 999)
            self._bad_times += int(np.count_nonzero(odd))

    def _order(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        before = np.concatenate(([self._previous], numbers[:-1]))
        wrong = np.flatnonzero(numbers <= before)
        if self._disorder is None and len(wrong):
            self._disorder = int(numbers[wrong[0]])
        self._previous = int(numbers[-1])

    def facts(self) -> dict[str, Any]:
        return {
            "sums": self.sums,
            "low_offset": min(self._low, default=-1),
            "high_offset": max(self._high, default=-1),
            "low_us": min(self._low_us, default=-1),
            "high_us": max(self._high_us, default=-1),
            "null_offsets": self._nulls[0],
            "null_timestamps": self._nulls[1],
            "disorder": self._disorder,
            "bad_times": self._bad_times,
        }


def row_sums(batch: pa.RecordBatch) -> RowSums:
    key, value, headers = (batch.column(name) for name in ("key", "value", "headers"))
    return RowSums(
        rows=batch.num_rows,
        offsets=_sum(batch.column("offset")),
        micros=_sum(batch.column("timestamp").cast(pa.int64())),
        key_bytes=_bytes(key),
        value_bytes=_bytes(value),
        null_keys=key.null_count,
        null_values=value.null_count,
        null_headers=headers.null_count,
    )


def _sum(column: pa.Array) -> int:
    """Modulo 2^64: numpy's sums wrap around, Arrow's would too but answers null for no rows."""
    return int(column.drop_null().to_numpy().astype(np.uint64).sum()) % _WRAP


def _bytes(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
