"""The batches of one partition between acceptance and commit: offsets, producer windows, WAL, waiters.

Nothing here locks or does I/O beyond queueing for the WAL: the partition calls it under its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import pyarrow as pa

from sluice.log_store.errors import InvalidRequest, InvalidTimestamp, Overloaded, StorageError, WalFull
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.pending import Acks, AppendResult, Logged, Pending, Waiter
from sluice.log_store.pending_budget import PendingShare
from sluice.log_store.producers import ProducerWindows
from sluice.log_store.records import MAX_TIMESTAMP_MS, timestamp_bounds_ms, with_timestamp
from sluice.log_store.runtime import Runtime
from sluice.log_store.topic import is_internal
from sluice.log_store.values import PartitionRef, ProducerStamp, SinkStamp
from sluice.log_store.wal_values import WalBatch, WalStalled

WAL_SOFT_LIMIT, WAL_HARD_LIMIT = 0.80, 0.95

OnLogged = Callable[[Pending, BaseException | None], None]


class AppendQueue:
    def __init__(self, ref: PartitionRef, runtime: Runtime, state: PartitionState) -> None:
        self._ref = ref
        self._runtime = runtime
        self._batches: deque[Pending] = deque()
        self._held = PendingShare(runtime.pending)
        limit = runtime.settings.producer_id_expiration_ms
        self.windows = ProducerWindows.from_json(state.producers.to_json(), limit)
        self.sinks = state.sinks.copy()
        """With what is on its way, unlike those of the state."""
        self.end = state.end
        """Log end offset: the next offset to be given."""
        self.append_ms = state.append_ms

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def size_bytes(self) -> int:
        return self._held.size

    # --- coming in -----------------------------------------------------------------------------

    def repeat_of(self, stamp: ProducerStamp, count: int, now: int, *, completing: bool) -> AppendResult | None:
        """The first answer to this batch, if it is in the window; raises where the sequence does not fit."""
        entry = self.windows.check(stamp, count, now, completing=completing)
        if entry is None:
            return None
        return AppendResult(entry.base_offset, entry.count, entry.append_ms, 0, duplicate=True)

    def repeat_of_sink(self, sink: SinkStamp) -> AppendResult | None:
        """An answer for a piece that is in the log or on its way to it; without an offset where it is not known."""
        if not self.sinks.holds(sink):
            return None
        first = next((entry for entry in self._batches if entry.sink == sink), None)
        if first is None:
            return AppendResult(-1, 0, self.append_ms, 0, duplicate=True)
        return first.result(0, duplicate=True)

    def join(self, base_offset: int, waiter: Waiter) -> bool:
        """Wait with the batch that is in flight at `base_offset`; False if there is nothing left to wait for."""
        acks = waiter[0]
        batch = next((entry for entry in self._batches if entry.base_offset == base_offset), None)
        if batch is None or acks is Acks.NONE or (acks is Acks.LEADER and batch.logged is Logged.YES):
            return False
        batch.waiters.append(waiter)
        return True

    def admit(self, size: int, acks: Acks) -> None:
        """Refuse what would grow the memory of this partition or the WAL without bound."""
        waiting = self._held.size
        if waiting and waiting + size > self._runtime.settings.partition_pending_max_bytes:
            raise Overloaded(f"{self._ref.tp} has too much waiting to be committed", retry_after_s=1)
        if not self._held.admits(size) and not is_internal(self._ref.topic):
            raise Overloaded("all partitions together have too much waiting to be committed", retry_after_s=1)
        wal = self._runtime.wal
        if wal is None or not self.needs_wal(acks):
            return
        limit = WAL_SOFT_LIMIT if acks is Acks.LEADER else WAL_HARD_LIMIT
        if wal.fill > limit or not wal.has_room(size):
            if (trouble := wal.trouble) is not None:
                raise WalFull(f"the write-ahead log cannot be written: {trouble}", retry_after_s=1)
            raise WalFull("the write-ahead log is full: storage is slower than produce", retry_after_s=1)

    def accept(
        self,
        batch: pa.RecordBatch,
        size: int,
        now: int,
        stamp: ProducerStamp | None,
        *,
        log_append_time: bool,
        sink: SinkStamp | None = None,
    ) -> Pending:
        # Append times never go back, whatever the wall clock does.
        self.append_ms = max(now, self.append_ms)
        if log_append_time:
            batch = with_timestamp(batch, self.append_ms)
        low, high = timestamp_bounds_ms(batch)
        if low < 0 or high > MAX_TIMESTAMP_MS:
            # Once it is in the WAL it must be committed, and no commit could describe it.
            raise InvalidTimestamp(f"timestamps {low}..{high} ms: must be 0 to {MAX_TIMESTAMP_MS}")
        return self._add(batch, size, self.append_ms, high, Logged.NO, stamp, sink)

    def accept_replayed(self, batch: WalBatch, rows: pa.RecordBatch) -> None:
        if batch.base_offset != self.end or rows.num_rows != batch.count:
            raise InvalidRequest(f"{self._ref.tp}: WAL batch at {batch.base_offset} does not follow {self.end}")
        self.append_ms = max(self.append_ms, batch.append_ms)
        high = timestamp_bounds_ms(rows)[1]
        self._add(rows, rows.nbytes, batch.append_ms, high, Logged.YES, batch.stamp, batch.sink)

    def _add(
        self,
        rows: pa.RecordBatch,
        size: int,
        append_ms: int,
        max_ms: int,
        logged: Logged,
        stamp: ProducerStamp | None,
        sink: SinkStamp | None,
    ) -> Pending:
        pending = Pending(
            batch=rows,
            base_offset=self.end,
            size=size,
            append_ms=append_ms,
            max_ms=max_ms,
            stamp=stamp,
            sink=sink,
            logged=logged,
        )
        if stamp is not None:
            self.windows.record(stamp, pending.count, pending.base_offset, append_ms)
        if sink is not None:
            self.sinks.record(sink, append_ms)
        self.end = pending.end_offset
        self._batches.append(pending)
        self._held.add(pending.size)
        return pending

    # --- the WAL -------------------------------------------------------------------------------

    def needs_wal(self, acks: Acks) -> bool:
        return self._runtime.wal is not None and (self._runtime.always_wal or acks is Acks.LEADER)

    def log_all(self, on_logged: OnLogged) -> None:
        """Queue every batch that is not in the WAL yet, in offset order: no holes below an acks=1 (section 2)."""
        if (wal := self._runtime.wal) is None:
            return
        for pending in self._batches:
            if pending.logged is Logged.NO:
                pending.logged = Logged.QUEUED
                wal.append(self._wal_batch(pending), partial(on_logged, pending))

    def logged_batches(self) -> list[WalBatch]:
        return [self._wal_batch(pending) for pending in self._batches if pending.logged is Logged.YES]

    def _wal_batch(self, pending: Pending) -> WalBatch:
        return WalBatch(
            ref=self._ref,
            epoch=self._runtime.leadership.epoch,
            base_offset=pending.base_offset,
            count=pending.count,
            append_ms=pending.append_ms,
            stamp=pending.stamp,
            payload=pending.batch.serialize(),
            sink=pending.sink,
        )

    # --- going out -----------------------------------------------------------------------------

    @property
    def committable(self) -> bool:
        return bool(self._batches) and self._on_its_way(self._batches[0])

    def _on_its_way(self, pending: Pending) -> bool:
        if not self._runtime.always_wal or pending.logged is Logged.YES:
            return True
        # Behind a WAL whose disk refuses to write, what it has already can be committed and the rest cannot.
        return pending.logged is Logged.QUEUED and not self._wal_stalled()

    def _wal_stalled(self) -> bool:
        return self._runtime.wal is not None and self._runtime.wal.stalled_since is not None

    def group(self) -> list[Pending]:
        """Everything that can become one version now. Its commit must wait until the WAL has all of it."""
        group: list[Pending] = []
        size = 0
        for pending in self._batches:
            if not self._on_its_way(pending):
                break
            if group and size + pending.size > self._runtime.settings.commit_max_bytes:
                break
            group.append(pending)
            size += pending.size
        return group

    def in_wal(self, group: list[Pending]) -> bool:
        """No commit may become visible before the WAL entries it holds are fsynced (section 2)."""
        if not self._runtime.always_wal:
            return True
        if any(pending.logged is Logged.FAILED for pending in group):
            raise StorageError("the write-ahead log was closed before it had the batch")
        done = all(pending.logged is Logged.YES for pending in group)
        if not done and self._wal_stalled():
            raise WalStalled("the write-ahead log cannot be written at the moment")
        return done

    def committed(self, group: list[Pending]) -> list[tuple[Pending, Future[AppendResult], bool]]:
        """Take a committed group off the queue; returns whom to answer."""
        answers = []
        for pending in group:
            self._batches.popleft()
            self._held.remove(pending.size)
            answers += [(pending, future, duplicate) for _, future, duplicate in pending.waiters]
            pending.waiters = []  # the WAL's callback may still come: each waiter is answered by one thread
        return answers

    def abandon(
        self, chosen: Callable[[Pending, Acks], bool] = lambda _pending, _acks: True
    ) -> list[Future[AppendResult]]:
        """The chosen ones wait no longer; the batches stay, and what is in the WAL stays for the next leader."""
        leaving = []
        for pending in self._batches:
            going = [waiter for waiter in pending.waiters if chosen(pending, waiter[0])]
            if going:
                pending.waiters = [waiter for waiter in pending.waiters if waiter not in going]
                leaving += [future for _, future, _ in going]
        return leaving
