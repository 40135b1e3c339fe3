"""Bodies of produce requests and of fetch answers."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, cast

import httpx
import msgspec
import pyarrow as pa

from sluice.api.client_values import Compression, Fetched, FetchedRecord, FetchedTable, Headers, Record
from sluice.streaming.http_errors import failure

ARROW = "application/vnd.apache.arrow.stream"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
GZIP_LEVEL = 1
"""A request is written once and read once: speed counts more than the last percent."""

_POSITIONS = ("Sluice-High-Watermark", "Sluice-Log-Start-Offset", "Sluice-Next-Offset")
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def binary_body(records: Iterable[Record]) -> bytes:
    return msgspec.json.encode({"records": [_entry(record) for record in records]})


def json_body(records: Iterable[Record]) -> bytes:
    """Key and value are JSON texts already, and are sent as they are."""
    return msgspec.json.encode({"records": [_entry(record, raw=True) for record in records]})


def _entry(record: Record, *, raw: bool = False) -> dict[str, Any]:
    """msgspec writes bytes as base64, and Raw as it is."""
    entry: dict[str, Any] = {"value": _payload(record.value, raw)}
    if record.key is not None:
        entry["key"] = _payload(record.key, raw)
    if record.partition is not None:
        entry["partition"] = record.partition
    if record.timestamp_ms is not None:
        entry["timestamp"] = record.timestamp_ms
    if record.headers:
        entry["headers"] = [{"name": name, "value": value} for name, value in record.headers]
    return entry


def _payload(data: bytes | None, raw: bool) -> bytes | msgspec.Raw | None:
    return msgspec.Raw(data) if raw and data is not None else data


def arrow_of(records: Sequence[Record]) -> pa.Table:
    columns: dict[str, pa.Array] = {"value": pa.array([record.value for record in records], pa.binary())}
    if any(record.key is not None for record in records):
        columns["key"] = pa.array([record.key for record in records], pa.binary())
    if any(record.partition is not None for record in records):
        columns["partition"] = pa.array([record.partition for record in records], pa.int32())
    if any(record.timestamp_ms is not None for record in records):
        columns["timestamp"] = pa.array([record.timestamp_ms for record in records], pa.int64())
    if any(record.headers for record in records):
        rows = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
        columns["headers"] = pa.array(rows, _HEADERS)
    return pa.table(columns)


def arrow_body(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def compressed(body: bytes, compression: Compression) -> tuple[bytes, dict[str, str]]:
    """The body, and the header that says how it is coded."""
    if compression == "none":
        return body, {}
    if compression == "gzip":
        return gzip.compress(body, GZIP_LEVEL, mtime=0), {"Content-Encoding": "gzip"}
    packed: bytes = pa.compress(body, codec="zstd", asbytes=True)
    return packed, {"Content-Encoding": "zstd"}


# --- answers -----------------------------------------------------------------------------------


class _Header(msgspec.Struct):
    name: str
    value: bytes | None = None


class _Row(msgspec.Struct):
    offset: int
    timestamp: int | str
    key: bytes | None = None
    value: bytes | None = None
    headers: list[_Header] | None = None


class _Answer(msgspec.Struct):
    high_watermark: int
    log_start_offset: int
    next_offset: int
    data: list[_Row]


_ANSWER = msgspec.json.Decoder(_Answer)


def fetched_json(topic: str, partition: int, response: httpx.Response) -> Fetched:
    """Of `format=binary`: keys, values and header values are base64."""
    try:
        answer = _ANSWER.decode(response.content)
    except msgspec.MsgspecError as error:
        raise failure("UNKNOWN_SERVER_ERROR", f"this is no answer to a fetch: {error}") from error
    return Fetched(
        records=[
            FetchedRecord(
                topic=topic,
                partition=partition,
                offset=row.offset,
                timestamp_ms=_milliseconds(row.timestamp),
                key=row.key,
                value=row.value,
                headers=[(header.name, header.value) for header in row.headers or ()],
            )
            for row in answer.data
        ],
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        next_offset=answer.next_offset,
    )


def fetched_table(response: httpx.Response) -> FetchedTable:
    try:
        with pa.ipc.open_stream(response.content) as stream:
            table = stream.read_all()
        high, start, following = (int(response.headers[name]) for name in _POSITIONS)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise failure("UNKNOWN_SERVER_ERROR", f"this is no answer to a fetch: {error}") from error
    return FetchedTable(table=table, high_watermark=high, log_start_offset=start, next_offset=following)


def fetched_rows(topic: str, partition: int, response: httpx.Response) -> Fetched:
    found = fetched_table(response)
    return Fetched(
        records=records_of(topic, partition, found.table),
        high_watermark=found.high_watermark,
        log_start_offset=found.log_start_offset,
        next_offset=found.next_offset,
    )


def records_of(topic: str, partition: int, table: pa.Table) -> list[FetchedRecord]:
    """The rows of a fetched table as objects. Python runs nothing for each of them, unless it has headers."""
    micros = table.column("timestamp").cast(pa.int64()).to_numpy()
    return list(
        map(
            FetchedRecord,
            repeat(topic),
            repeat(partition),
            table.column("offset").to_numpy().tolist(),
            (micros // 1000).tolist(),
            _bytes_of(table.column("key")),
            _bytes_of(table.column("value")),
            _headers_of(table.column("headers")),
        )
    )


def _bytes_of(column: pa.ChunkedArray) -> Iterable[bytes | None]:
    if column.null_count == len(column):
        return repeat(None)
    return cast("list[bytes | None]", column.to_numpy().tolist())


def _headers_of(column: pa.ChunkedArray) -> Iterable[Headers]:
    if column.null_count == len(column):
        return ([] for _ in range(len(column)))
    return [[(header["key"], header["value"]) for header in headers or ()] for headers in column.to_pylist()]


def _milliseconds(stamp: int | str) -> int:
    return stamp if isinstance(stamp, int) else int(datetime.fromisoformat(stamp).timestamp() * 1000)


def base64_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")
