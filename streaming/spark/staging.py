"""How a task of the sink leaves its rows behind: Arrow in parts of a few MiB, straight to storage or by the service.

Memory is bounded by a few parts. A part is named after its task and attempt, with a number of its own: a task that is
retried, or that runs twice, never touches what another attempt wrote.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import quote

import msgspec
import pyarrow as pa

from sluice.log_store import staging
from sluice.log_store.cluster_file import CLUSTER_FILE
from sluice.log_store.errors import StorageError
from sluice.log_store.staging import DIRECT_SUFFIX, HTTP_SUFFIX, Part
from sluice.log_store.store import Store, StoreNotFound
from sluice.streaming.http_client import Connection, RetryPolicy
from sluice.streaming.http_paths import CLUSTER, topic_path
from sluice.streaming.spark.option_values import wrong
from sluice.streaming.spark.retrying import Retry
from sluice.streaming.spark.roots import open_to_read
from sluice.streaming.spark.sink_options import SinkOptions

ARROW = "application/vnd.apache.arrow.stream"
MOST_ROWS = 500_000
"""Of one part; the service takes a million at once."""
TOPICS_AT_ONCE = 4
"""Parts' worth of rows that may wait for more of their topic, all topics together."""
STORE_RETRY = Retry(6, 200)


class Upload(Protocol):
    """Where the parts of one attempt go."""

    suffix: str
    compression: str | None

    def put(self, topic: str, name: str, body: pa.Buffer) -> None: ...

    def close(self) -> None: ...


class DirectUpload:
    """The task writes to the storage root itself, with its own credentials."""

    suffix = DIRECT_SUFFIX

    def __init__(self, options: SinkOptions, query: str, batch: int) -> None:
        root = options.address.path or ""
        self._store: Store = open_to_read(root, options.address.storage_options(root))
        self.compression = None if self._store.local_path is not None else "lz4"
        self._query, self._batch = query, batch
        try:
            STORE_RETRY.run("looking at the storage root", lambda: self._store.get(CLUSTER_FILE))
        except StoreNotFound:
            raise wrong("path", f"{root} holds no Sluice cluster") from None

    def put(self, topic: str, name: str, body: pa.Buffer) -> None:
        path = staging.part_path(self._query, self._batch, name)
        STORE_RETRY.run(f"writing {path}", lambda: self._store.replace(path, body))

    def close(self) -> None:
        pass


class HttpUpload:
    """Through the service: the task has no access to storage, or none was given."""

    suffix = HTTP_SUFFIX
    compression: str | None = "lz4"

    def __init__(self, options: SinkOptions, query: str, batch: int) -> None:
        self._connection = connect(options, options.upload_timeout_s)
        self._where = f"sinks/{quote(query, safe='')}/batches/{batch}/parts"

    def put(self, topic: str, name: str, body: pa.Buffer) -> None:
        path = f"{topic_path(topic)}/{self._where}/{name}"
        headers = {"Content-Type": ARROW}
        self._connection.call("PUT", path, repeatable=True, content=body.to_pybytes(), headers=headers)

    def close(self) -> None:
        self._connection.close()


def connect(options: SinkOptions, budget_s: float) -> Connection:
    address = options.address
    policy = RetryPolicy(budget_s=budget_s)
    return Connection(options.server, address.token, ca_file=address.ca_file, timeout_s=60.0, retry=policy)


def open_upload(options: SinkOptions, query: str, batch: int) -> Upload:
    if options.address.path is not None:
        return DirectUpload(options, query, batch)
    return HttpUpload(options, query, batch)


def stage(
    rows: Iterable[tuple[str, pa.RecordBatch]], upload: Upload, *, task: int, attempt: int, part_bytes: int
) -> list[Part]:
    """Upload all rows of one attempt; what it has left behind, in order."""
    named = f"{task:05d}-{attempt}-{uuid.uuid4().hex}"
    parts: list[Part] = []
    for topic, batches in gathered(rows, part_bytes):
        body = encoded(batches, upload.compression)
        name = f"{named}-{len(parts):05d}{upload.suffix}"
        upload.put(topic, name, body)
        count = sum(batch.num_rows for batch in batches)
        parts.append(Part(name, topic, count, body.size, zlib.crc32(body)))
    return parts


def encoded(batches: list[pa.RecordBatch], compression: str | None) -> pa.Buffer:
    """As one IPC stream of one batch, so that nobody has to join them later."""
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        out, whole[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    ) as writer:
        for batch in whole:
            writer.write_batch(batch)
    return out.getvalue()


def gathered(rows: Iterable[tuple[str, pa.RecordBatch]], part_bytes: int) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Rows of one topic together, about `part_bytes` each; never more but for a single row that is larger."""
    waiting: dict[str, _Waiting] = {}
    total = 0
    for topic, batch in rows:
        for piece in _halved(batch, part_bytes):
            size = piece.nbytes
            mine = waiting.setdefault(topic, _Waiting())
            if mine.batches and (mine.size + size > part_bytes or mine.rows + piece.num_rows > MOST_ROWS):
                total -= mine.size
                yield topic, mine.batches
                mine = waiting[topic] = _Waiting()
            mine.add(piece, size)
            total += size
        if total > TOPICS_AT_ONCE * part_bytes:
            yield from ((name, each.batches) for name, each in waiting.items())
            waiting, total = {}, 0
    yield from ((name, each.batches) for name, each in waiting.items())


class _Waiting:
    __slots__ = ("batches", "rows", "size")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size = self.rows = 0

    def add(self, batch: pa.RecordBatch, size: int) -> None:
        self.batches.append(batch)
        self.size += size
        self.rows += batch.num_rows


def _halved(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Slices that fit; nothing of a batch without rows."""
    if batch.num_rows == 0:
        return
    if batch.num_rows == 1 or (batch.nbytes <= most_bytes and batch.num_rows <= MOST_ROWS):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half), most_bytes)
    yield from _halved(batch.slice(half), most_bytes)


# --- the driver's side ---------------------------------------------------------------------------


def commit(options: SinkOptions, query: str, batch: int, parts: list[Part]) -> int:
    """Have the service append the parts, once, however often this is called; how many records it appended."""
    connection = connect(options, options.commit_timeout_s)
    body = {"parts": [msgspec.structs.asdict(part) for part in parts]}
    try:
        answer = connection.json("POST", _batch_path(query, batch), repeatable=True, body=body)
    finally:
        connection.close()
    if not isinstance(answer, dict) or not isinstance(answer.get("records"), int):
        raise StorageError(f"{options.server} did not answer a commit as Sluice does")
    return int(answer["records"])


def drop(options: SinkOptions, query: str, batch: int) -> None:
    """Delete what a failed batch left. What was committed, or may have been, is kept by the service."""
    connection = connect(options, min(10.0, options.commit_timeout_s))
    try:
        connection.call("DELETE", _batch_path(query, batch), repeatable=True)
    finally:
        connection.close()


def _batch_path(query: str, batch: int) -> str:
    return f"{CLUSTER}/sinks/{quote(query, safe='')}/batches/{batch}"
