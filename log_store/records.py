"""The shape of records in memory and on disk, and a few columnar helpers.

Between ingest and the log a batch is an Arrow record batch of `RECORD_SCHEMA`; on disk and towards readers an
offset column stands in front (`STORED_SCHEMA`). Timestamps are whole milliseconds held in microseconds, because
Delta knows only microseconds and Kafka only milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TIMESTAMP = pa.timestamp("us", tz="UTC")
MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The end of the year 9999: statistics of a Delta file are dates in text, and most engines end there."""
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

RECORD_SCHEMA = pa.schema(
    [
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
STORED_SCHEMA = pa.schema([pa.field("offset", pa.int64(), nullable=False), *RECORD_SCHEMA])
SMALL_BATCH = 1_000
"""Records below which copying a batch is cheaper than carrying it along as a chunk of its own."""

# The same schema in Spark's JSON, as `metaData.schemaString` wants it.
SPARK_SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "offset", "type": "long", "nullable": False, "metadata": {}},
        {"name": "timestamp", "type": "timestamp", "nullable": False, "metadata": {}},
        {"name": "key", "type": "binary", "nullable": True, "metadata": {}},
        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        {
            "name": "headers",
            "type": {
                "type": "array",
                "containsNull": True,
                "elementType": {
                    "type": "struct",
                    "fields": [
                        {"name": "key", "type": "string", "nullable": True, "metadata": {}},
                        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
                    ],
                },
            },
            "nullable": True,
            "metadata": {},
        },
    ],
}


def make_batch(records: Iterable[Mapping[str, Any]], *, default_ms: int) -> pa.RecordBatch:
    """A batch from plain dictionaries (`key`, `value`, `timestamp` in ms, `headers` as pairs): tools and tests."""
    rows = list(records)
    stamps = np.array([row.get("timestamp", default_ms) for row in rows], dtype=np.int64) * 1000
    headers = [
        None if row.get("headers") is None else [{"key": k, "value": v} for k, v in row["headers"]] for row in rows
    ]
    return pa.record_batch(
        [
            pa.array(stamps, type=pa.int64()).cast(TIMESTAMP),
            pa.array([row.get("key") for row in rows], type=pa.binary()),
            pa.array([row.get("value") for row in rows], type=pa.binary()),
            pa.array(headers, type=HEADERS),
        ],
        schema=RECORD_SCHEMA,
    )


def with_timestamp(batch: pa.RecordBatch, ms: int) -> pa.RecordBatch:
    """The same records, all stamped with one append time (LogAppendTime)."""
    stamps = pa.array(np.full(batch.num_rows, ms * 1000, dtype=np.int64)).cast(TIMESTAMP)
    return pa.record_batch([stamps, *batch.columns[1:]], schema=RECORD_SCHEMA)


def timestamp_bounds_ms(batch: pa.RecordBatch) -> tuple[int, int]:
    column = batch.column(batch.schema.get_field_index("timestamp"))
    if len(column) == 1:
        ms = int(column[0].value) // 1000
        return ms, ms
    micros = micros_of(column)
    return int(micros.min()) // 1000, int(micros.max()) // 1000


def micros_of(column: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    if isinstance(column, pa.ChunkedArray):
        values: np.ndarray[Any, np.dtype[np.int64]] = column.cast(pa.int64()).to_numpy()
        return values
    # Not by Arrow's kernels: each of their calls lets go of the interpreter, and to get it back takes longer than this.
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)


def stored_table(batches: Sequence[pa.RecordBatch], base_offset: int) -> pa.Table:
    """Consecutive batches with dense offsets from `base_offset`, as one table.

    Many small batches are copied together: whatever reads the table pays for each of its chunks.
    """
    rows = pa.Table.from_batches(batches, schema=RECORD_SCHEMA)
    if len(batches) > 1 and rows.num_rows < len(batches) * SMALL_BATCH:
        rows = rows.combine_chunks()
    offsets = pa.array(np.arange(base_offset, base_offset + rows.num_rows, dtype=np.int64))
    return pa.Table.from_arrays([offsets, *rows.columns], schema=STORED_SCHEMA)


def record_sizes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Bytes of key, value and headers of each record, uncompressed (R-12 and fetch limits count these)."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in ("key", "value"):
        column = batch.column(batch.schema.get_field_index(name))
        if column.null_count < len(column):
            sizes += _lengths(column)
    headers = batch.column(batch.schema.get_field_index("headers"))
    if headers.null_count < len(headers):
        sizes += _header_sizes(headers)
    return sizes


def _lengths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Of a binary column; null has none."""
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    lengths: np.ndarray[Any, np.dtype[np.int64]] = np.diff(ends).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return lengths


def _header_sizes(headers: pa.ListArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    flat, parents = headers.flatten(), pc.list_parent_indices(headers)
    lengths = np.zeros(len(flat), dtype=np.int64)
    for name in ("key", "value"):
        lengths += pc.fill_null(pc.binary_length(pc.struct_field(flat, name)), 0).to_numpy(zero_copy_only=False)
    return np.bincount(parents.to_numpy(zero_copy_only=False), weights=lengths, minlength=len(headers)).astype(np.int64)
