"""A led partition takes batches: offsets are given here, batches become versions here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from sluice.log_store import steps
from sluice.log_store.append_queue import AppendQueue
from sluice.log_store.claims import SERVICE
from sluice.log_store.committer import NEWEST_KNOWN_S
from sluice.log_store.delta_log import Commit
from sluice.log_store.errors import (
    IntegrityError,
    InvalidRequest,
    NotLeader,
    PolicyViolation,
    RequestTimedOut,
    SluiceError,
    StorageError,
)
from sluice.log_store.os_files import explain
from sluice.log_store.partition_core import PartitionCore
from sluice.log_store.pending import Acks, AppendResult, Logged, Pending, settle
from sluice.log_store.plans import PlanKind
from sluice.log_store.records import RECORD_SCHEMA
from sluice.log_store.segmenting import write_group
from sluice.log_store.values import ProducerStamp, SinkStamp
from sluice.log_store.wal_values import WalStalled

_log = logging.getLogger(__name__)

WAL_LOOK_S = 1.0


class _Group(NamedTuple):
    """What one version appends."""

    batches: list[Pending]
    rows: pa.Table | None


class PartitionAppends(PartitionCore):
    # --- appending -----------------------------------------------------------------------------

    def append(
        self,
        batch: pa.RecordBatch,
        *,
        acks: Acks = Acks.ALL,
        stamp: ProducerStamp | None = None,
        completing: bool = False,
        size: int | None = None,
        sink: SinkStamp | None = None,
    ) -> Future[AppendResult]:
        """Accept a batch. The future is answered at the level asked for; a refusal raises and takes no offset.

        `size`: its bytes, about, where they are known. Arrow takes long to count them. `sink`: which piece of a Spark
        sink's batch it is; one that is in the log already is answered and not appended.

        Step, and what a crash after it leaves:

        1. the producer window is checked and the batch gets its offsets         nothing
        2. the WAL gets it, where there is one                                   perhaps the batch, nobody was told
        3. the WAL is fsynced: acks=1 is answered                                the batch: recovery replays it
        4. the batch is part of a Delta version: acks=all is answered            the batch, in the lake
        """
        if batch.num_rows == 0 or not batch.schema.equals(RECORD_SCHEMA):
            raise InvalidRequest("a batch must hold at least one record, in the record schema")
        self.prepare()
        future: Future[AppendResult] = Future()
        now = self.runtime.clock.wall_ms()
        with self._lock:
            self._refuse_if_unwritable()
            first = self._first_of_locked(batch.num_rows, stamp, sink, now, completing)
            if first is not None:
                answer = self._repeat_locked(first, acks, future)
            else:
                size = batch.nbytes if size is None else size
                answer = self._accept_locked(batch, size, acks, stamp, sink, now, future)
        if answer is not None:
            settle(future, answer)
        return future

    def _refuse_if_unwritable(self) -> None:
        if self._closed or self.runtime.closing:
            raise NotLeader(f"{self.ref.tp} is being closed")
        if self.runtime.leadership.claim.purpose != SERVICE:
            raise NotLeader("this process leads for maintenance: it appends no rows of its own (R-2)")
        if self.runtime.leadership.fenced:
            self.runtime.leadership.confirm(0)
        if self._committer.problem is not None:
            raise self._committer.problem
        if (source := self._config().mirror_source) or self._mirroring:
            raise PolicyViolation(
                f"{self.ref.tp} is a copy of {source or 'another cluster'}: it takes no records of its own before "
                "mirror.source is removed from its topic",
                topic=self.ref.topic,
            )
        if self._stall.refuses:
            raise StorageError(f"{self.ref.tp} could not commit for too long: it is parked until storage works again")

    def _first_of_locked(
        self, count: int, stamp: ProducerStamp | None, sink: SinkStamp | None, now: int, completing: bool
    ) -> AppendResult | None:
        """What a batch that came before was answered, if this is a repeat of it."""
        if sink is not None:
            return self._queue.repeat_of_sink(sink)
        return None if stamp is None else self._queue.repeat_of(stamp, count, now, completing=completing)

    def _repeat_locked(self, first: AppendResult, acks: Acks, future: Future[AppendResult]) -> AppendResult | None:
        """Answer a repeat like the original, or let it wait with the original while that is in flight."""
        future.set_running_or_notify_cancel()
        if not self._queue.join(first.base_offset, (acks, future, True)):
            return replace(first, log_start=self._state.log_start)
        if acks is Acks.LEADER:
            self._queue.log_all(self._on_logged)
        return None

    def _accept_locked(
        self,
        batch: pa.RecordBatch,
        size: int,
        acks: Acks,
        stamp: ProducerStamp | None,
        sink: SinkStamp | None,
        now: int,
        future: Future[AppendResult],
    ) -> AppendResult | None:
        """Give offsets and send the batch on its way; the answer, if it can be given at once."""
        if acks is Acks.ALL and (why := self._stall.hopeless) is not None:
            raise StorageError(f"{self.ref.tp} cannot be committed: {why}")
        self._queue.admit(size, acks)
        log_append_time = self._config().log_append_time
        pending = self._queue.accept(batch, size, now, stamp, log_append_time=log_append_time, sink=sink)
        steps.reached("accepted")
        logs = self._queue.needs_wal(acks)
        if logs:
            self._queue.log_all(self._on_logged)
        self._kick_locked()
        if acks is Acks.NONE or (acks is Acks.LEADER and not logs):
            return pending.result(self._state.log_start, duplicate=False)
        future.set_running_or_notify_cancel()
        pending.waiters.append((acks, future, False))
        return None

    def _on_logged(self, pending: Pending, error: BaseException | None) -> None:
        """The WAL has the batch on disk (or was closed over it): called by its writer thread, in offset order."""
        steps.reached("logged")
        refusal = self._refusal_of_logged(error)
        with self._lock:
            pending.logged = Logged.YES if error is None else Logged.FAILED
            self._logged.notify_all()
            # What the WAL cannot say does not concern acks=all: its commit will tell.
            final = error is not None or isinstance(refusal, NotLeader)
            answered = [waiter for waiter in pending.waiters if waiter[0] is Acks.LEADER or final]
            pending.waiters = [waiter for waiter in pending.waiters if waiter not in answered]
            log_start = self._state.log_start
            self._kick_locked()
        for _, future, duplicate in answered:
            settle(future, refusal or pending.result(log_start, duplicate))

    def _refusal_of_logged(self, error: BaseException | None) -> SluiceError | None:
        """Why nobody may be told that the WAL has the batch. A leader that was replaced acknowledges nothing (R-1)."""
        if error is not None:
            return RequestTimedOut(f"the outcome is not known: {error}")
        local = self.runtime.store.local_path is not None
        try:
            self.runtime.leadership.confirm(0.0 if local else NEWEST_KNOWN_S)
        except NotLeader as fenced:
            return fenced
        except StorageError as unknown:
            return RequestTimedOut(f"the outcome is not known: {unknown}")
        return None

    # --- committing ----------------------------------------------------------------------------

    def _kick_locked(self) -> None:
        """See to it that what can be committed will be: at once when idle, grouped when busy (I-7)."""
        if self._running or self._closed or not self._committable_locked():
            return
        self._running = True
        interval = self._config().commit_interval_ms
        if interval is None:
            interval = self.runtime.settings.commit_interval_ms
        delay = max(self._last_commit + interval / 1000 - self.runtime.clock.boottime(), self._stall.retry_s)
        if delay <= 0:
            self._submit()
        else:
            self.runtime.scheduler.after(delay, self._submit)

    def _committable_locked(self) -> bool:
        stopped = self.runtime.leadership.fenced or self._committer.problem is not None
        return not stopped and (self._committer.in_doubt or self._queue.committable)

    def _submit(self) -> None:
        try:
            self.runtime.commits.submit(self._run)
        except RuntimeError:
            self._running = False  # the pool is shut down: what waits stays in the WAL

    def _run(self) -> None:
        try:
            with self._commit:
                self._commit_once()
            self._stall.over()
        except NotLeader as error:
            self._give_up(error)
        except WalStalled:
            pass  # what the WAL has is tried again at once, the rest when the WAL has it
        except StorageError as error:
            self._commit_failed(error)
        except IntegrityError as problem:
            self._give_up(RequestTimedOut(f"{self.ref.tp} stopped: {problem.message}"))
        except Exception as error:  # noqa: BLE001 - a bug must not leave producers waiting without a sign
            _log.exception("commit of %s failed", self.ref.tp)
            self._commit_failed(StorageError(f"unexpected: {error!r}"))
        finally:
            with self._lock:
                self._running = False
                self._kick_locked()

    def _commit_once(self) -> None:
        if self._committer.in_doubt:
            self._committer.finish()
            return
        with self._lock:
            group = self._queue.group()
        if group:
            now = self.runtime.clock.wall_ms()
            # The files are written while the WAL is being fsynced; only the commit has to wait for it.
            append = write_group(group, self._committer, self._state.active, self._config(), now)
            try:
                self._wait_for_wal(group)
            except StorageError:
                self._committer.drop_files(append.files)
                raise
            self._committer.append(append, _Group(group, append.rows))

    def _wait_for_wal(self, group: list[Pending]) -> None:
        with self._lock:
            while not self._queue.in_wal(group):
                if self._closed or self.runtime.leadership.fenced:
                    raise NotLeader(f"{self.ref.tp} was closed before the WAL had the batch")
                self._logged.wait(WAL_LOOK_S)

    def _on_won(self, commit: Commit, token: object) -> None:
        """A version stands: move the high watermark, then tell everybody."""
        group: list[Pending] = []
        if isinstance(token, _Group):
            group = token.batches
        if isinstance(token, _Group) and token.rows is not None:
            self.runtime.tails.add(self.ref.folder, group[0].base_offset, group[-1].end_offset, token.rows)
        with self._lock:
            self._state.apply(commit)
            self.durability.committed_locked(commit)
            answers = self._queue.committed(group)
            if self._mirroring and (commit.details.get("plan") or {}).get("kind") == PlanKind.MIRROR:
                # The end moved past what was given here: the next offset comes after it.
                self._queue, self._mirroring = AppendQueue(self.ref, self.runtime, self._state), False
            log_start = self._state.log_start
            if group:
                self._last_commit = self.runtime.clock.boottime()
        steps.reached("applied")
        for pending, future, duplicate in answers:
            settle(future, pending.result(log_start, duplicate))
        steps.reached("answered")
        if not self._queue:
            self._stall.committed_all()
        self._notify()

    # --- when it does not go well --------------------------------------------------------------

    def _commit_failed(self, error: StorageError) -> None:
        self._stall.failed(error)
        if self._stall.hopeless is not None:
            self._tell_waiters(lambda _pending, acks: acks is Acks.ALL, error.message)

    def wal_stalled(self, error: OSError) -> None:
        """The WAL's disk refuses to write: its entries stay queued, but nobody is kept waiting for them."""
        self._tell_waiters(lambda pending, _acks: pending.logged is Logged.QUEUED, explain(error))

    def _tell_waiters(self, chosen: Callable[[Pending, Acks], bool], why: str) -> None:
        if self._patient:
            return
        with self._lock:
            waiters = self._queue.abandon(chosen)
        for future in waiters:
            settle(future, RequestTimedOut(f"the outcome is not known yet: {why}"))

    def _give_up(self, error: SluiceError) -> None:
        """Fenced, or stopped by a foreign or damaged commit."""
        with self._lock:
            waiters = self._queue.abandon()
        for future in waiters:
            settle(future, error)

    def fenced(self, error: NotLeader) -> None:
        self._give_up(error)

    def close(self) -> None:
        """Take nothing more; what is still waiting is answered as unknown."""
        with self._lock:
            self._closed = True
        self._give_up(RequestTimedOut(f"{self.ref.tp} was closed before the batch was committed"))
