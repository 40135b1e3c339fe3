"""Keeps busy partitions small: compaction, merges, trims, deletion of removed files. All of it behind the acks.

A partition is looked at when it has committed enough small files, and once more when it has become quiet. A partition
to which nothing happens has no timer here and costs nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from sluice.log_store.compaction_service import InProcessCompaction
from sluice.log_store.errors import SluiceError
from sluice.log_store.leftovers import sweep_leftovers
from sluice.log_store.merge import TIERS
from sluice.log_store.merger import lower_priority, merge_once
from sluice.log_store.partition import PartitionLog
from sluice.log_store.recent_removals import removed_since
from sluice.log_store.runtime import Runtime
from sluice.log_store.store import Listed
from sluice.log_store.sweep import SweepChoice, choose_sweep

_log = logging.getLogger(__name__)
LOOK_EVERY_VERSIONS = TIERS[0][1]
THOROUGH_EVERY_S = 3_600.0


def logged(work: Callable[[], None]) -> None:
    """Run background work; a bug in it must be seen, not vanish in a future that nobody asks."""
    try:
        work()
    except Exception:
        _log.exception("background work failed")
        raise


@dataclass(slots=True)
class Counters:
    """For metrics and doctor."""

    merges: int = 0
    merged_files: int = 0
    merged_bytes: int = 0
    removed_deleted: int = 0
    orphans_deleted: int = 0
    leftovers_deleted: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Watched:
    looked_at: int = -1
    """Version at the last look."""
    quiet_timer: bool = False
    sweep_timer: bool = False
    queued: bool = False
    changed_at: float = field(default=0.0)
    swept_at: float = field(default=float("-inf"))
    """When its folder was looked through for what no commit names."""


class Housekeeping:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._watched: dict[PartitionLog, _Watched] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sluice-merge", initializer=lower_priority)
        self._rest_until = 0.0
        self._resting: deque[tuple[PartitionLog, bool]] = deque()
        self._rest_timer = False
        self._started = runtime.clock.boottime()
        self.compaction = InProcessCompaction(
            runtime, lambda partition: self._submit(lambda: self._merge(partition, quiet=False))
        )
        self.counters = Counters()

    def partition_changed(self, partition: PartitionLog) -> None:
        """A version was committed. Cheap: it runs on the commit thread."""
        version = partition.state.version
        with self._lock:
            watched = self._watched.setdefault(partition, _Watched(looked_at=version))
            watched.changed_at = self._runtime.clock.boottime()
            start_timer = not watched.quiet_timer
            watched.quiet_timer = True
            busy = version - watched.looked_at >= LOOK_EVERY_VERSIONS and not watched.queued
            if busy:
                watched.looked_at, watched.queued = version, True
        if start_timer:
            self._after_quiet(partition)
        if busy:
            self._submit(lambda: self._merge(partition, quiet=False))

    def forget(self, partition: PartitionLog) -> None:
        with self._lock:
            self._watched.pop(partition, None)
        self.compaction.forget(partition)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    # --- merging -------------------------------------------------------------------------------

    def _after_quiet(self, partition: PartitionLog) -> None:
        self._runtime.scheduler.after(self._runtime.settings.merge_quiet_ms / 1000, lambda: self._if_quiet(partition))

    def _if_quiet(self, partition: PartitionLog) -> None:
        with self._lock:
            if (watched := self._watched.get(partition)) is None:
                return
            age = self._runtime.clock.boottime() - watched.changed_at
            quiet = age >= self._runtime.settings.merge_quiet_ms / 1000
            if quiet:
                watched.quiet_timer = False
        if quiet:
            self._submit(lambda: self._merge(partition, quiet=True))
        else:
            self._after_quiet(partition)

    def _merge(self, partition: PartitionLog, *, quiet: bool) -> None:
        """One merge, then come back after a rest that keeps the share of a core below the setting."""
        clock = self._runtime.clock
        if self._rest_until > clock.boottime():
            with self._lock:
                self._resting.append((partition, quiet))
            self._go_on_after_rest()
            return
        with self._lock:
            if (watched := self._watched.get(partition)) is None:
                return
            watched.queued = False
        begun, cpu = clock.boottime(), clock.thread_cpu()
        try:
            merged = None
            compacted = self.compaction.look(partition)
            if self._runtime.settings.merge_enable and not compacted:
                merged = merge_once(partition, partition.config, quiet=quiet)
        except SluiceError as error:
            self.counters.failures += 1
            _log.warning("merge of %s failed, the next look tries again: %s", partition.ref.tp, error)
            self._go_on_after_rest()
            return
        # What it used, not how long it took: on a busy machine this thread waits most of the time, and would rest for
        # as long again.
        used = clock.thread_cpu() - cpu
        self._rest_until = begun + used * 100 / self._runtime.settings.merge_cpu_percent
        if merged is not None:
            self.counters.merges += 1
            self.counters.merged_files += merged.files
            self.counters.merged_bytes += merged.bytes_before
        if merged is not None or compacted:
            self._submit(lambda: self._merge(partition, quiet=quiet))
        self._sweep_later(partition, self._runtime.settings.file_delete_delay_ms)
        self._go_on_after_rest()

    def _go_on_after_rest(self) -> None:
        """One timer, however many partitions wait."""
        with self._lock:
            if not self._resting or self._rest_timer:
                return
            self._rest_timer = True
        rest = max(0.0, self._rest_until - self._runtime.clock.boottime())
        self._runtime.scheduler.after(rest, self._rested)

    def _rested(self) -> None:
        with self._lock:
            self._rest_timer = False
            if not self._resting:
                return
            partition, quiet = self._resting.popleft()
        self._submit(lambda: self._merge(partition, quiet=quiet))

    def _submit(self, work: Callable[[], None]) -> None:
        try:
            self._pool.submit(logged, work)
        except RuntimeError:
            _log.debug("closing: housekeeping is left to the next start")

    # --- deleting files ------------------------------------------------------------------------

    def _sweep_later(self, partition: PartitionLog, delay_ms: int) -> None:
        with self._lock:
            watched = self._watched.get(partition)
            if watched is None or watched.sweep_timer:
                return
            watched.sweep_timer = True
        self._runtime.scheduler.after(delay_ms / 1000, lambda: self._submit(lambda: self._sweep_watched(partition)))

    def _sweep_watched(self, partition: PartitionLog) -> None:
        with self._lock:
            if (watched := self._watched.get(partition)) is None:
                return
            watched.sweep_timer = False
            now = self._runtime.clock.boottime()
            thorough = now - watched.swept_at >= THOROUGH_EVERY_S
            if thorough:
                watched.swept_at = now
        try:
            choice = self.sweep(partition, thorough=thorough)
        except SluiceError as error:
            self.counters.failures += 1
            _log.warning("sweep of %s failed, it is tried again: %s", partition.ref.tp, error)
            self._sweep_later(partition, self._runtime.settings.file_delete_delay_ms)
            return
        if not self._runtime.wall.trusted():
            self._sweep_later(partition, self._runtime.settings.file_delete_delay_ms)
        elif choice.next_due_ms is not None:
            # In company: one sweep for each file would look through all the others every time.
            least = max(1_000, self._runtime.settings.file_delete_delay_ms // 20)
            self._sweep_later(partition, max(least, choice.next_due_ms - self._runtime.clock.wall_ms()))

    def sweep(self, partition: PartitionLog, *, thorough: bool = True) -> SweepChoice:
        """Delete what may be deleted now. Nothing while wall time is not to be trusted (R-13).

        `thorough` looks through the folder for what no commit names, which costs a look at each of its files.
        """
        runtime = self._runtime
        if not runtime.wall.trusted() or runtime.sync_failed is not None:
            return SweepChoice()
        folder = partition.ref.folder
        delay_ms = max(partition.config.file_delete_delay_ms, runtime.settings.file_delete_delay_ms)
        now_ms = runtime.clock.wall_ms()
        live, removed = partition.known_files()
        names = [Listed(name, 0, 0) for name in removed]
        listing = runtime.store.list(folder) if thorough else names
        if thorough:
            # A checkpoint may know of removed files that an earlier process deleted.
            partition.files_deleted(removed.keys() - {item.name for item in listing})
        choice = choose_sweep(
            listing,
            live,
            removed,
            now_ms=now_ms,
            delete_delay_ms=delay_ms,
            orphan_retention_ms=runtime.settings.orphan_retention_ms if thorough else None,
        )
        # A checkpoint forgets removals after a while, and a removed file without its removal looks like an orphan. Once
        # this process is older than the delay, whatever was removed before it started is past its delay too; until
        # then the commits that are still there tell.
        if choice.orphans and runtime.clock.boottime() - self._started < delay_ms / 1000:
            kept = removed_since(runtime.store, folder, now_ms - delay_ms)
            choice = replace(choice, orphans=tuple(name for name in choice.orphans if name not in kept))
        # To a process that was replaced its successor's files look like orphans. Where no newer claim exists now, no
        # successor had written a file when the folder was listed.
        runtime.leadership.confirm(0)
        for name in (*choice.removed, *choice.orphans):
            runtime.store.delete(f"{folder}/{name}")
        partition.files_deleted(choice.removed)
        if thorough:
            self.counters.leftovers_deleted += sweep_leftovers(runtime.store, folder, runtime.clock.wall_ms())
        self.counters.removed_deleted += len(choice.removed)
        self.counters.orphans_deleted += len(choice.orphans)
        return choice
