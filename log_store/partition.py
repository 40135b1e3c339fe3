"""One led partition, whole: what it takes, and what is done to the log as it stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from sluice.log_store import steps
from sluice.log_store.delta_log import Commit, DataFile
from sluice.log_store.errors import PlanRefused, StorageError
from sluice.log_store.partition_appends import PartitionAppends
from sluice.log_store.plan_files import check_added
from sluice.log_store.plans import ROWS_UNCHANGED, Plan, PlanKind, check_plan
from sluice.log_store.records import RECORD_SCHEMA
from sluice.log_store.values import TOPIC_MODE_BIT
from sluice.log_store.wal_values import WalBatch


class PartitionLog(PartitionAppends):
    def _on_won(self, commit: Commit, token: object) -> None:
        super()._on_won(commit, token)
        self.runtime.on_dirty(self)

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
