"""What waits in a producer: records gathered into batches per topic, within a bound of memory."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.api.client_values import Delivery, PartitionDelivery, Record
from sluice.log_store.clock import Clock
from sluice.streaming.http_errors import BufferFull, ProducerClosed


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferLimits:
    linger_ms: int = 5
    """How long a batch waits for more records."""
    batch_bytes: int = 1 << 20
    batch_records: int = 10_000
    buffer_bytes: int = 64 << 20
    """Of everything that is not answered yet."""
    max_block_ms: int = 60_000
    """How long `send` waits for room."""


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one topic, or one Arrow table, that become one request."""

    topic: str
    created: float
    records: list[Record] = field(default_factory=list)
    futures: list[Future[Delivery]] = field(default_factory=list)
    table: pa.Table | None = None
    table_future: Future[list[PartitionDelivery]] | None = None
    size: int = 0
    hurry: bool = False

    def fail(self, error: BaseException) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)
        if self.table_future is not None and not self.table_future.done():
            self.table_future.set_exception(error)


class Buffer:
    """Many threads add, one takes. Batches of one topic leave in the order in which they were begun."""

    def __init__(self, limits: BufferLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._open: dict[str, Batch] = {}
        self._ready: deque[Batch] = deque()
        self._outstanding: set[Batch] = set()
        self._used = 0
        self._closed = False

    def add(self, topic: str, record: Record) -> Future[Delivery]:
        future: Future[Delivery] = Future()
        future.set_running_or_notify_cancel()  # what is on its way cannot be called back
        size = record.size
        with self._changed:
            self._reserve(size)
            batch = self._open.get(topic)
            if batch is not None and batch.size + size > self._limits.batch_bytes:
                self._seal(topic)
                batch = None
            if batch is None:
                batch = self._open[topic] = self._begin(topic)
            batch.records.append(record)
            batch.futures.append(future)
            batch.size += size
            if batch.size >= self._limits.batch_bytes or len(batch.records) >= self._limits.batch_records:
                self._seal(topic)
            elif len(batch.records) == 1:
                self._changed.notify_all()
        return future

    def add_table(self, topic: str, table: pa.Table) -> Future[list[PartitionDelivery]]:
        future: Future[list[PartitionDelivery]] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            self._reserve(table.nbytes)
            if topic in self._open:
                self._seal(topic)
            batch = self._begin(topic)
            batch.table, batch.table_future, batch.size = table, future, table.nbytes
            self._ready.append(batch)
            self._changed.notify_all()
        return future

    def take(self) -> Batch | None:
        """The next batch to send; waits for it. None: closed, and nothing is left."""
        with self._changed:
            while True:
                if self._ready:
                    return self._ready.popleft()
                oldest = next(iter(self._open.values()), None)
                if oldest is None:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                left = oldest.created + self._limits.linger_ms / 1000 - self._clock.boottime()
                hurried = next((batch for batch in self._open.values() if batch.hurry), None)
                if self._closed or left <= 0 or hurried is not None:
                    self._seal((hurried or oldest).topic)
                else:
                    self._changed.wait(left)

    def done(self, batch: Batch) -> None:
        """Answered, one way or the other: its memory is free again."""
        with self._changed:
            self._outstanding.discard(batch)
            self._used -= batch.size
            self._changed.notify_all()

    def flush(self, timeout_s: float | None) -> bool:
        """Send what is there now without lingering and wait for the answers; False when time ran out."""
        with self._changed:
            mine = set(self._outstanding)
            for batch in mine:
                batch.hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: mine.isdisjoint(self._outstanding), timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self, error: BaseException) -> None:
        """Nobody will take any more: what waits fails."""
        with self._changed:
            self._closed = True
            waiting = [*self._ready, *self._open.values()]
            self._ready.clear()
            self._open.clear()
        for batch in waiting:
            batch.fail(error)
            self.done(batch)

    def _reserve(self, size: int) -> None:
        """Whatever is larger than the whole buffer may pass when it is empty."""
        limits = self._limits
        room = self._changed.wait_for(
            lambda: self._closed or not self._outstanding or self._used + size <= limits.buffer_bytes,
            limits.max_block_ms / 1000,
        )
        if self._closed:
            raise ProducerClosed("the producer is closed")
        if not room:
            raise BufferFull(f"the producer's buffer of {limits.buffer_bytes} bytes stayed full", retry_after_s=1)
        self._used += size

    def _begin(self, topic: str) -> Batch:
        batch = Batch(topic, self._clock.boottime())
        self._outstanding.add(batch)
        return batch

    def _seal(self, topic: str) -> None:
        self._ready.append(self._open.pop(topic))
        self._changed.notify_all()
