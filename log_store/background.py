"""Work behind the acks: bulk sync and the cut of the WAL, checkpoints, delayed deletions. None of it is on a timer
unless there is something to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain

from sluice.log_store.errors import SluiceError, StorageError
from sluice.log_store.housekeeping import Housekeeping, logged
from sluice.log_store.partition import PartitionLog
from sluice.log_store.recovery import Finding
from sluice.log_store.runtime import Runtime
from sluice.log_store.store import SyncNotTried
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_values import SyncPoint

_log = logging.getLogger(__name__)
SYNC_AT_FILL = 0.25
DRAIN_POLL_S = 0.005


class Background:
    def __init__(self, runtime: Runtime, report: Callable[[Finding], None], sync_interval_s: float) -> None:
        self._runtime = runtime
        self._report = report
        self._lock = threading.Lock()
        self._dirty: set[PartitionLog] = set()
        self._scheduled = False
        self.housekeeping = Housekeeping(runtime)
        # On its own: behind slow checkpoints the WAL would fill up.
        self._syncing = ThreadPoolExecutor(1, thread_name_prefix="sluice-sync")
        self.sync_interval_s = sync_interval_s

    def troubles(self) -> list[str]:
        failed = self._runtime.sync_failed
        return [] if failed is None else [f"storage cannot be synced, restart needed: {failed}"]

    # --- bulk sync -----------------------------------------------------------------------------

    def partition_changed(self, partition: PartitionLog) -> None:
        """A version was committed: sync it within the interval, sooner when the WAL fills up."""
        wal = self._runtime.wal
        if wal is not None:
            with self._lock:
                self._dirty.add(partition)
                urgent = wal.fill > SYNC_AT_FILL
                schedule = not self._scheduled or urgent
                self._scheduled = True
            if schedule:
                self._runtime.scheduler.after(0.0 if urgent else self.sync_interval_s, self._submit_sync)
        self.housekeeping.partition_changed(partition)
        if partition.durability.checkpoint_due():
            self.submit(lambda: self._checkpoint(partition))

    def forget(self, partition: PartitionLog) -> None:
        """Its topic was deleted: nothing of it needs to reach the disk."""
        self.housekeeping.forget(partition)
        with self._lock:
            self._dirty.discard(partition)

    def close(self) -> None:
        self.housekeeping.close()
        self._syncing.shutdown(cancel_futures=True)

    def _submit_sync(self) -> None:
        with suppress(RuntimeError):  # closing: the last sync is done by hand
            self._syncing.submit(logged, self._sync_quietly)

    def _sync_quietly(self) -> None:
        try:
            self.sync_all()
        except SyncNotTried as error:
            _log.warning("bulk sync is tried again: %s", error)
            self._schedule_sync()
        except StorageError as error:
            _log.error("bulk sync failed: %s", error)

    def _schedule_sync(self) -> None:
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._runtime.scheduler.after(self.sync_interval_s, self._submit_sync)

    def sync_all(self) -> None:
        """Make everything that is committed durable with as few calls as possible, then cut the WAL."""
        with self._lock:
            dirty, self._dirty, self._scheduled = self._dirty, set(), False
        if (failed := self._runtime.sync_failed) is not None:
            raise failed
        if not dirty:
            return
        with self._runtime.sync_lock:
            points: dict[PartitionRef, SyncPoint | None] = {}
            paths: dict[PartitionLog, list[str]] = {}
            for partition in dirty:
                paths[partition], points[partition.ref] = partition.durability.take()
            try:
                self._runtime.sync(chain.from_iterable(paths.values()))
            except SyncNotTried:
                for partition, changed in paths.items():
                    partition.durability.found_unsynced(changed)
                with self._lock:
                    self._dirty |= dirty
                raise
            except StorageError as error:
                # The WAL keeps its entries, and the next start checks every file against its checksum.
                self._report(Finding(self._runtime.store.url, str(error), "the WAL is kept until a restart checks it"))
                raise
            if self._runtime.wal is not None:
                self._runtime.wal.note_synced({ref: point for ref, point in points.items() if point is not None})

    # --- checkpoints ---------------------------------------------------------------------------

    def _checkpoint(self, partition: PartitionLog) -> None:
        try:
            partition.checkpoint()
        except SluiceError as error:
            _log.warning("checkpoint of %s failed, the next one is tried later: %s", partition.ref.tp, error)
        finally:
            partition.durability.checkpoint_ended()

    # --- helpers -------------------------------------------------------------------------------

    def submit(self, work: Callable[[], None]) -> None:
        try:
            self._runtime.maintenance.submit(logged, work)
        except RuntimeError:
            _log.debug("closing: background work is left to the next start")

    def later(self, delay_s: float, work: Callable[[], None], what: str) -> None:
        def run() -> None:
            try:
                work()
            except SluiceError as error:
                _log.warning("%s failed: %s", what, error)

        self._runtime.scheduler.after(delay_s, lambda: self.submit(run))

    def drain(self, partitions: Iterable[PartitionLog], timeout_s: float) -> bool:
        """Wait until everything accepted is committed."""
        clock, pause = self._runtime.clock, threading.Event()
        deadline = clock.boottime() + timeout_s
        while waiting := [partition for partition in partitions if not partition.idle]:
            stopped = all(partition.problem is not None for partition in waiting)
            if stopped or clock.boottime() > deadline or self._runtime.leadership.fenced:
                return False
            pause.wait(DRAIN_POLL_S)
        return True
