"""One batch of a Spark sink, from its staged parts to the log: all of its rows, once.

Step, and what a crash after it leaves for the repeat of the commit:

1. every part is read, checked as a produce request is, and placed    nothing; a refused batch ends here
2. the manifest is pinned: parts, partition counts, time              the repeat goes on with these, not with its own
3. each part is split over its topic's partitions and appended,       partitions that hold a piece skip it: its entry
   piece by piece, with (query, batch, piece) in the same commit      came with its rows
4. the batch is marked as done, its parts are deleted                 a repeat is answered and appends nothing

The service places the rows, not the tasks of the job: only here are the topic's rules, hooks and partitions known, and
what is staged is the same for a repeat whatever has happened to the topic since. Memory is bounded by a few parts.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sluice.ingest import arrow_body, partitioner
from sluice.ingest.hooks import HookLoader
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import Decoded, Int32s
from sluice.ingest.validate import validate
from sluice.log_store import staging, steps
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import (
    CorruptData,
    InvalidRequest,
    InvalidTopic,
    NotLeader,
    Overloaded,
    RecordListTooLarge,
    RequestTimedOut,
    SluiceError,
)
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import AppendResult
from sluice.log_store.staging import Manifest, Part, PinnedTopic
from sluice.log_store.store import StoreNotFound
from sluice.log_store.values import SinkStamp

IN_FLIGHT_BYTES = 64 << 20
"""Rows that were handed over and are not committed yet."""
KEPT_BYTES = 32 << 20
"""Parts of a batch up to which they are kept in memory from the check to the append, rather than read twice."""
FULL_WAIT_S, FULL_LOOK_S = 30.0, 0.05
COMMIT_WAIT_S = 120.0


@dataclass(slots=True)
class Appended:
    """What a commit did. Nothing at all if the batch was in the log already."""

    records: Counter[str] = field(default_factory=Counter)
    """By topic; without those that an earlier try had appended."""
    size: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.records.total()


class SinkBatch:
    """The work of one commit, on a thread that may wait. `stopping` ends it between two pieces."""

    def __init__(
        self,
        log: LogStore,
        hooks: HookLoader,
        limits: IngestLimits,
        query: str,
        batch: int,
        stopping: threading.Event | None = None,
    ) -> None:
        self._log = log
        self._store = log.runtime.store
        self._hooks = hooks
        self._limits = limits
        self._query, self._batch = query, batch
        self._folder = staging.batch_folder(query, batch)
        self._stopping = stopping or threading.Event()
        self._kept: dict[str, Decoded] = {}
        self._waiting: deque[tuple[int, Future[AppendResult]]] = deque()
        self._in_flight = 0
        self._pinned_before = False

    def commit(self, parts: Sequence[Part]) -> Appended:
        done = staging.last_done(self._store, self._query)
        if done is not None and self._batch <= done:
            self._store.delete_folder(self._folder)  # what the repeat has staged
            return Appended()
        manifest = staging.read_manifest(self._store, self._query, self._batch)
        self._pinned_before = manifest is not None
        if manifest is None:
            if not parts:
                return Appended()
            checked = self._checked(parts)
            self._log.runtime.leadership.confirm(0)
            manifest = staging.pin(self._store, checked)
            steps.reached("sink-pinned")
        appended = self._append(manifest)
        self._log.runtime.leadership.confirm(0)
        staging.mark_done(self._store, self._query, self._batch)
        steps.reached("sink-done")
        return appended

    # --- 1: everything is checked before anything is appended ----------------------------------

    def _checked(self, parts: Sequence[Part]) -> Manifest:
        names = [part.name for part in parts]
        if len(set(names)) < len(names):
            raise InvalidRequest("parts: must not be named twice", field="parts")
        topics = {name: self._pinned(name) for name in dict.fromkeys(part.topic for part in parts)}
        manifest = Manifest(self._query, self._batch, self._log.runtime.clock.wall_ms(), topics, tuple(parts))
        kept, starts = 0, _starts(manifest)
        for part in parts:
            self._go_on()
            try:
                decoded = self._decoded(part, manifest.now_ms)
                config = self._log.topic(part.topic).config()
                validate(decoded.batch, config, manifest.now_ms)
                if decoded.explicit_partitions is not None or config.partitioner_class:
                    self._assigned(decoded, part, manifest, starts[part.name])  # refuses what the topic does not have
            except SluiceError as error:
                raise _named(error, part) from error
            kept += decoded.batch.nbytes
            if kept <= KEPT_BYTES:
                self._kept[part.name] = decoded
        return manifest

    def _pinned(self, topic: str) -> PinnedTopic:
        meta = self._log.topic(topic, create=True)
        if meta.internal:
            raise InvalidTopic(f"{topic!r} is an internal topic: clients may not write to it", topic=topic)
        return PinnedTopic(meta.topic_id, meta.partitions)

    def _decoded(self, part: Part, now_ms: int) -> Decoded:
        """The records of a part, as they go to the log."""
        body = self._body(part)
        decoded = arrow_body.decode(body, now_ms=now_ms, limits=self._limits)
        if decoded.count != part.rows:
            raise InvalidRequest(f"rows: the part holds {decoded.count}, not {part.rows}", field="parts.rows")
        chain = self._hooks.chain(self._log.topic(part.topic).config())
        return chain.transform(part.topic, decoded)

    def _body(self, part: Part) -> bytes:
        path = f"{self._folder}/{part.name}"
        most = self._limits.max_body_bytes
        try:
            size = self._store.stat(path).size
            if size > most:
                raise RecordListTooLarge(f"the part must not be larger than {most} bytes", field="parts", limit=most)
            body = self._store.get(path)
        except StoreNotFound:
            if self._pinned_before:
                raise CorruptData(f"{path} is gone, and a part of its batch is in the log") from None
            raise InvalidRequest(
                f"there is no {path} in the storage of this service: a sink with 'path' must name the same root",
                field="parts.name",
            ) from None
        if (len(body), zlib.crc32(body)) != (part.size, part.crc):
            message = f"{path} is not what was said: {len(body)} bytes instead of {part.size}, or another checksum"
            raise CorruptData(message) if self._pinned_before else InvalidRequest(message, field="parts.crc")
        return body

    def _assigned(self, decoded: Decoded, part: Part, manifest: Manifest, start: int) -> Int32s:
        partitions = manifest.topics[part.topic].partitions
        chain = self._hooks.chain(self._log.topic(part.topic).config())
        return chain.assign(part.topic, decoded, partitions, start % partitions)

    # --- 3: appending ---------------------------------------------------------------------------

    def _append(self, manifest: Manifest) -> Appended:
        appended, starts = Appended(), _starts(manifest)
        for piece, part in enumerate(manifest.parts):
            self._go_on()
            if self._meta(part.topic, manifest) is None:
                continue
            decoded = self._kept.pop(part.name, None)
            if decoded is None:
                decoded = self._decoded(part, manifest.now_ms)
            assigned = self._assigned(decoded, part, manifest, starts[part.name])
            for number, rows in sorted(partitioner.split(decoded.batch, assigned).items()):
                self._append_rows(manifest, part.topic, number, piece, rows, appended)
            steps.reached("sink-piece")
        while self._waiting:
            self._settle_first()
        return appended

    def _meta(self, topic: str, manifest: Manifest) -> TopicMeta | None:
        """None if the topic of the manifest was deleted: what the batch had appended went with it, and so does the
        rest, as if the deletion had come a moment later."""
        meta = self._log.catalog.state.find(topic)
        return meta if meta is not None and meta.topic_id == manifest.topics[topic].id else None

    def _append_rows(
        self, manifest: Manifest, topic: str, number: int, piece: int, rows: partitioner.Part, appended: Appended
    ) -> None:
        partition = self._log.partition(topic, number)
        if partition.ref.topic_id != manifest.topics[topic].id:
            return
        size = rows.batch.nbytes
        while self._waiting and self._in_flight + size > IN_FLIGHT_BYTES:
            self._settle_first()
        stamp = SinkStamp(self._query, self._batch, piece)
        future = self._patiently(lambda: _append_once(partition, rows, stamp, size))
        if not (future.done() and future.exception() is None and future.result().duplicate):
            appended.records[topic] += rows.batch.num_rows
            appended.size[topic] += size
        self._waiting.append((size, future))
        self._in_flight += size

    def _patiently(self, hand_over: Callable[[], Future[AppendResult]]) -> Future[AppendResult]:
        """A partition or a WAL that is full now has room when it has committed; others produce as well."""
        clock = self._log.runtime.clock
        deadline = clock.boottime() + FULL_WAIT_S
        while True:
            try:
                return hand_over()
            except Overloaded:
                if clock.boottime() > deadline:
                    raise
            if self._waiting:
                self._settle_first()
            else:
                self._stopping.wait(FULL_LOOK_S)
            self._go_on()

    def _settle_first(self) -> None:
        size, future = self._waiting.popleft()
        self._in_flight -= size
        try:
            future.result(COMMIT_WAIT_S)
        except TimeoutError:
            raise RequestTimedOut("the batch is not committed yet; repeat the commit: it goes on where it is") from None

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise NotLeader("the service is stopping; repeat the commit: it goes on where it is")


def _append_once(partition: PartitionLog, rows: partitioner.Part, stamp: SinkStamp, size: int) -> Future[AppendResult]:
    return partition.append(rows.batch, sink=stamp, size=size)


def _starts(manifest: Manifest) -> dict[str, int]:
    """Where records without a key begin to take turns, for each part: the same at every try, another for each batch."""
    first = zlib.crc32(f"{manifest.query}/{manifest.batch}".encode())
    rows: Counter[str] = Counter()
    starts = {}
    for part in manifest.parts:
        starts[part.name] = first + rows[part.topic]
        rows[part.topic] += part.rows
    return starts


def _named(error: SluiceError, part: Part) -> SluiceError:
    """The same error, and where in the batch it was met."""
    return type(error)(f"topic {part.topic!r}, part {part.name}: {error.message}", **error.fields)
