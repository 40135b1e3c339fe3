"""Request bodies for tests of ingest: builders, a slow and obvious reference, and mutations."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sluice.log_store.records import make_batch

NOW_MS = 1_750_000_000_000
HEADER_LIST = pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))


def v2(*records: bytes) -> bytes:
    return b'{"records":[' + b",".join(records) + b"]}"


def entries(*records: bytes) -> bytes:
    return b'{"entries":[' + b",".join(records) + b"]}"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def ipc(table: pa.Table, *, compression: str | None = None, rows: int | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """As `make_batch` takes them: timestamps in ms, headers as pairs."""
    rows = batch.to_pylist()
    for row, micros in zip(rows, batch.column("timestamp").cast(pa.int64()).to_pylist(), strict=True):
        row["timestamp"] = micros // 1000
        row["headers"] = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
    return rows


def same(batch: pa.RecordBatch, rows: Sequence[dict[str, Any]]) -> bool:
    batch.validate(full=True)
    return bool(batch.equals(make_batch(rows, default_ms=NOW_MS)))


_TOKENS = (
    b'{"records":[', b"]", b"[", b"{", b"}", b'"', b"\\", b"\\u", b"\\ud800", b"null", b"NaN", b"-1", b"1e999", b"true",
    b"9" * 30, b",", b":", b"\x00", b"\xff", b"\xed\xa0\x80", b"[" * 200, b'{"a":' * 70, b"=", b"QQ==", b'"value":',
    b'"timestamp":', b'"partition":', b'"headers":', b"\xff\xff\xff\xff", b"\x7f", b"\x80" * 8, b"\x00" * 16,
)  # fmt: skip


def mutations(corpus: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Bodies that are almost right: bytes changed, cut, doubled, moved, and pieces of other bodies put in."""
    rng = random.Random(seed)
    for _ in range(count):
        body = bytearray(rng.choice(corpus))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            _mutate(body, corpus, rng)
        yield bytes(body)


def _mutate(body: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(body) + 1)
    span = rng.choice((1, 2, 4, 8, rng.randrange(len(body) + 1)))
    kind = rng.randrange(7)
    if kind == 0 and at < len(body):
        body[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(body):
        body[at] = rng.randrange(256)
    elif kind == 2:
        del body[at:]
    elif kind == 3:
        del body[at : at + span]
    elif kind == 4:
        body[at:at] = rng.choice(_TOKENS)
    elif kind == 5:
        body[at:at] = body[at : at + span]
    else:
        other = rng.choice(corpus)
        start = rng.randrange(len(other))
        body[at : at + span] = other[start : start + span]
