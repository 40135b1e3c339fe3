"""Reading a topic by long poll, as an iterator.

One partition is read by the caller's own thread. Several are read by a thread each, because a long poll waits for one
partition only; they hand over through a short queue, so a slow caller holds them back.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar

from sluice.api.client_values import At, Fetched, FetchedRecord, FetchedTable, Last, PartitionOffsets, Start
from sluice.log_store.errors import OffsetOutOfRange, SluiceError, UnknownTopicOrPartition

QUEUED_BATCHES = 2
STOP_CHECK_S = 0.1
AT_WORK_S = 0.5
"""How long `close` waits for its threads; one that waits for records is left to the end of its poll."""
INFINITE = 1 << 62
MOST_RECORDS, MOST_ROWS = 20_000, 100_000
"""Of one fetch, as objects and in a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    start: Start = "earliest"
    partitions: tuple[int, ...] | None = None
    """None: all that the topic has when the reader is made."""
    stop_at_end: bool = False
    """Stop at what was the end when the reader was made, instead of waiting for more."""
    max_wait_ms: int = 5_000
    max_records: int | None = None
    """Of one fetch. None: 20,000 where each becomes an object, 100,000 in tables."""
    max_bytes: int = 8 << 20
    """Of one fetch."""
    response_format: Literal["arrow", "json"] = "arrow"
    out_of_range: Literal["error", "earliest", "latest"] = "error"
    """Where to go on when the position is no longer, or not yet, in the log."""


Answer = TypeVar("Answer", Fetched, FetchedTable)


class Source(Protocol):
    """The calls a reader needs; SluiceClient has them."""

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_records: int,
        max_bytes: int,
        max_wait_ms: int,
        response_format: Literal["arrow", "json"],
    ) -> Fetched: ...

    def fetch_arrow(
        self, topic: str, partition: int, offset: int, *, max_records: int, max_bytes: int, max_wait_ms: int
    ) -> FetchedTable: ...

    def offsets(self, topic: str) -> list[PartitionOffsets]: ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int: ...


_Fetch = Callable[[int, int, int], Answer]
"""Of a partition, from an offset, at most so many records."""
_Queue = queue.Queue[tuple[int, Answer | SluiceError | None]]
"""From one partition: an answer, what went wrong, or its end."""


