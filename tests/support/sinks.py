"""Parts and commits of a sink without Spark: what tasks and driver do, step by step."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import httpx
import msgspec
import pyarrow as pa

from sluice.log_store import staging
from sluice.log_store.staging import Part
from sluice.log_store.store import Store
from sluice.streaming.spark.staging import ARROW, encoded

V3 = "/v3/clusters/-"


def rows_of(values: Iterable[str | None], keys: Iterable[str | None] | None = None, **columns: Any) -> pa.RecordBatch:
    found: dict[str, Any] = {"value": pa.array(list(values), pa.string())}
    if keys is not None:
        found["key"] = pa.array(list(keys), pa.string())
    return pa.RecordBatch.from_pydict(found | columns)


def part_of(name: str, topic: str, rows: pa.RecordBatch, body: pa.Buffer) -> Part:
    return Part(name, topic, rows.num_rows, body.size, zlib.crc32(body))


def staged(store: Store, query: str, batch: int, topic: str, rows: pa.RecordBatch, name: str) -> Part:
    """A part that a task has written to storage itself."""
    body = encoded([rows], None)
    full = f"{name}.direct.arrows"
    store.replace(staging.part_path(query, batch, full), body)
    return part_of(full, topic, rows, body)


def uploaded(http: httpx.Client, query: str, batch: int, topic: str, rows: pa.RecordBatch, name: str) -> Part:
    """A part that went through the service."""
    body = encoded([rows], "lz4")
    full = f"{name}.http.arrows"
    path = f"{V3}/topics/{topic}/sinks/{query}/batches/{batch}/parts/{full}"
    answer = http.put(path, content=body.to_pybytes(), headers={"Content-Type": ARROW})
    assert answer.status_code == 200, answer.text
    return part_of(full, topic, rows, body)


def commit(http: httpx.Client, query: str, batch: int, parts: Iterable[Part]) -> httpx.Response:
    return http.post(f"{V3}/sinks/{query}/batches/{batch}", json={"parts": [msgspec.structs.asdict(p) for p in parts]})


def renamed(part: Part, **changes: Any) -> Part:
    return msgspec.structs.replace(part, **changes)
