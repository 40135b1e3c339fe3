"""Columnar batches to Parquet bytes and back, with every check that keeps a flipped bit from passing (I-10).

Page checksums cover the pages, `footer_crc` covers the footer, `file_crc` the whole file; the last two travel in
the `add` action's tags. Readers verify pages and footer on every read; recovery, merges and verification use the
whole-file checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.log_store.errors import CorruptData
from sluice.log_store.records import STORED_SCHEMA, micros_of

ROW_GROUP_BYTES = 2 * 1024 * 1024
"""Arrow bytes of a row group: what a fetch of one record has to decode. Larger ones compress and scan no better."""
WRITE_BYTES = 8 * 1024 * 1024
"""Rows gathered for one write of many batches, as Arrow: a few row groups."""
DECODED_ROWS = 8_192
"""About so many rows are decoded at once."""
_TAIL = 8  # u32 footer length + the magic "PAR1"


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file in memory and all that its `add` action says about it."""

    data: pa.Buffer
    base_offset: int
    last_offset: int
    records: int
    min_ms: int
    max_ms: int
    file_crc: int
    footer_crc: int

    @property
    def size(self) -> int:
        return int(self.data.size)


_LEAVES = {
    "offset": ("offset",),
    "timestamp": ("timestamp",),
    "key": ("key",),
    "value": ("value",),
    "headers": ("headers.list.element.key", "headers.list.element.value"),
}


def writer_options(codec: str = "zstd", level: int | None = 1, empty: Collection[str] = ()) -> dict[str, Any]:
    """How every data file is written, as arguments of pyarrow's ParquetWriter.

    Columns in `empty` hold only nulls: starting a compressor for each of them is a good part of a small file's cost.
    """
    leaves = [leaf for column, below in _LEAVES.items() if column not in empty for leaf in below]
    return {
        "compression": dict.fromkeys(leaves, codec),
        "compression_level": None if level is None else dict.fromkeys(leaves, level),
        # Values and keys rarely repeat inside one small file; a dictionary that fails costs a second pass.
        "use_dictionary": False,
        "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        # Statistics only where readers prune.
        "write_statistics": ["offset", "timestamp"],
        "write_page_checksum": True,
        "store_schema": False,
    }


class FileEncoder:
    """Encodes rows that come in offset order, in pieces: memory holds the encoded file and what one call gave."""

    def __init__(self, codec: str = "zstd", level: int | None = 1, empty: Collection[str] = ()) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, STORED_SCHEMA, **writer_options(codec, level, empty))
        self._first: int | None = None
        self._last = -1
        self.records = 0
        self._min_us, self._max_us = 2**63 - 1, -(2**63)

    def write(self, table: pa.Table) -> None:
        """Append rows; each call ends a row group."""
        offsets = table.column("offset")
        stamps = table.column("timestamp")
        micros = micros_of(stamps.chunk(0) if stamps.num_chunks == 1 else stamps)
        if self._first is None:
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self.records += table.num_rows
        self._min_us = min(self._min_us, int(micros.min()))
        self._max_us = max(self._max_us, int(micros.max()))
        self._writer.write_table(table, row_group_size=rows_per_group(table))

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> EncodedFile:
        """Append rows as they come, several batches at a time, and finish."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            waiting.append(batch)
            size += batch.nbytes
            if size >= WRITE_BYTES:
                self.write(pa.Table.from_batches(waiting))
                waiting, size = [], 0
        if waiting:
            self.write(pa.Table.from_batches(waiting))
        return self.finish()

    def finish(self) -> EncodedFile:
        self._writer.close()
        data = self._sink.getvalue()
        return EncodedFile(
            data=data,
            base_offset=-1 if self._first is None else self._first,
            last_offset=self._last,
            records=self.records,
            min_ms=self._min_us // 1000,
            max_ms=self._max_us // 1000,
            file_crc=zlib.crc32(data),
            footer_crc=zlib.crc32(_footer(data)),
        )


def rows_per_group(table: pa.Table) -> int:
    """Row groups of one write are of one size: no splinter at its end."""
    groups = max(1, round(table.nbytes / ROW_GROUP_BYTES))
    return int(max(1, -(-table.num_rows // groups)))


def encode(table: pa.Table, codec: str = "zstd", level: int | None = 1) -> EncodedFile:
    encoder = FileEncoder(codec, level, empty_columns(table))
    encoder.write(table)
    return encoder.finish()


def empty_columns(table: pa.Table) -> list[str]:
    columns = zip(table.column_names, table.columns, strict=True)
    return [name for name, column in columns if column.null_count == len(column)]


def _footer(data: Any) -> memoryview:
    view = memoryview(data)
    length = int.from_bytes(view[-_TAIL:-4], "little")
    return view[max(0, len(view) - length - _TAIL) :]


def open_file(source: pa.NativeFile, name: str, footer_crc: int | None) -> pq.ParquetFile:
    """Open a data file, refusing one whose footer is not the one that was written."""
    try:
        if footer_crc is not None:
            _check_footer(source, name, footer_crc)
        file = pq.ParquetFile(source, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(f"{name} is not a readable Parquet file: {error}", file=name) from error
    if not file.schema_arrow.equals(STORED_SCHEMA):
        raise CorruptData(f"{name} has another schema than the table", file=name)
    return file


def reopened(source: pa.NativeFile, footer: pq.FileMetaData) -> pq.ParquetFile:
    """A file whose footer was checked before. What is read together is fetched together."""
    return pq.ParquetFile(source, metadata=footer, pre_buffer=True, page_checksum_verification=True)


def _check_footer(source: pa.NativeFile, name: str, expected: int) -> None:
    size = source.size()
    if size < _TAIL + 4:
        raise CorruptData(f"{name} is too short for a Parquet file ({size} bytes)", file=name)
    length = int.from_bytes(source.read_at(4, size - _TAIL), "little") + _TAIL
    if length > size or zlib.crc32(source.read_at(length, size - length)) != expected:
        raise CorruptData(f"the footer of {name} fails its checksum", file=name)


def read_groups(
    file: pq.ParquetFile, groups: list[int], name: str, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of these groups, decoded as they are asked for: pieces that are still in the processor's cache when they are
    passed on."""
    expected = sum(file.metadata.row_group(group).num_rows for group in groups)
    pieces = max(1, round(expected / DECODED_ROWS))
    rows, found = max(1, -(-expected // pieces)), 0
    try:
        # Who wants more than one thread gives each a piece of its own; Arrow's pool would only split columns.
        batches = file.iter_batches(rows, row_groups=groups, columns=columns, use_threads=False)
        while (batch := next(batches, None)) is not None:
            found += batch.num_rows
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(f"{name} fails a page checksum or cannot be decoded: {error}", file=name) from error
    if found != expected:
        raise CorruptData(f"{name} holds {found} rows where its footer says {expected}", file=name)


def group_offsets(footer: pq.FileMetaData) -> list[tuple[int, int]]:
    """(first, last) offset of every row group: the fine offset index inside a merged file."""
    bounds = []
    for index in range(footer.num_row_groups):
        statistics = footer.row_group(index).column(0).statistics
        bounds.append((statistics.min, statistics.max))
    return bounds
