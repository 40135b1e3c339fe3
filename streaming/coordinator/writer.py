"""Writes to one partition of `__consumer_offsets`: what comes together is appended as one batch, in order.

Nobody waits here. The outcome of each write comes back through `settled`, in the order of the writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeAlias

from sluice.log_store.errors import SluiceError, StorageError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import Acks, AppendResult
from sluice.streaming.coordinator.records import Row, batch_of

Outcome: TypeAlias = Callable[[SluiceError | None], None]
"""Told what became of a write; None: it is durable."""
Settled: TypeAlias = Callable[[Sequence[Outcome], SluiceError | None, int], None]
"""(who waits, the error, the offset after the batch in the log)"""


class OffsetsWriter:
    """Called under its shard's lock."""

    def __init__(self, partition: PartitionLog, settled: Settled) -> None:
        self._partition = partition
        self._settled = settled
        self._rows: list[Row] = []
        self._outcomes: list[Outcome] = []
        self.in_flight = 0
        """Batches whose outcome is open; the shard counts them down."""
        self.deferred = False
        """Somebody has promised to flush."""

    def __len__(self) -> int:
        """Writes that wait to be flushed."""
        return len(self._outcomes)

    def add(self, rows: Sequence[Row], outcome: Outcome) -> None:
        self._rows += rows
        self._outcomes.append(outcome)

    def flush(self) -> None:
        self.deferred = False
        if not self._outcomes:
            return
        rows, self._rows = self._rows, []
        outcomes, self._outcomes = self._outcomes, []
        self.in_flight += 1
        if not rows:
            self._settled(outcomes, None, -1)
            return
        size = sum(len(key) + len(value or b"") for key, value in rows)
        try:
            batch = batch_of(rows, self._partition.runtime.clock.wall_ms())
            future = self._partition.append(batch, acks=Acks.ALL, size=size)
        except SluiceError as error:
            self._settled(outcomes, error, -1)
            return
        future.add_done_callback(partial(self._done, outcomes))

    def _done(self, outcomes: Sequence[Outcome], future: Future[AppendResult]) -> None:
        error = future.exception()
        if error is None:
            result = future.result()
            self._settled(outcomes, None, result.base_offset + result.count)
        elif isinstance(error, SluiceError):
            self._settled(outcomes, error, -1)
        else:
            self._settled(outcomes, StorageError(f"the commit failed: {error!r}"), -1)