class Reader:
    """Iterate over it for records; `positions` are the next offsets to read, to go on from later."""

    def __init__(self, source: Source, topic: str, options: ReaderOptions | None = None) -> None:
        self._source = source
        self._topic = topic
        self._options = options or ReaderOptions()
        known = {entry.partition: entry for entry in source.offsets(topic)}
        chosen = self._options.partitions if self._options.partitions is not None else tuple(known)
        unknown = [number for number in chosen if number not in known]
        if unknown:
            raise UnknownTopicOrPartition(f"{topic} has no partition {unknown[0]}", partition=unknown[0])
        self.ends = {number: known[number].latest for number in chosen}
        """Where each partition ended when the reader was made."""
        self.positions = {number: self._begin(known[number]) for number in chosen}
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def __iter__(self) -> Iterator[FetchedRecord]:
        for partition, fetched in self._fetches(self._records):
            for record in fetched.records:
                self.positions[partition] = record.offset + 1
                yield record
            self.positions[partition] = fetched.next_offset

    def batches(self) -> Iterator[Fetched]:
        """Whole answers, which is faster than one record at a time."""
        for partition, fetched in self._fetches(self._records):
            self.positions[partition] = fetched.next_offset
            if fetched.records:
                yield fetched

    def tables(self) -> Iterator[tuple[int, FetchedTable]]:
        """Whole answers in columns, each with its partition: no object per record, and many times as fast. Always
        Arrow, whatever `response_format` says."""
        for partition, fetched in self._fetches(self._table):
            self.positions[partition] = fetched.next_offset
            if fetched.table.num_rows:
                yield partition, fetched

    def close(self) -> None:
        """Ends the iteration. Threads that wait in a long poll end with it; those at work are waited for, because an
        interpreter that ends while Arrow decodes in a thread is aborted."""
        self._closed.set()
        deadline = time.monotonic() + AT_WORK_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _records(self, partition: int, offset: int, most: int) -> Fetched:
        options = self._options
        return self._source.fetch(
            self._topic,
            partition,
            offset,
            max_records=self._at_most(MOST_RECORDS, most),
            max_bytes=options.max_bytes,
            max_wait_ms=options.max_wait_ms,
            response_format=options.response_format,
        )

    def _table(self, partition: int, offset: int, most: int) -> FetchedTable:
        options = self._options
        return self._source.fetch_arrow(
            self._topic,
            partition,
            offset,
            max_records=self._at_most(MOST_ROWS, most),
            max_bytes=options.max_bytes,
            max_wait_ms=options.max_wait_ms,
        )

    def _at_most(self, otherwise: int, most: int) -> int:
        wanted = self._options.max_records
        return min(otherwise if wanted is None else wanted, most)

    def _fetches(self, fetch: _Fetch[Answer]) -> Iterator[tuple[int, Answer]]:
        if len(self.positions) == 1:
            (partition,) = self.positions
            return ((partition, fetched) for fetched in self._pull(fetch, partition, self._closed))
        return self._side_by_side(fetch)

    def _side_by_side(self, fetch: _Fetch[Answer]) -> Iterator[tuple[int, Answer]]:
        found: _Queue[Answer] = queue.Queue(QUEUED_BATCHES)
        ended = threading.Event()  # of this iteration; the next one begins at the positions that it reached
        self._threads = [
            threading.Thread(
                target=self._feed, args=(fetch, number, found, ended), name=f"sluice-reader-{number}", daemon=True
            )
            for number in self.positions
        ]
        for thread in self._threads:
            thread.start()
        running = len(self.positions)
        try:
            while running and not self._closed.is_set():
                try:
                    partition, item = found.get(timeout=STOP_CHECK_S)
                except queue.Empty:
                    continue
                if item is None:
                    running -= 1
                elif isinstance(item, SluiceError):
                    raise item
                else:
                    yield partition, item
        finally:
            ended.set()

    def _feed(self, fetch: _Fetch[Answer], partition: int, found: _Queue[Answer], ended: threading.Event) -> None:
        try:
            for fetched in self._pull(fetch, partition, ended):
                self._hand_over(found, (partition, fetched), ended)
        except SluiceError as error:
            self._hand_over(found, (partition, error), ended)
        self._hand_over(found, (partition, None), ended)

    def _hand_over(
        self, found: _Queue[Answer], item: tuple[int, Answer | SluiceError | None], ended: threading.Event
    ) -> None:
        while not (ended.is_set() or self._closed.is_set()):
            try:
                found.put(item, timeout=STOP_CHECK_S)
            except queue.Full:
                continue
            return

    def _pull(self, fetch: _Fetch[Answer], partition: int, ended: threading.Event) -> Iterator[Answer]:
        """The answers for one partition, one after the other, from its position."""
        options, position, end = self._options, self.positions[partition], self.ends[partition]
        while not (ended.is_set() or self._closed.is_set()):
            if options.stop_at_end and position >= end:
                return
            try:
                fetched = fetch(partition, position, end - position if options.stop_at_end else INFINITE)
            except OffsetOutOfRange:
                if options.out_of_range == "error":
                    raise
                position = self._reset(partition, options.out_of_range)
                continue
            position = fetched.next_offset
            yield fetched

    def _reset(self, partition: int, to: Literal["earliest", "latest"]) -> int:
        now = next(entry for entry in self._source.offsets(self._topic) if entry.partition == partition)
        return now.earliest if to == "earliest" else now.latest

    def _begin(self, known: PartitionOffsets) -> int:
        start = self._options.start
        if start == "earliest":
            return known.earliest
        if start == "latest":
            return known.latest
        if isinstance(start, At):
            return self._source.offset_at(self._topic, known.partition, start.timestamp_ms)
        if isinstance(start, Last):
            return max(known.earliest, known.latest - start.count)
        if isinstance(start, Mapping):
            return start.get(known.partition, known.earliest)
        assert isinstance(start, int)  # noqa: S101  # the other kinds are above
        return start
