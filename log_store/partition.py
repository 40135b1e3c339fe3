"""One led partition: offsets are given here, batches become versions here.

Two locks, always taken in this order: `_commit` (held across storage calls by whoever creates a version) and
`_lock` (short; queue and state). Answers are given outside `_lock`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from sluice.log_store import snapshot, steps
from sluice.log_store.append_queue import AppendQueue
from sluice.log_store.claims import SERVICE
from sluice.log_store.committer import NEWEST_KNOWN_S, Committer
from sluice.log_store.delta_log import Commit, DataFile
from sluice.log_store.durability import Durability, unsynced_files
from sluice.log_store.errors import (
    IntegrityError,
    InvalidRequest,
    NotLeader,
    PlanRefused,
    PolicyViolation,
    RequestTimedOut,
    SluiceError,
    StorageError,
)
from sluice.log_store.log_shape import LogShape
from sluice.log_store.os_files import explain
from sluice.log_store.partition_loading import load_partition
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.pending import Acks, AppendResult, Logged, Pending, settle
from sluice.log_store.plan_files import check_added
from sluice.log_store.plans import ROWS_UNCHANGED, Plan, PlanKind, check_plan
from sluice.log_store.producers import ProducerWindows
from sluice.log_store.records import RECORD_SCHEMA
from sluice.log_store.runtime import Runtime
from sluice.log_store.segmenting import write_group
from sluice.log_store.stall import Stall
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import TOPIC_MODE_BIT, PartitionRef, ProducerStamp, SinkStamp
from sluice.log_store.wal_values import WalBatch, WalStalled

_log = logging.getLogger(__name__)

WAL_LOOK_S = 1.0
NO_WAL = "none"


class _Group(NamedTuple):
    """What one version appends."""

    batches: list[Pending]
    rows: pa.Table | None


class PartitionLog:
    def __init__(
        self, ref: PartitionRef, runtime: Runtime, config: Callable[[], TopicConfig], *, patient: bool = False
    ) -> None:
        """`patient`: its writer waits until the outcome is known, whatever storage says meanwhile."""
        self.ref = ref
        self._patient = patient
        self.runtime = runtime
        self._config = config
        self._commit = threading.Lock()
        self._lock = threading.Lock()
        self._logged = threading.Condition(self._lock)
        self._opened = False
        self._claimed = False
        self._closed = False
        self._state = PartitionState()
        self._queue = AppendQueue(ref, runtime, self._state)
        self._committer = Committer(ref, runtime, self._state, self._on_won, runtime.clock.boottime())
        self.durability = Durability(ref, runtime, self._lock, lambda: self._state)
        self._running = False
        self._mirroring = False
        """A mirror's files are being committed: no offset is given meanwhile."""
        self._last_commit = float("-inf")
        self._stall = Stall(ref, runtime, self._logged_batches, self.durability.sync_now)
        self._listeners: list[Callable[[int], None]] = []

    # --- what is known -------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        return self._opened

    @property
    def ready(self) -> bool:
        """Opened and claimed: an append will not wait for storage."""
        return self._claimed

    @property
    def problem(self) -> IntegrityError | None:
        return self._committer.problem

    @property
    def parked(self) -> bool:
        """It could not commit for too long and takes nothing more until it can."""
        return self._stall.refuses

    @property
    def stalled(self) -> str | None:
        """Why it cannot commit at the moment, in words; None if all is well."""
        return self._stall.why

    @property
    def hopeless(self) -> bool:
        """It cannot commit before somebody makes room."""
        return self._stall.hopeless is not None

    @property
    def state(self) -> PartitionState:
        """The committed state, where a moment's staleness does no harm; `view` gives what belongs together."""
        self.open()
        return self._state

    @property
    def high_watermark(self) -> int:
        return self.state.end

    @property
    def log_end(self) -> int:
        self.open()
        return max(self._queue.end, self._state.end)

    @property
    def log_start(self) -> int:
        return self.state.log_start

    @property
    def windows(self) -> ProducerWindows:
        self.open()
        return self._queue.windows

    def windows_now(self) -> ProducerWindows:
        """A copy: producers come while the caller looks through it."""
        self.open()
        with self._lock:
            return self._queue.windows.copy()

    def view(self) -> tuple[list[DataFile], int, int, int]:
        """(files, how many of them count, log start, high watermark), consistent with each other."""
        with self._lock:
            return self._state.files, len(self._state.files), self._state.log_start, self._state.end

    def shape(self) -> LogShape:
        """The committed log as it is now, for those who make plans."""
        self.open()
        with self._lock:
            return LogShape.of(self._state)

    @property
    def config(self) -> TopicConfig:
        return self._config()

    def known_files(self) -> tuple[set[str], dict[str, int]]:
        """(names of live files, removed files that are still to be deleted)"""
        self.open()
        with self._lock:
            live = {file.path for file in (*self._state.files, *self._committer.in_flight)}
            return live, dict(self._state.removed)

    def files_deleted(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._state.removed.pop(name, None)

    @property
    def idle(self) -> bool:
        with self._lock:
            return not self._queue and not self._committer.in_doubt

    # --- opening -------------------------------------------------------------------------------

    def open(self) -> None:
        """Load the partition if that was not done yet."""
        if not self._opened:
            with self._commit:
                self._open_locked()

    def _open_locked(self) -> None:
        if self._opened:
            return
        loaded, begun, synced = load_partition(self.runtime, self.ref)
        with self._lock:
            self._state = loaded.state
            self._committer = Committer(self.ref, self.runtime, self._state, self._on_won, begun)
            self._committer.problem = loaded.problem
            self._queue = AppendQueue(self.ref, self.runtime, self._state)
            self.durability.checkpointed = loaded.checkpoint
            self._opened = True
        leadership = self.runtime.leadership
        if self.runtime.always_wal and not leadership.after_clean_release and not leadership.fenced:
            # Versions of a process that died before it had synced them: no later sync point may pass over them.
            store = self.runtime.store
            self.durability.found_unsynced(unsynced_files(store, self.ref, synced, loaded.state))
        if loaded.problem is not None:
            _log.error("%s refuses produce: %s", self.ref.tp, loaded.problem)

    def prepare(self) -> None:
        """Open and claim, so that offsets can be given: until the claim stands, another leader might still append."""
        if not self._claimed:
            with self._commit:
                self._prepare_locked(self._own_wal)

    @property
    def _own_wal(self) -> str:
        return NO_WAL if self.runtime.wal is None else self.runtime.wal.uuid

    def _prepare_locked(self, wal: str) -> None:
        self._open_locked()
        if self._committer.problem is not None:
            raise self._committer.problem
        self.runtime.leadership.confirm(self.runtime.claim_check_s)
        self._committer.claim(wal)
        with self._lock:
            if not self._claimed:
                # The claim may have met versions that the last leader put after this one had read the log: their
                # offsets and their producers count.
                self._queue = AppendQueue(self.ref, self.runtime, self._state)
            self._claimed = True

    def refresh(self) -> None:
        """Follow a log that another process leads (a fenced service goes on serving reads).

        A leader's own state is always the newest there is.
        """
        if not self.runtime.leadership.fenced:
            return
        with self._commit:
            if self._opened and snapshot.reload_needed(self.runtime.store, self.ref.folder, self._state):
                self._opened = False
            self._open_locked()
            with self._lock:
                problem = snapshot.follow(self.runtime.store, self.ref.folder, self._state)
                self._committer.problem = self._committer.problem or problem
            self.runtime.tails.drop(self.ref.folder)
        self._notify()

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
        self.runtime.on_dirty(self)

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

    def _logged_batches(self) -> list[WalBatch]:
        with self._lock:
            return self._queue.logged_batches()

    def _give_up(self, error: SluiceError) -> None:
        """Fenced, or stopped by a foreign or damaged commit."""
        with self._lock:
            waiters = self._queue.abandon()
        for future in waiters:
            settle(future, error)

    def fenced(self, error: NotLeader) -> None:
        self._give_up(error)

    # --- replay of a WAL, plans (R-7) ----------------------------------------------------

    def replay(self, batches: Iterable[WalBatch], wal: str) -> int:
        """Append what a WAL holds beyond the end of the log, at the same offsets, under a claim of that WAL."""
        replayed = 0
        with self._commit:
            self._prepare_locked(wal)
            for batch in batches:
                rows = pa.ipc.read_record_batch(pa.py_buffer(batch.payload), RECORD_SCHEMA)
                with self._lock:
                    self._queue.accept_replayed(batch, rows)
                replayed += batch.count
                if self._queue.size_bytes > self.runtime.settings.commit_max_bytes:
                    self._commit_once()
                steps.reached("replayed")
            while self._queue:
                self._commit_once()
            self._prepare_locked(self._own_wal)
        return replayed

    def apply_plan(self, plan: Plan) -> int:
        """Check and commit a plan; returns its version, durable. A repeat of the same id answers the same.

        Producers wait while a version is put, so nothing is synced meanwhile.
        """
        self.open()
        if plan.plan_id not in self._state.plans:
            check_added(self.runtime, self.ref, plan)
            # Whoever wrote the new files: they are on disk before the commit that removes the old ones.
            self.runtime.sync([f"{self.ref.folder}/{file.path}" for file in plan.adds])
        with self._commit:
            self._prepare_locked(self._own_wal)
            self._committer.finish()
            if (version := self._state.plans.get(plan.plan_id, -1)) < 0:
                removed = check_plan(self._state, plan)
                check_added(self.runtime, self.ref, plan)
                if plan.kind is PlanKind.MIRROR:
                    version = self._commit_mirror(plan, removed)
                else:
                    version = self._commit_plan(plan, removed)
                if plan.kind not in ROWS_UNCHANGED:
                    self.runtime.tails.drop(self.ref.folder)
        # Answered means durable: were an earlier version lost, recovery would remove this one too.
        self.durability.sync_now()
        return version

    def _commit_mirror(self, plan: Plan, removed: list[DataFile]) -> int:
        """It moves the end without giving offsets: nothing may be given, or on its way, until it stands."""
        with self._lock:
            if not self._config().mirror_source:
                raise PlanRefused(f"{self.ref.tp} has no mirror.source: a mirror may not add to it")
            if self._queue:
                raise PlanRefused(f"records of {self.ref.tp} are still on their way: try again")
            self._mirroring = True
        # No WAL holds its rows, so nothing before it may be lost, and it must not be torn itself.
        try:
            self.durability.sync_now()
            return self._commit_plan(plan, removed)
        finally:
            with self._lock:
                self._mirroring = self._mirroring and self._committer.in_doubt

    def _commit_plan(self, plan: Plan, removed: list[DataFile]) -> int:
        try:
            return self._committer.plan(plan, removed)
        except StorageError:
            # In doubt: brought to an end by the next commit, which must come even if nothing is appended.
            with self._lock:
                self._kick_locked()
            raise

    def checkpoint(self) -> int:
        """Forget idle producers, then write a checkpoint and clean the log before it."""
        # Those of topic mode go only when every partition of the topic may forget them: see TopicLog.
        self.open()
        with self._lock:
            topic_mode = {producer_id for producer_id in self._queue.windows if producer_id & TOPIC_MODE_BIT}
        self.expire_producers(self.runtime.clock.wall_ms(), topic_mode)
        # Never below the topic's own delay: a reader that planned by version must find it.
        retention_ms = max(self.runtime.settings.json_retention_ms, self.config.file_delete_delay_ms)
        return self.durability.checkpoint(retention_ms)

    def expire_producers(self, now_ms: int, keep: Collection[int]) -> None:
        """Forget producers and sinks that were idle for too long; not while wall time is not to be trusted (R-13)."""
        self.open()
        if not self.runtime.wall.trusted():
            return
        with self._lock:
            self._queue.windows.expire(now_ms, keep)
            self._state.expire_producers(now_ms, self.runtime.settings.producer_id_expiration_ms, keep)
            self._queue.sinks.expire(now_ms)
            self._state.sinks.expire(now_ms)

    # --- listeners, closing --------------------------------------------------------------------

    def add_listener(self, listener: Callable[[int], None]) -> None:
        """`listener(high_watermark)` after every move of it; called from commit threads, must be short."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[int], None]) -> None:
        with self._lock:
            self._listeners.remove(listener)

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener(self._state.end)

    def close(self) -> None:
        """Take nothing more; what is still waiting is answered as unknown."""
        with self._lock:
            self._closed = True
        self._give_up(RequestTimedOut(f"{self.ref.tp} was closed before the batch was committed"))
