"""Fetches ahead for a consumer: a few threads, each with one long poll for one partition.

Memory is bounded: a partition is fetched only when nothing of it waits to be handed out, and all that waits and all
that is under way together stay below `fetch_max_bytes` (or are one fetch). What goes wrong for a while is tried again
after a pause; what will not pass by itself is for the caller of `poll`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sluice.api.client_consumer_buffer import Buffer, Piece
from sluice.api.client_consumer_calls import ConsumerCalls
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_consumer_positions import Positions, Question
from sluice.log_store.clock import Clock
from sluice.log_store.errors import OffsetOutOfRange, SluiceError, UnknownTopicId, UnknownTopicOrPartition
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_errors import ClientClosed, RequestFailed
from sluice.streaming.membership.calls import is_transient

SHORTEST_WAIT_MS = 20
"""Of a long poll when partitions have to take turns."""
IDLE_S = 1.0


@dataclass(slots=True)
class _Pause:
    until: float
    length_s: float


class Fetcher:
    """`changed` guards everything here, positions and buffer included."""

    def __init__(
        self,
        calls: ConsumerCalls,
        options: ConsumerOptions,
        positions: Positions,
        changed: threading.Condition,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._options = options
        self._positions = positions
        self._changed = changed
        self._clock = clock
        self.buffer = Buffer()
        self.failure: SluiceError | None = None
        """What the next poll raises."""
        self._under_way: set[TopicPartition] = set()
        self._pauses: dict[TopicPartition, _Pause] = {}
        self._last_asked: dict[TopicPartition, int] = {}
        self._turn = 0
        self._threads = 0
        self._closed = False

    def start(self) -> None:
        """As many threads as there are partitions, up to the limit. Hold `changed`."""
        wanted = min(len(self._positions.assigned), self._options.fetch_threads)
        while self._threads < wanted and not self._closed:
            self._threads += 1
            threading.Thread(target=self._run, name=f"sluice-consumer-fetch-{self._threads}", daemon=True).start()
        self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def forget(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Hold `changed`."""
        self.buffer.forget(partitions)
        for partition in partitions:
            self._pauses.pop(partition, None)
            self._last_asked.pop(partition, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (question := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait(self._patience())
                self._under_way.add(question.partition)
                wait_ms = self._wait_ms()
            try:
                self._fetch(question, wait_ms)
            finally:
                with self._changed:
                    self._under_way.discard(question.partition)
                    self._changed.notify_all()

    def _next(self) -> Question | None:
        """The partition that was asked longest ago."""
        if self._closed or not self._room():
            return None
        now, best = self._clock.boottime(), None
        for partition in self._positions.assigned:
            if partition in self._under_way or partition in self.buffer:
                continue
            pause = self._pauses.get(partition)
            if pause is not None and pause.until > now:
                continue
            question = self._positions.question(partition)
            if question is not None and (best is None or self._asked(partition) < self._asked(best.partition)):
                best = question
        if best is not None:
            self._turn += 1
            self._last_asked[best.partition] = self._turn
        return best

    def _asked(self, partition: TopicPartition) -> int:
        return self._last_asked.get(partition, -1)

    def _room(self) -> bool:
        taken = self.buffer.bytes + len(self._under_way) * self._options.max_partition_fetch_bytes
        return taken == 0 or taken + self._options.max_partition_fetch_bytes <= self._options.fetch_max_bytes

    def _wait_ms(self) -> int:
        longest, partitions = self._options.fetch_max_wait_ms, len(self._positions.assigned)
        if partitions <= self._options.fetch_threads:
            return longest
        return min(longest, max(SHORTEST_WAIT_MS, longest * self._options.fetch_threads // partitions))

    def _patience(self) -> float:
        """Until the first pause ends."""
        now = self._clock.boottime()
        return min([IDLE_S, *(max(0.001, pause.until - now) for pause in self._pauses.values() if pause.until > now)])

    def _fetch(self, question: Question, wait_ms: int) -> None:
        try:
            found = self._calls.fetch(question, self._options.max_partition_fetch_bytes, wait_ms)
        except OffsetOutOfRange:
            with self._changed:
                self._positions.fall_out(question)
            return
        except ClientClosed as error:
            with self._changed:
                self._closed, self.failure = True, error
            return
        except SluiceError as error:
            with self._changed:
                self._failed(question, error)
            return
        with self._changed:
            self._pauses.pop(question.partition, None)
            if not self._positions.accepts(question):
                return
            if found.table.num_rows:
                self.buffer.put(Piece(question, found.table, found.next_offset))
            elif found.next_offset > question.offset:
                # Nothing but gaps: there is nothing to hand out, and no reason to look there again.
                self._positions.hand_out(question.partition, found.next_offset)

    def _failed(self, question: Question, error: SluiceError) -> None:
        gone = isinstance(error, UnknownTopicOrPartition | UnknownTopicId)
        if not gone and not (isinstance(error, RequestFailed) and is_transient(error)):
            self.failure = error
        before = self._pauses.get(question.partition)
        least, most = self._options.retry_backoff_ms / 1000, self._options.retry_backoff_max_ms / 1000
        length = least if before is None else min(most, before.length_s * 2)
        if isinstance(error, RequestFailed) and error.retry_after_s is not None:
            length = max(length, error.retry_after_s)
        if self._positions.accepts(question):
            self._pauses[question.partition] = _Pause(self._clock.boottime() + length, length)
