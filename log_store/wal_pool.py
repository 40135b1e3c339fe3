"""The next file of the log, ready before it is asked for, and the old ones that it is made of.

Files are filled with real zeros: the blocks are there before an offset is promised, and an fdatasync into them has no
metadata to write. A file that was cut is renamed and written over; its old entries are sealed to its old number.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sluice.log_store.wal_files import TEMPORARY, log_name, spare_files, spare_name, spare_seq, sync_folder
from sluice.log_store.wal_values import WalClosed

MAX_SPARES = 8
"""Cut files kept for reuse: zero-filling new ones costs a fifth of the throughput (`make bench`, parallel)."""
_ZEROS = bytes(1 << 20)
_SYNC_EVERY = 8 << 20  # the writer's own fdatasync waits for no more than this


@dataclass(frozen=True, slots=True)
class ReadyFile:
    seq: int
    name: str
    fd: int
    size: int


@dataclass(frozen=True, slots=True)
class _Retired:
    seq: int
    path: Path
    recycle: bool


class FilePool:
    """One background thread owns all names in the folder; the writer only asks (`take`) and gives back (`retire`)."""

    def __init__(self, directory: Path, *, file_bytes: int, first_seq: int, fsync: bool) -> None:
        self._directory = directory
        self._file_bytes = file_bytes
        self._fsync = fsync
        self._spares = spare_files(directory)
        # The entries of a spare file are sealed to its number: under that number they would count again.
        self._next_seq = max([first_seq, *(spare_seq(path) + 1 for path in self._spares)])
        self._changed = threading.Condition()
        self._retired: deque[_Retired] = deque()
        self._leaving: set[int] = set()
        self._ready: ReadyFile | None = None
        self._error: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="wal-files", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> ReadyFile:
        """The next file; waits for it if need be. `OSError` if none can be made: asking again tries again."""
        with self._changed:
            self._error = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ready or self._error or self._closing)
            if self._ready is not None:
                ready, self._ready = self._ready, None
                self._changed.notify_all()
                return ready
            if self._error is not None:
                raise self._error
            raise WalClosed("the WAL is closed")

    def retire(self, seq: int, path: Path, *, recycle: bool) -> None:
        """Nobody needs this file any more."""
        with self._changed:
            self._retired.append(_Retired(seq, path, recycle))
            self._leaving.add(seq)
            self._error = None
            self._changed.notify_all()

    def leaving(self) -> set[int]:
        """Retired files that a crash could still bring back."""
        with self._changed:
            return set(self._leaving)

    @property
    def error(self) -> Exception | None:
        """Why no file is ready, if the last attempt failed."""
        return self._error

    def try_again(self) -> None:
        with self._changed:
            self._error = None
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._ready is not None:
            os.close(self._ready.fd)
            # Under a log's name the next open would look for entries in all of it.
            self._put_away(_Retired(self._ready.seq, self._directory / self._ready.name, recycle=True))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._retired or self._closing or self._wanted())
                retired = self._retired.popleft() if self._retired else None
                if retired is None and self._closing:
                    return
            if retired is not None:
                self._put_away(retired)
                continue
            try:
                ready, error = self._prepare(), None
            except Exception as failure:  # noqa: BLE001  the writer waits for an answer, whatever it is
                ready, error = None, failure
            with self._changed:
                self._ready, self._error = ready, error
                self._changed.notify_all()

    def _wanted(self) -> bool:
        return self._ready is None and self._error is None

    def _put_away(self, retired: _Retired) -> None:
        # A file that cannot be renamed or removed costs space, not data: the next open meets it again.
        with suppress(OSError):
            if not retired.recycle or len(self._spares) >= MAX_SPARES or retired.path.stat().st_size < self._file_bytes:
                retired.path.unlink()
            else:
                spare = retired.path.with_name(spare_name(retired.seq))
                retired.path.rename(spare)
                os.truncate(spare, self._file_bytes)
                self._spares.append(spare)
            sync_folder(self._directory)
            with self._changed:
                self._leaving.discard(retired.seq)

    def _prepare(self) -> ReadyFile:
        path = self._directory / log_name(self._next_seq)
        source = self._spares[0] if self._spares else self._make()
        with suppress(IndexError):
            del self._spares[0]
        try:
            source.rename(path)
            fd = os.open(path, os.O_RDWR)
        except OSError:
            if source.exists():
                source.unlink()
            raise
        try:
            if os.fstat(fd).st_size != self._file_bytes:
                self._resize(fd)
            # Before the first write: or a crash could bring the file back under its old name.
            sync_folder(self._directory)
        except OSError:
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise
        self._next_seq += 1
        return ReadyFile(self._next_seq - 1, path.name, fd, self._file_bytes)

    def _make(self) -> Path:
        path = self._directory / f"next{TEMPORARY}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            self._resize(fd)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)
        return path

    def _resize(self, fd: int) -> None:
        """Cut to the size of a file, or fill up with zeros."""
        os.ftruncate(fd, min(os.fstat(fd).st_size, self._file_bytes))
        done = synced = os.fstat(fd).st_size
        while done < self._file_bytes:
            done += os.pwrite(fd, _ZEROS[: self._file_bytes - done], done)
            if self._fsync and done - synced >= _SYNC_EVERY:
                os.fsync(fd)
                synced = done
        if self._fsync:
            os.fsync(fd)
