"""Arrow IPC stream bodies (`application/vnd.apache.arrow.stream`) to columns, without a loop over records.

| column | types | null means |
|---|---|---|
| `value` | binary, string, their large and view forms, fixed-size binary, a dictionary of these, null | tombstone |
| `key`? | the same | null key |
| `partition`? | any integer | not asked for |
| `timestamp`? | any integer: milliseconds; a timestamp of any unit: cut to milliseconds, without a zone UTC | now |
| `headers`? | list of struct(`key` or `name`, `value`), both as above; a name must not be null | none |

Other columns are refused. The stream must have its end marker, so that a cut one is noticed. Nothing of a batch is
looked at before Arrow validated it, nothing is unfolded (compression, dictionaries, views) before its size is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa

from sluice.ingest.arrow_columns import Place, binary_column, header_column, partition_numbers, timestamp_ms
from sluice.ingest.ipc_guard import check_stream
from sluice.ingest.limits import DEFAULT_LIMITS, IngestLimits
from sluice.ingest.request import NOT_GIVEN, Decoded, Int32s, assemble, refuse_empty, timestamps_of
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge
from sluice.log_store.records import HEADERS, RECORD_SCHEMA

CONTENT_TYPE = "application/vnd.apache.arrow.stream"

_COLUMNS = ("value", "key", "partition", "timestamp", "headers")
_END = b"\xff\xff\xff\xff\0\0\0\0"
_MOST_WORK = 4
"""Bytes that validation may look at, in bodies: a dictionary counts again for every batch that uses it."""


def decode(body: bytes, *, now_ms: int, limits: IngestLimits = DEFAULT_LIMITS) -> Decoded:
    if not body.endswith(_END):
        raise InvalidRequest("body: an Arrow IPC stream must end with its end-of-stream marker", field="body")
    buffer = pa.py_buffer(body)
    check_stream(buffer, limits)
    try:
        with pa.ipc.open_stream(buffer, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            _check_schema(reader.schema)
            parts = [_decode_batch(batch, start, now_ms, limits) for start, batch in _batches(reader, limits)]
    # LookupError: a type that pyarrow has no class for, such as an interval of months.
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise InvalidRequest(f"body: is not a valid Arrow IPC stream: {str(error)[:200]}", field="body") from None
    refuse_empty(len(parts), "records")
    return parts[0] if len(parts) == 1 else _joined(parts)


def _check_schema(schema: pa.Schema) -> None:
    for name in islice(schema.names, len(_COLUMNS) + 1):
        if name not in _COLUMNS:
            raise InvalidRequest(
                f"column {name[:80]!r}: is unknown, there are {', '.join(_COLUMNS)}", field=f"column {name[:80]}"
            )
    if len(set(schema.names)) < len(schema.names):
        raise InvalidRequest("body: must not have two columns of one name", field="body")
    if "value" not in schema.names:
        raise InvalidRequest("column 'value': must be given", field="column value")


def _batches(reader: pa.RecordBatchReader, limits: IngestLimits) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Valid batches that have rows, each with the number of rows before it."""
    rows = work = 0
    for batch in reader:
        if rows + batch.num_rows > limits.max_arrow_records:
            raise RecordListTooLarge(
                f"records: must not be more than {limits.max_arrow_records}",
                field="records",
                limit=limits.max_arrow_records,
            )
        batch.validate()  # buffers are as long as the rows need; only then may offsets be read
        work += batch.nbytes
        if work > _MOST_WORK * limits.max_body_bytes:
            raise RecordListTooLarge("body: its dictionaries are too large for so many batches", field="body")
        batch.validate(full=True)
        if batch.num_rows:
            yield rows, batch
        rows += batch.num_rows


def _decode_batch(batch: pa.RecordBatch, start: int, now_ms: int, limits: IngestLimits) -> Decoded:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    rows = batch.num_rows

    def place(name: str) -> Place:
        return Place(name, start)

    given = columns.get("key")
    keys = pa.nulls(rows, pa.binary()) if given is None else binary_column(given, place("key"), limits.max_body_bytes)
    values = binary_column(columns["value"], place("value"), limits.max_body_bytes)
    given = columns.get("timestamp")
    ms = np.full(rows, now_ms, np.int64) if given is None else timestamp_ms(given, place("timestamp"), now_ms)
    given = columns.get("headers")
    headers = pa.nulls(rows, HEADERS) if given is None else header_column(given, place("headers"), limits)
    given = columns.get("partition")
    explicit = None if given is None else partition_numbers(given, place("partition"))
    return Decoded(assemble(timestamps_of(ms), keys, values, headers), explicit)


def _joined(parts: list[Decoded]) -> Decoded:
    table = pa.Table.from_batches([part.batch for part in parts], schema=RECORD_SCHEMA).combine_chunks()
    explicit = None
    if any(part.explicit_partitions is not None for part in parts):
        explicit = np.concatenate([_partitions(part) for part in parts])
    return Decoded(table.to_batches()[0], explicit)


def _partitions(part: Decoded) -> Int32s:
    given = part.explicit_partitions
    return np.full(part.count, NOT_GIVEN, np.int32) if given is None else given
