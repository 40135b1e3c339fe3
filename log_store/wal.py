"""The leader's write-ahead log: local, sequential, checksummed, group-fsynced, shared by all partitions of a process.

A batch is in the log when its callback is called with None; from then on it is found again by `open` until a sync
point covers it or it is released. The format is described in `wal_format`, the order of writing in `wal_writer`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from sluice.log_store.clock import Clock, SystemClock
from sluice.log_store.errors import StorageError
from sluice.log_store.os_files import explain
from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.log_store.wal_files import CUT, PARKED, WalFolder, sync_files, sync_folder
from sluice.log_store.wal_format import batch_size, encode_batch
from sluice.log_store.wal_ops import AppendOp, Done, Op, ReleaseOp, SyncOp
from sluice.log_store.wal_pool import FilePool
from sluice.log_store.wal_recovery import Recovered, read_side_file, recover
from sluice.log_store.wal_scan import EntryReader
from sluice.log_store.wal_side import write_side_file
from sluice.log_store.wal_values import (
    NO_LIMIT,
    CorruptWal,
    ParkedFile,
    SyncPoint,
    WalBatch,
    WalClosed,
    WalEntryRef,
    WalFinding,
    WalLocked,
    WalScan,
    WalStalled,
    key_of,
)
from sluice.log_store.wal_writer import WalWriter, WriterSettings

__all__ = [
    "CorruptWal",
    "ParkedFile",
    "SyncPoint",
    "Wal",
    "WalBatch",
    "WalClosed",
    "WalEntryRef",
    "WalFinding",
    "WalLocked",
    "WalScan",
]

MIN_FILE_BYTES = 4096
_TRY_AGAIN_S = 1.0
_LOOK_EVERY_S = 0.5


def _ignore(_error: BaseException) -> None:
    pass


class Wal:
    def __init__(
        self, folder: WalFolder, settings: WriterSettings, recovered: Recovered, pool: FilePool, max_bytes: int
    ) -> None:
        """Use `open`."""
        self.uuid = folder.uuid
        self.max_bytes = max_bytes
        self.recovered: WalScan = recovered.scan
        ledger, unused = recovered.ledger()
        self._folder = folder
        self._settings = settings
        self._reader = EntryReader(folder.path, settings.uuid)
        self._pool = pool
        self._writer = WalWriter(settings, pool, ledger, recovered.previous)
        self._lock = threading.Lock()
        self._next_number = recovered.next_number
        self._numbers: dict[PartitionRef, int] = {}
        self._parked = {parked.path: parked for parked in recovered.scan.parked}
        self._tried_again_at = 0.0
        self._held: dict[PartitionRef, SyncPoint] | None = None
        """Sync points to be stated when recovery is over; None: they are stated at once."""
        self._closed = False
        for file in unused:
            pool.retire(file.seq, folder.path / file.name, recycle=True)
        pool.start()
        self._writer.start()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        max_bytes: int,
        file_bytes: int,
        fsync: bool = True,
        on_failure: Callable[[BaseException], None] = _ignore,
        clock: Clock | None = None,
    ) -> Wal:
        """Lock the folder, scan what is there, make it durable. New entries go to new files.

        `on_failure` hears of the first failure of each stall and of callbacks that raise; from the writer's thread.
        """
        if not MIN_FILE_BYTES <= file_bytes <= max_bytes // 2:
            raise ValueError(f"WAL files of {file_bytes} bytes: at least {MIN_FILE_BYTES}, at most half of {max_bytes}")
        with _storage_errors(f"cannot open the WAL in {directory}"):
            folder = WalFolder.open(directory)
            try:
                uuid = bytes.fromhex(folder.uuid)
                recovered = recover(folder.path, uuid)
                if fsync:
                    # What is found may be in the page cache only, and recovery is about to rely on it.
                    sync_files(folder.path)
                settings = WriterSettings(folder.path, uuid, fsync, clock or SystemClock(), on_failure)
                pool = FilePool(folder.path, file_bytes=file_bytes, first_seq=recovered.next_seq, fsync=fsync)
                return cls(folder, settings, recovered, pool, max_bytes)
            except BaseException:
                folder.close()
                raise

    def read(self, entry: WalEntryRef) -> WalBatch:
        """The batch with its payload; `CorruptWal` if it is not, or no longer, what was written."""
        return self._reader.read(entry)

    def forget_recovered(self) -> None:
        """Recovery is over: let go of the index. Sync points and entries themselves stay."""
        self.recovered = WalScan(sync_points=self.recovered.sync_points, findings=self.recovered.findings)

    def append(self, batch: WalBatch, done: Done) -> None:
        """Queue a batch. `done(None)` comes from the writer's thread, in the order of the calls, once it is fsynced.

        `done(error)` comes only from `close`, while the disk refuses to write: the batch may still be found again.
        """
        payload = memoryview(batch.payload).cast("B")
        head = encode_batch(batch)
        size = batch_size(head, payload)
        ref = batch.ref
        number = self._numbers.get(ref)
        if number is None:
            number = self._number(ref)
        self._writer.submit(
            AppendOp(ref, key_of(ref), number, batch.base_offset, batch.end_offset, head, payload, size, done)
        )

    def _number(self, ref: PartitionRef) -> int:
        with self._lock:
            number = self._numbers.get(ref)
            if number is None:
                number = self._numbers[ref] = self._next_number
                self._next_number += 1
            return number

    def note_synced(self, points: Mapping[PartitionRef, SyncPoint], *, wait: bool = True) -> None:
        """State what is on disk elsewhere, then cut every file that holds nothing else.

        Returns once the statement is fsynced; with `wait=False`, and on the writer's own thread, at once.
        """
        with self._lock:
            if self._held is not None:
                self._held.update(points)
                return
        if points:
            self._submit(lambda done: SyncOp(points, done), wait=wait)

    def hold_sync_points(self) -> None:
        """Until `state_held`. A point also hides entries that another leader's rows have replaced: stated before
        recovery has looked at them, it would drop what must be set aside (R-2)."""
        with self._lock:
            self._held = {}

    def state_held(self) -> None:
        """Every entry that was found is committed, set aside or released."""
        with self._lock:
            held, self._held = self._held, None
        self.note_synced(held or {})

    def release(self, ref: PartitionRef, offsets: OffsetRange | None = None, *, forget: bool = False) -> None:
        """Entries of the partition queued so far, or those inside `offsets`, are needed no more and are not replayed.

        `forget` drops its sync point too: the partition was deleted. Returns once that is fsynced.
        """
        start, end = (0, NO_LIMIT) if offsets is None else (offsets.start, offsets.end)
        self._submit(lambda done: ReleaseOp(ref, start, end, forget, done), wait=True)

    def _submit(self, make: Callable[[Done], Op], *, wait: bool) -> None:
        finished = threading.Event()
        outcome: list[BaseException | None] = []

        def done(error: BaseException | None) -> None:
            outcome.append(error)
            finished.set()

        self._writer.submit(make(done))
        if wait and not self._writer.on_this_thread:
            while not finished.wait(_LOOK_EVERY_S):
                # It stays queued; but whoever waits here may hold locks, or keep a service from starting.
                if (trouble := self._writer.stalled_by) is not None:
                    raise WalStalled(f"the write-ahead log cannot be written: {explain(trouble)}")
            if outcome[0] is not None:
                raise outcome[0]

    def park(self, ref: PartitionRef, batches: Iterable[WalBatch]) -> Path:
        """Copy entries to a file of their own, fsynced, then release them here. `open` finds them as parked."""
        path, offsets = write_side_file(
            self._folder.path / PARKED, self._settings.uuid, ref, batches, {"kind": "parked"}
        )
        parked = read_side_file(path, self._settings.uuid)[0]
        with self._lock:
            self._parked[path] = parked
        self.release(ref, offsets)
        return path

    def parked(self) -> list[ParkedFile]:
        with self._lock:
            return sorted(self._parked.values(), key=lambda parked: parked.path)

    def unpark(self, path: Path) -> None:
        """The parked entries are committed: delete their file."""
        with self._lock, _storage_errors(f"cannot delete {path}"):
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
            self._parked.pop(path, None)

    def set_aside(self, ref: PartitionRef, batches: Iterable[WalBatch], reason: str) -> Path:
        """Keep entries that must not be replayed (R-2) where people find them, then release them here."""
        note = {"kind": "cut", "reason": reason, "wall_ms": self._settings.clock.wall_ms()}
        path, offsets = write_side_file(self._folder.path / CUT, self._settings.uuid, ref, batches, note)
        self.release(ref, offsets)
        return path

    @property
    def size_bytes(self) -> int:
        """Bytes held by files that are still needed; of the one being written, those in use."""
        return self._writer.size_bytes

    @property
    def fill(self) -> float:
        """From 0 to 1, with what is queued."""
        return min(1.0, (self._writer.size_bytes + self._writer.queued_bytes) / self.max_bytes)

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes fit below the limit and onto the disk, as far as that is known."""
        queued = self._writer.queued_bytes + size
        if self._writer.size_bytes + queued > self.max_bytes or self.stalled_since is not None:
            return False
        if self._pool.error is None:
            return True
        self._try_again()
        return queued <= self._writer.room_left()

    def _try_again(self) -> None:
        now = self._settings.clock.boottime()
        if now - self._tried_again_at >= _TRY_AGAIN_S:
            self._tried_again_at = now
            self._pool.try_again()

    @property
    def trouble(self) -> str | None:
        """What the disk has against being written, in words; None if all is well."""
        if (stalled_by := self._writer.stalled_by) is not None:
            return explain(stalled_by)
        if (failed := self._pool.error) is None:
            return None
        self._try_again()
        return explain(failed)

    def on_stall(self, told: Callable[[OSError], None]) -> None:
        """`told` hears, from the writer's thread, of each attempt to write that failed."""
        self._writer.on_stall = told

    @property
    def stalled_since(self) -> float | None:
        """Boottime since which the disk refuses to write; None if all is well."""
        return self._writer.stalled_since

    def close(self) -> None:
        """Write what is queued, or fail it if the disk refuses, and unlock."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._writer.close()
        self._pool.close()
        self._reader.close()
        self._folder.close()

    def __enter__(self) -> Wal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _storage_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {explain(error)}", errno=error.errno) from error
