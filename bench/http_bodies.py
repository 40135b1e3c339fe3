"""Produce requests of the benchmarks: the same records of 100 bytes as JSON, as base64 and as Arrow."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bench.data import batch

ARROW = "application/vnd.apache.arrow.stream"
BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Body:
    """One kind of produce request."""

    name: str
    records: int
    connections: int
    media: str
    bodies: Sequence[bytes]


def json_body(records: int, seed: int) -> bytes:
    return _records(b'{"value":' + value + b"}" for value in _values(records, seed))


def binary_body(records: int, seed: int) -> bytes:
    return _records(b'{"value":"' + base64.b64encode(value) + b'"}' for value in _values(records, seed))


def _records(each: Iterable[bytes]) -> bytes:
    return b'{"records":[' + b",".join(each) + b"]}"


def _values(records: int, seed: int) -> list[bytes]:
    values: list[bytes] = batch(records, seed).column("value").to_pylist()
    return values


def arrow_body(records: int, seed: int) -> bytes:
    rows = pa.record_batch({"value": batch(records, seed).column("value")})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
