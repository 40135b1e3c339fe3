"""Requests addressed to a whole topic: split over its partitions, idempotent as one thing (R-9)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sluice.log_store.clock import Clock
from sluice.log_store.errors import SluiceError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.producers import BelowWindow, Repeat, TopicWindows
from sluice.log_store.values import ProducerStamp

EXPIRE_EVERY_S = 600.0

Split = Callable[[int], Mapping[int, pa.RecordBatch]]
"""Cuts a request into one batch per partition, for a given number of partitions."""


@dataclass(frozen=True, slots=True)
class TopicAppend:
    """One future per partition that got a part. Below the window there are none: it was done long ago."""

    parts: Mapping[int, Future[AppendResult]] = field(default_factory=dict)
    partitions: int = 0
    """The partition count that the request was split for: a repeat keeps that of the first try."""
    below_window: bool = False


class TopicLog:
    """The topic-mode windows of one topic. Opening them opens every partition, once, at the first such request."""

    def __init__(self, partition: Callable[[int], PartitionLog], partitions: Callable[[], int], clock: Clock) -> None:
        self._clock = clock
        self._expired_at = float("-inf")
        self._partition = partition
        self._partitions = partitions
        self._lock = threading.Lock()
        self._windows: TopicWindows | None = None

    def append(self, split: Split, *, acks: Acks, stamp: ProducerStamp | None) -> TopicAppend:
        if stamp is None:
            count = self._partitions()
            return TopicAppend(self._append_parts(split(count), acks, None, completing=False), count)
        with self._lock:
            return self._append_idempotent(split, acks, stamp)

    def _append_idempotent(self, split: Split, acks: Acks, stamp: ProducerStamp) -> TopicAppend:
        self._expire_when_due()
        if self._windows is None:
            numbers = range(self._partitions())
            self._windows = TopicWindows.merge({number: self._partition(number).windows_now() for number in numbers})
        stamp = replace(stamp, partitions=self._partitions())
        verdict = self._windows.check(stamp)
        if isinstance(verdict, BelowWindow):
            return TopicAppend(below_window=True)
        repeat = isinstance(verdict, Repeat)
        # A repeat goes where the first try went, however many partitions there are by now.
        if isinstance(verdict, Repeat):
            stamp = verdict.entry.restamp(stamp)
        parts = split(stamp.partitions)
        futures = self._append_parts(parts, acks, stamp, completing=repeat)
        self._remember(self._windows, stamp, parts)
        return TopicAppend(futures, stamp.partitions)

    def _expire_when_due(self) -> None:
        """Forget idle producers in all partitions or in none: one that remembers would append a repeat's other half."""
        clock = self._clock
        if clock.boottime() - self._expired_at < EXPIRE_EVERY_S:
            return
        self._expired_at = clock.boottime()
        now = clock.wall_ms()
        partitions = [self._partition(number) for number in range(self._partitions())]
        active = frozenset[int]().union(*(partition.windows_now().active(now) for partition in partitions))
        for partition in partitions:
            partition.expire_producers(now, active)
        self._windows = None

    def _append_parts(
        self, parts: Mapping[int, pa.RecordBatch], acks: Acks, stamp: ProducerStamp | None, *, completing: bool
    ) -> dict[int, Future[AppendResult]]:
        """Every part gets its chance: what one partition refuses, a repeat of the request completes later."""
        futures = {}
        for number, batch in sorted(parts.items()):
            try:
                futures[number] = self._partition(number).append(batch, acks=acks, stamp=stamp, completing=completing)
            except SluiceError as error:
                futures[number] = Future()
                futures[number].set_exception(error)
        return futures

    def _remember(self, windows: TopicWindows, stamp: ProducerStamp, parts: Mapping[int, pa.RecordBatch]) -> None:
        for number in parts:
            window = self._partition(number).windows.get(stamp.producer_id)
            for entry in window.entries if window is not None and window.epoch == stamp.epoch else ():
                if entry.sequence == stamp.sequence:
                    windows.record(stamp, number, entry.base_offset, entry.count)

    def forget(self) -> None:
        """The windows of the partitions changed behind our back: merge them anew at the next request."""
        with self._lock:
            self._windows = None
