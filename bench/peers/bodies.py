"""What is sent: the same orders of 100 bytes as produce bodies for the service and as lines for Kafka's tools."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.data import batch

ARROW = "application/vnd.apache.arrow.stream"
BINARY = "application/vnd.kafka.binary.v2+json"


@dataclass(frozen=True, slots=True)
class Body:
    """One kind of produce request."""

    name: str
    records: int
    connections: int
    media: str
    bodies: Sequence[bytes]


def large_bodies() -> list[Body]:
    return [
        Body("Arrow × 10,000", 10_000, 64, ARROW, [arrow(10_000, seed) for seed in range(4)]),
        Body("JSON × 1,000", 1_000, 128, "application/json", [_json(1_000, seed) for seed in range(20)]),
        Body("binary × 1,000", 1_000, 128, BINARY, [_binary(1_000, seed) for seed in range(20)]),
    ]


def single_records() -> Body:
    return Body("single records", 1, 400, "application/json", [_json(1, seed) for seed in range(100)])


def _values(records: int, seed: int) -> list[bytes]:
    values: list[bytes] = batch(records, seed).column("value").to_pylist()
    return values


def _json(records: int, seed: int) -> bytes:
    return b'{"records":[' + b",".join(b'{"value":' + value + b"}" for value in _values(records, seed)) + b"]}"


def _binary(records: int, seed: int) -> bytes:
    encoded = (base64.b64encode(value) for value in _values(records, seed))
    return b'{"records":[' + b",".join(b'{"value":"' + value + b'"}' for value in encoded) + b"]}"


def arrow(records: int, seed: int) -> bytes:
    rows = pa.record_batch({"value": batch(records, seed).column("value")})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def payload_file(path: Path, records: int = 20_000) -> Path:
    """For producer-perf, which picks lines at random: cheaper for it than making random bytes."""
    path.write_bytes(b"\n".join(_values(records, 0)) + b"\n")
    return path
