"""What every partition of one process shares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.conf.settings import LogSettings
from sluice.log_store.claims import Leadership, claim_check_s
from sluice.log_store.clock import Clock, WallGuard
from sluice.log_store.errors import StorageError
from sluice.log_store.figures import Figures
from sluice.log_store.pending_budget import PendingBudget
from sluice.log_store.scheduler import Scheduler
from sluice.log_store.store import Store, SyncNotTried
from sluice.log_store.tail_cache import TailCache
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal import Wal

if TYPE_CHECKING:
    from sluice.log_store.partition import PartitionLog


@dataclass(slots=True)
class Runtime:
    store: Store
    clock: Clock
    wall: WallGuard
    settings: LogSettings
    leadership: Leadership
    wal: Wal | None
    """None on a memory root, which promises nothing beyond this process."""
    scheduler: Scheduler
    commits: ThreadPoolExecutor
    maintenance: ThreadPoolExecutor
    tails: TailCache
    pending: PendingBudget
    figures: Figures = field(default_factory=Figures)
    sync_lock: threading.Lock = field(default_factory=threading.Lock)
    """One bulk sync at a time, else a sync point could be stated over files that another thread is still syncing.
    Taken after a partition's commit mutex, never before it."""
    closing: bool = False
    """Nothing more is accepted: what was accepted is being committed."""
    sync_failed: StorageError | None = None
    """Why nothing can be called synced any more, until a restart has checked what is on disk."""
    before_open: Callable[[PartitionRef, bool], int] = field(default=lambda _ref, _torn: -1)
    """Called before a partition is first loaded: repairs what a power loss tore. Returns the version that the log is
    known to reach. True says that it was found to be torn."""
    on_dirty: Callable[[PartitionLog], None] = field(default=lambda _partition: None)
    """Called when a partition has committed files that are not yet known to be durable."""

    def sync(self, paths: Iterable[str]) -> None:
        """Sync files of the store. Once that failed it is not tried again: the kernel forgets the pages that it could
        not write, and a second sync would prove nothing. Only where no sync was begun is the next one honest."""
        if self.sync_failed is not None:
            raise self.sync_failed
        try:
            self.store.sync(paths)
        except SyncNotTried:
            raise
        except StorageError as error:
            self.sync_failed = error
            raise

    @property
    def always_wal(self) -> bool:
        """On a local root with fsync the WAL is the durable copy of everything that is being committed."""
        return self.wal is not None and self.store.local_path is not None and self.store.fsync

    @property
    def claim_check_s(self) -> float:
        return claim_check_s(self.store)
