"""What is sent: the same orders of 100 bytes as produce bodies for the service and as lines for Kafka's tools."""

from __future__ import annotations

from pathlib import Path

from bench.data import batch
from bench.http_bodies import ARROW, BINARY, JSON, Body, arrow_body, binary_body, json_body


def large_bodies() -> list[Body]:
    return [
        Body("Arrow × 10,000", 10_000, 64, ARROW, [arrow_body(10_000, seed) for seed in range(4)]),
        Body("JSON × 1,000", 1_000, 128, JSON, [json_body(1_000, seed) for seed in range(20)]),
        Body("binary × 1,000", 1_000, 128, BINARY, [binary_body(1_000, seed) for seed in range(20)]),
    ]


def single_records() -> Body:
    return Body("single records", 1, 400, JSON, [json_body(1, seed) for seed in range(100)])


def payload_file(path: Path, records: int = 20_000) -> Path:
    """For producer-perf, which picks lines at random: cheaper for it than making random bytes."""
    path.write_bytes(b"\n".join(batch(records, 0).column("value").to_pylist()) + b"\n")
    return path
