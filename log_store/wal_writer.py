"""The one thread that writes the log: everything queued goes out as one group with one fdatasync.

For each group: 1. write its bytes and an end mark; 2. fdatasync; 3. book it; 4. call back in order; 5. cut files.
A crash before 2 leaves a torn group that nobody was told about; after 2 the scan finds it whole; between 2 and 5 a
file stays that nobody needs and the next cut takes it.

A write or fsync that fails is never repeated on the same file: the kernel may have dropped the pages and say yes the
second time. The group is written again, in order, to a new file, until that works or the WAL is closed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sluice.log_store.clock import Clock
from sluice.log_store.wal_active import ActiveFile
from sluice.log_store.wal_format import HEADER_BYTES, FileHeader, Kind, encode_points
from sluice.log_store.wal_ledger import Ledger, LiveFile
from sluice.log_store.wal_ops import AppendOp, Op, SyncOp
from sluice.log_store.wal_pool import FilePool
from sluice.log_store.wal_values import WalClosed

_BACKOFF_S = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class WriterSettings:
    directory: Path
    uuid: bytes
    fsync: bool
    clock: Clock
    on_failure: Callable[[BaseException], None]


def _ignore(_error: OSError) -> None:
    pass


class WalWriter:
    def __init__(self, settings: WriterSettings, pool: FilePool, ledger: Ledger, previous: tuple[int, int]) -> None:
        self._settings = settings
        self._pool = pool
        self._ledger = ledger
        self._previous = previous
        self._active: ActiveFile | None = None
        self._changed = threading.Condition()
        self._queue: deque[Op] = deque()
        self._pending: deque[Op] = deque()
        self._queued_bytes = 0
        self._live_bytes = ledger.size
        self._news = False
        """A sync point is queued: it may free the space that a stalled writer waits for."""
        self._failures = 0
        self._closing = False
        self._broken: BaseException | None = None
        self.stalled_since: float | None = None
        self.stalled_by: OSError | None = None
        self.on_stall: Callable[[OSError], None] = _ignore
        """Hears of every failed attempt: whoever waits for what is queued may be told."""
        self._thread = threading.Thread(target=self._run, name="wal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, op: Op) -> None:
        with self._changed:
            if self._closing or self._broken is not None:
                raise WalClosed("the WAL is closed") from self._broken
            self._queue.append(op)
            self._queued_bytes += op.size
            self._news = self._news or isinstance(op, SyncOp)
            if len(self._queue) == 1 or self._news:
                self._changed.notify_all()

    @property
    def on_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def size_bytes(self) -> int:
        return self._live_bytes

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def room_left(self) -> int:
        """Bytes that still fit into the file being written."""
        active = self._active
        return 0 if active is None else active.room

    def close(self) -> None:
        """Writes what is queued; while the disk refuses it, fails it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        active, self._active = self._active, None
        if active is None:
            return
        if self._broken is None:
            with suppress(OSError):  # the next open need not look through what was never written
                os.ftruncate(active.fd, active.durable_end)
        os.close(active.fd)

    # --- everything below runs on the writer's thread ------------------------------------------

    def _run(self) -> None:
        try:
            while self._collect():
                self._step()
            self._leave_little()
        except WalClosed as error:
            self._broken = error
        except BaseException as error:  # noqa: BLE001  nobody else can tell those who wait
            self._broken = error
            self._report(error)
        self._fail_rest()

    def _collect(self) -> bool:
        """Move what is queued to what is pending; False when there is nothing left to do."""
        with self._changed:
            if not self._pending:
                self._changed.wait_for(lambda: self._queue or self._closing)
            self._pending.extend(self._queue)
            self._queue.clear()
            self._news = False
            return bool(self._pending)

    def _step(self) -> None:
        try:
            active = self._active
            if active is None or not active.fits(self._pending[0]):
                active = self._roll()
        except OSError as error:
            if not self._write_sync_points():
                self._stall(error)
            return
        active.encoder.begin_group()
        group: list[Op] = []
        while self._pending and active.fits(self._pending[0]):
            group.append(self._pending.popleft())
            active.encode(group[-1])
        if self._write(active, group):
            self._failures = 0
            self.stalled_since = self.stalled_by = None

    def _roll(self) -> ActiveFile:
        """Go on in a new file. It begins with all that must stay known when older files are cut."""
        ready = self._pool.take()
        self._leave(recycle=True)
        header = FileHeader(self._settings.uuid, ready.seq, *self._previous)
        active = self._active = ActiveFile(ready, header)
        self._ledger.files[ready.seq] = LiveFile(ready.seq, ready.name, 0)
        active.encoder.begin_group()
        for number, ref in self._ledger.borrowed().items():
            active.encoder.define(number, ref)
        for release in self._ledger.needed_releases(self._pool.leaving()):
            active.encoder.release(release)
        if self._ledger.points:
            active.encoder.entry(Kind.SYNC, encode_points(self._ledger.points.values()))
        return active

    def _leave(self, *, recycle: bool) -> None:
        active = self._active
        if active is None:
            return
        with suppress(OSError):  # whatever close has to say about the pages, nobody relies on them any more
            os.close(active.fd)
        self._active = None
        file = self._ledger.files[active.seq]
        file.recycle = recycle
        file.size = max(active.size, active.encoder.position)
        if active.durable_end > HEADER_BYTES:
            self._previous = (active.seq, active.durable_end)
        else:
            self._retire(file)

    def _write(self, active: ActiveFile, group: list[Op]) -> bool:
        try:
            active.write(fsync=self._settings.fsync)
        except OSError as error:
            self._leave(recycle=False)
            self._pending.extendleft(reversed(group))
            self._stall(error)
            return False
        self._book(active, group)
        return True

    def _book(self, active: ActiveFile, group: list[Op]) -> None:
        file = self._ledger.files[active.seq]
        file.size = active.durable_end
        for op in group:
            op.book(self._ledger, file)
        written = sum(op.size for op in group)
        with self._changed:
            self._queued_bytes -= written
            self._live_bytes = self._ledger.size
        controls = [op for op in group if not isinstance(op, AppendOp)]
        for op in group:
            if isinstance(op, AppendOp):
                self._finish(op, None)
        if controls:
            self._cut(active)
            for op in controls:
                self._finish(op, None)

    def _cut(self, active: ActiveFile) -> None:
        ledger = self._ledger
        for file in [file for file in ledger.files.values() if file.seq != active.seq]:
            if ledger.covered(file):
                self._retire(file)
        self._live_bytes = ledger.size

    def _retire(self, file: LiveFile) -> None:
        del self._ledger.files[file.seq]
        self._pool.retire(file.seq, self._settings.directory / file.name, recycle=file.recycle)

    def _leave_little(self) -> None:
        """In the end: what is on disk elsewhere need not be looked through at the next start, whatever its size."""
        active = self._active
        if active is None or not self._ledger.covered(self._ledger.files[active.seq]):
            return
        with suppress(OSError):  # then it is looked through
            fresh = self._roll()
            fresh.write(fsync=self._settings.fsync)
            self._cut(fresh)

    def _write_sync_points(self) -> bool:
        """No new file can be had. Sync points depend on no order: in the old file they may free the space for it."""
        active = self._active
        if active is None:
            return False
        self._collect()
        active.encoder.begin_group()
        group: list[Op] = []
        others: deque[Op] = deque()
        for op in self._pending:
            if isinstance(op, SyncOp) and active.fits(op):
                active.encode(op)
                group.append(op)
            else:
                others.append(op)
        self._pending = others
        return bool(group) and self._write(active, group)

    def _stall(self, error: OSError) -> None:
        self.stalled_by = error
        if self.stalled_since is None:
            self.stalled_since = self._settings.clock.boottime()
            self._report(error)
        delay = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)]
        if delay:
            try:
                self.on_stall(error)
            except Exception as failure:  # noqa: BLE001  as in `_finish`
                self._report(failure)
        self._failures += 1
        with self._changed:
            if delay:
                self._changed.wait_for(lambda: self._closing or self._news, timeout=delay)
            if self._closing and delay:
                raise WalClosed(f"the WAL was closed while its disk refused to write: {error}") from error

    def _fail_rest(self) -> None:
        error = self._broken or WalClosed("the WAL is closed")
        with self._changed:
            self._closing = True
            rest = [*self._pending, *self._queue]
            self._pending.clear()
            self._queue.clear()
            self._queued_bytes = 0
        for op in rest:
            self._finish(op, error)

    def _finish(self, op: Op, error: BaseException | None) -> None:
        try:
            op.done(error)
        except Exception as failure:  # noqa: BLE001  a broken callback must not stop the log for all others
            self._report(failure)

    def _report(self, error: BaseException) -> None:
        with suppress(Exception):
            self._settings.on_failure(error)
