"""A partition that storage does not let commit: how long it waits, when it parks, and how it comes back (section 2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sluice.log_store.errors import StorageError
from sluice.log_store.os_files import NEEDS_A_PERSON
from sluice.log_store.runtime import Runtime
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_values import WalBatch

_log = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MOST_S = 0.05, 2.0


class Stall:
    """Used by whoever commits, one at a time; what it shows may be read from anywhere."""

    def __init__(
        self, ref: PartitionRef, runtime: Runtime, batches: Callable[[], Sequence[WalBatch]], sync: Callable[[], None]
    ) -> None:
        """`batches` gives what the WAL holds and Delta does not; `sync` makes every commit durable."""
        self._ref = ref
        self._runtime = runtime
        self._batches = batches
        self._sync = sync
        self._since: float | None = None
        self._error: StorageError | None = None
        self._parked: Path | None = None
        self.retry_s = 0.0
        """How long the next try has to wait."""
        self.refuses = False
        """It could not commit for too long and takes nothing more until it can."""

    @property
    def why(self) -> str | None:
        return None if self._error is None else self._error.message

    @property
    def hopeless(self) -> str | None:
        """Why it makes no sense to wait for a commit: nothing but somebody who makes room can help."""
        error = self._error
        return None if error is None or error.fields.get("errno") not in NEEDS_A_PERSON else error.message

    def over(self) -> None:
        self.retry_s, self._since, self._error = 0.0, None, None

    def failed(self, error: StorageError) -> None:
        """Everything stays queued and is tried again, in order, for as long as it takes."""
        now = self._runtime.clock.boottime()
        self.retry_s = min(max(self.retry_s * 2, RETRY_FIRST_S), RETRY_MOST_S)
        self._error = error
        if self._since is None:
            self._since = now
            _log.warning("%s cannot commit, trying again: %s", self._ref.tp, error)
        if now - self._since > self._runtime.settings.partition_park_ms / 1000 and self._parked is None:
            self._park()

    def _park(self) -> None:
        """Copy what waits to a file of its own, so that this partition does not hold up the shared WAL."""
        first, self.refuses = not self.refuses, True
        batches = self._batches()
        if first:
            _log.error("%s is parked: it refuses produce until it can commit", self._ref.tp)
        try:
            if self._runtime.wal is not None and batches:
                self._parked = self._runtime.wal.park(self._ref, batches)
        except StorageError as error:
            # Tried again with the next failed commit; until then the shared WAL keeps the batches.
            _log.error("what waits for %s stays in the shared WAL: %s", self._ref.tp, error)

    def committed_all(self) -> None:
        """The parked copy is the durable one: it may go only when the lake has the rows for good."""
        if not self.refuses:
            return
        try:
            if self._parked is not None and self._runtime.wal is not None:
                self._sync()
                self._runtime.wal.unpark(self._parked)
        except StorageError as error:
            _log.warning("%s commits again but stays parked: %s", self._ref.tp, error)
            self._runtime.scheduler.after(RETRY_MOST_S, self._try_again)
            return
        self._parked, self.refuses = None, False
        _log.warning("%s commits again", self._ref.tp)

    def _try_again(self) -> None:
        with suppress(RuntimeError):  # the pool is shut down: the parked file waits for the next start
            self._runtime.maintenance.submit(self.committed_all)
