"""What one led partition is made of, what is known of it, and how it is opened and claimed.

Two locks, always taken in this order: `_commit` (held across storage calls by whoever creates a version) and
`_lock` (short; queue and state). Answers are given outside `_lock`.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from sluice.log_store import snapshot
from sluice.log_store.append_queue import AppendQueue
from sluice.log_store.committer import Committer
from sluice.log_store.delta_log import Commit, DataFile
from sluice.log_store.durability import Durability, unsynced_files
from sluice.log_store.errors import IntegrityError
from sluice.log_store.log_shape import LogShape
from sluice.log_store.partition_loading import load_partition
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.producers import ProducerWindows
from sluice.log_store.runtime import Runtime
from sluice.log_store.stall import Stall
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_values import WalBatch

_log = logging.getLogger(__name__)

NO_WAL = "none"


class PartitionCore(ABC):
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
        self._read_at = float("-inf")
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

    @abstractmethod
    def _on_won(self, commit: Commit, token: object) -> None:
        """A version stands."""

    def _logged_batches(self) -> list[WalBatch]:
        with self._lock:
            return self._queue.logged_batches()

    # --- what is known -------------------------------------------------------------------------

    @property
    def opened(self) -> bool:
        return self._opened

    @property
    def ready(self) -> bool:
        """Opened and claimed: an append will not wait for storage."""
        return self._claimed

    @property
    def unsettled(self) -> bool:
        """Opened so soon after the take-over that a predecessor may have answered for later versions (R-1)."""
        return not self._claimed and self._read_at < self.runtime.leadership.settled_at

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
            self._read_at = begun
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

    def _follows(self) -> bool:
        """A claim that is in doubt will meet what there is."""
        return self.runtime.leadership.fenced or (self.unsettled and not self._committer.in_doubt)

    def refresh(self) -> None:
        """Follow a log that another process leads (a fenced service goes on serving reads).

        A leader's own state is always the newest there is, but for the first moment after a take-over.
        """
        if not self._follows():
            return
        with self._commit:
            if not self._follows():
                return  # it was claimed meanwhile
            begun = self.runtime.clock.boottime()
            if self._opened and snapshot.reload_needed(self.runtime.store, self.ref.folder, self._state):
                self._opened = False
            self._open_locked()
            with self._lock:
                problem = snapshot.follow(self.runtime.store, self.ref.folder, self._state)
                self._committer.problem = self._committer.problem or problem
                self._read_at = begun
            self.runtime.tails.drop(self.ref.folder)
        self._notify()

    # --- listeners -----------------------------------------------------------------------------

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
