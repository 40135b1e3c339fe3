"""What one partition has committed but not yet synced, and its checkpoints (section 2, R-5, R-6)."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable

from sluice.log_store.checkpoints import KEPT_CHECKPOINTS, clean_log, write_checkpoint
from sluice.log_store.delta_log import Commit, commit_path, decode_commit
from sluice.log_store.errors import StorageError
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.runtime import Runtime
from sluice.log_store.store import Store, StoreNotFound
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_values import SyncPoint

RETRY_SHARE = 10
"""A checkpoint that failed is tried again after a tenth of the interval between two."""


def unsynced_files(store: Store, ref: PartitionRef, after: int, state: PartitionState) -> list[str]:
    """Commits later than version `after`, and the files they added that are still live."""
    paths: list[str] = []
    live = {file.path for file in state.files}
    for version in range(after + 1, state.version + 1):
        try:
            commit = decode_commit(version, store.get(commit_path(ref.folder, version)))
        except StoreNotFound:
            continue  # below a checkpoint, which is written only after everything in it was synced
        paths.append(commit_path(ref.folder, version))
        paths += [f"{ref.folder}/{file.path}" for file in commit.adds if file.path in live]
    return paths


def _spread(interval: int, ref: PartitionRef) -> int:
    """A sixth more or less, always the same for a partition: those of a topic are written to at the same rate, and
    their checkpoints would all come in the same moment."""
    room = interval // 3
    return interval - room // 2 + zlib.crc32(ref.folder.encode()) % room if room > 1 else interval


class Durability:
    """Shares the partition's lock; `state` gives its committed state."""

    def __init__(
        self, ref: PartitionRef, runtime: Runtime, lock: threading.Lock, state: Callable[[], PartitionState]
    ) -> None:
        self._ref = ref
        self._runtime = runtime
        self._lock = lock
        self._state = state
        self._dirty: list[str] = []
        self._point: SyncPoint | None = None
        """What may be stated as synced once everything dirty is."""
        self._checkpointing = False
        self._oldest: int | None = None
        """The oldest commit file that is still there; None until a clean-up has looked."""
        self._proved: tuple[int, ...] = ()
        """Checkpoints that this process wrote and read back."""
        self._not_before = -1
        """Version at which a checkpoint that failed is tried again: each try reads everything since the last one."""
        self.checkpointed = -1
        """Version of the newest checkpoint."""
        self._interval = _spread(runtime.settings.checkpoint_interval_versions, ref)

    def committed_locked(self, commit: Commit) -> None:
        """After the state has taken it. What a fenced process follows of its successor's log never comes here."""
        self._point = SyncPoint(commit.version, self._state().end)
        self._dirty.append(commit_path(self._ref.folder, commit.version))
        self._dirty.extend(f"{self._ref.folder}/{file.path}" for file in commit.adds)

    def found_unsynced(self, paths: list[str]) -> None:
        """Files of versions that an earlier process committed and nobody is known to have synced."""
        with self._lock:
            self._dirty = list(dict.fromkeys(paths + self._dirty))
            if self._point is None and (state := self._state()).exists:
                self._point = SyncPoint(state.version, state.end)

    def take(self) -> tuple[list[str], SyncPoint | None]:
        """Files to sync, and what may be stated once they are. The caller holds the sync lock."""
        with self._lock:
            dirty, self._dirty = self._dirty, []
            return dirty, self._point

    def sync_now(self) -> None:
        """Make every committed version durable, and tell the WAL."""
        with self._runtime.sync_lock:
            paths, point = self.take()
            try:
                self._runtime.sync(paths)
            except StorageError:
                with self._lock:
                    self._dirty = paths + self._dirty
                raise
            if self._runtime.wal is not None and point is not None:
                self._runtime.wal.note_synced({self._ref: point})

    def checkpoint_due(self) -> bool:
        """Claims the task: whoever is told yes must call `checkpoint`."""
        with self._lock:
            version = self._state().version
            due = version - self.checkpointed >= self._interval
            if not due or self._checkpointing or version < self._not_before:
                return False
            self._checkpointing = True
            return True

    def checkpoint(self, retention_ms: int | None = None) -> int:
        """Write state snapshot and Delta checkpoint of the newest version, then clean the log before them.

        `retention_ms`: how long commit files are kept; the setting if None.
        """
        runtime, folder = self._runtime, self._ref.folder
        try:
            with self._lock:
                state = self._state()
                if not state.exists:
                    return state.version
                version, snapshot, content = state.version, state.to_snapshot(), state.checkpoint_content()
            self._not_before = version + max(1, runtime.settings.checkpoint_interval_versions // RETRY_SHARE)
            # A checkpoint may outlive a power loss that its files do not: everything in it is synced first.
            self.sync_now()
            written = write_checkpoint(runtime.store, folder, content, snapshot)
            if written:
                runtime.figures.checkpointed()
                self._proved = (*self._proved, version)[-KEPT_CHECKPOINTS:]
            if written and runtime.wall.trusted():
                cutoff = runtime.clock.wall_ms() - (retention_ms or runtime.settings.json_retention_ms)
                cleaned = clean_log(
                    runtime.store,
                    folder,
                    older_than_ms=cutoff,
                    synced_version=version,
                    oldest=self._oldest,
                    proved=self._proved,
                )
                self._oldest = cleaned.oldest
                runtime.figures.cleaned(cleaned)
            self.checkpointed = version
            return version
        finally:
            self.checkpoint_ended()

    def checkpoint_ended(self) -> None:
        """Whoever was told that one is due says so in any case, else none would ever be due again."""
        self._checkpointing = False
