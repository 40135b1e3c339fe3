"""Bodies as large as they may be, or that would become much larger, for a service with a small limit."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sluice.ingest.arrow_body import CONTENT_TYPE as ARROW
from tests.support.bodies import ipc

JSON = "application/json"
V2, BATCH, STREAM = "/topics/t", "/v3/clusters/-/topics/t/records:batch", "/v3/clusters/-/topics/t/records"
TOPICS = "/v3/clusters/-/topics"


class Large(NamedTuple):
    path: str
    media: str
    make: Callable[[int], bytes]
    encoding: str | None = None


def _filled(head: bytes, unit: bytes, tail: bytes) -> Callable[[int], bytes]:
    def make(limit: int) -> bytes:
        return head + unit * ((limit - len(head) - len(tail)) // len(unit) - 1) + unit.rstrip(b",") + tail

    return make


def _folded(limit: int) -> bytes:
    long = pa.array([b"x" * (limit // 4)])
    return ipc(pa.table({"value": pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int8)), long)}))


def _views(limit: int) -> bytes:
    long = b"x" * (limit // 4)
    rows = np.array([[len(long), 0x78787878, 0, 0]] * 100_000, np.int32)
    column = pa.Array.from_buffers(pa.binary_view(), len(rows), [None, pa.py_buffer(rows), pa.py_buffer(long)])
    return ipc(pa.table({"value": column}))


def _zstd(size: int) -> bytes:
    packed: bytes = pa.compress(bytes(size), codec="zstd", asbytes=True)
    return packed


LARGE: dict[str, Large] = {
    "gzip": Large(V2, JSON, lambda limit: gzip.compress(bytes(1 << 20)) * 1024, "gzip"),
    "zstd": Large(V2, JSON, lambda limit: _zstd(1 << 28), "zstd"),
    "zstd of a batch": Large(BATCH, JSON, lambda limit: _zstd(1 << 28), "zstd"),
    "gzip for arrow": Large(V2, ARROW, lambda limit: gzip.compress(bytes(1 << 20)) * 512, "gzip"),
    "tiny records": Large(V2, JSON, _filled(b'{"records":[', b"{},", b"]}")),
    "records with braces": Large(V2, JSON, _filled(b'{"records":[', b'{"value":{}},', b"]}")),
    "one wide value": Large(V2, JSON, _filled(b'{"records":[{"value":[', b"[],", b"]}]}")),
    "one long string": Large(V2, JSON, _filled(b'{"records":[{"value":"', b"x", b'"}]}')),
    "open brackets": Large(V2, JSON, lambda limit: b'{"records":[{"value":' + b"[" * (limit - 100)),
    "tiny headers": Large(V2, JSON, _filled(b'{"records":[{"headers":[', b'{"name":""},', b"]}]}")),
    "long number": Large(V2, JSON, _filled(b'{"records":[{"timestamp":', b"9", b"}]}")),
    "tiny entries": Large(BATCH, JSON, _filled(b'{"entries":[', b"{},", b"]}")),
    "numbers for entries": Large(BATCH, JSON, _filled(b'{"entries":[', b"0,", b"]}")),
    "endless object": Large(STREAM, JSON, _filled(b'{"a":"', b"x", b"")),
    "many objects": Large(STREAM, JSON, _filled(b"", b"{}", b"")),
    "arrow dictionary": Large(V2, ARROW, _folded),
    "arrow views": Large(V2, ARROW, _views),
    "arrow zstd": Large(V2, ARROW, lambda limit: ipc(pa.table({"value": [bytes(1 << 27)]}), compression="zstd")),
    "arrow nulls": Large(V2, ARROW, lambda limit: ipc(pa.table({"value": pa.nulls(100_000_000)}))),
    "a wide topic": Large(TOPICS, JSON, _filled(b'{"topic_name":"t","configs":[', b"[],", b"]}")),
    "a deep topic": Large(TOPICS, JSON, lambda limit: b"[" * (limit - 100)),
}
