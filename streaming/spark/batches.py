"""Stored rows to rows of the source: columns are passed on as they are, constants are made once and cut to length."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sluice.log_store.records import STORED_SCHEMA
from sluice.streaming.spark.planning import Slice
from sluice.streaming.spark.schema import arrow_schema

FULL_ROWS = 8_192
FULL_BYTES = 1024 * 1024
"""Batches below both are put together: each one that goes to Spark costs a message and a set of vectors."""


class OutputBatches:
    def __init__(self, columns: tuple[str, ...], piece: Slice) -> None:
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._constants: dict[str, pa.Scalar] = {
            "topic": pa.scalar(piece.ref.topic, pa.string()),
            "partition": pa.scalar(piece.ref.partition, pa.int32()),
            "timestampType": pa.scalar(piece.timestamp_type, pa.int32()),
        }
        self._repeated: dict[str, pa.Array] = {}

    @property
    def stored_columns(self) -> list[str]:
        """What has to be read of a file: the offset always, because the reader checks it."""
        return [name for name in STORED_SCHEMA.names if name == "offset" or name in self._columns]

    def made_of(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        count = size = 0
        for batch in rows:
            waiting.append(batch)
            count += batch.num_rows
            size += batch.nbytes
            if count >= FULL_ROWS or size >= FULL_BYTES:
                yield self._made(waiting)
                waiting, count, size = [], 0, 0
        if waiting:
            yield self._made(waiting)

    def _made(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        arrays = [self._column(name, rows) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, rows: pa.RecordBatch) -> pa.Array:
        constant = self._constants.get(name)
        if constant is None:
            return rows.column(rows.schema.get_field_index(name))
        found = self._repeated.get(name)
        if found is None or len(found) < rows.num_rows:
            found = self._repeated[name] = pa.repeat(constant, rows.num_rows)
        return found.slice(0, rows.num_rows)
