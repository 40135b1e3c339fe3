"""The root is a folder: plain os calls, so that the hot path is open, write, close and nothing else.

`put` writes in place, because nobody knows the name yet. `put_if_absent` writes a hidden file beside the target and
links it: link(2) is atomic and refuses a name that exists. What a crash leaves behind is a hidden file, which no
listing shows, or an orphan data file, which no commit names.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import stat
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from posixpath import dirname

import pyarrow as pa

from sluice.log_store.os_files import SyncRefused, create, explain, fsync_path, syncfs, unlink_quietly, write_all
from sluice.log_store.store import (
    Buffers,
    Listed,
    Listing,
    Names,
    Stat,
    StoreConflict,
    StoreError,
    StoreNotFound,
    SyncNotTried,
    check_folder,
    check_path,
    check_range,
    views_of,
)

BULK_SYNC_FILES = 64
"""Above this many files one syncfs is cheaper than an fsync each, although it may write other people's pages too."""

_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # what an object store calls "no such key"


class LocalStore:
    delta_storage_options: dict[str, str] | None = None
    durable_puts = False

    def __init__(self, root: Path, *, fsync: bool = True) -> None:
        self.local_path = Path(os.path.abspath(root))
        self.url = self.local_path.as_uri()
        self.delta_uri = str(self.local_path)
        self.fsync = fsync
        self._prefix = os.path.join(self.local_path, "")
        # Hidden names are unique per store, process and call; nothing clears what an earlier process left.
        self._hidden = f"/.{secrets.token_hex(6)}-"
        self._serial = itertools.count()
        self._anchored: set[str] = set()
        """Folders that this store has synced into their parents, up to the root."""
        try:
            self._make_root()
        except OSError as error:
            raise _failed("open", self.url, error) from error

    def _make_root(self) -> None:
        made = [folder for folder in (self.local_path, *self.local_path.parents) if not folder.exists()]
        self.local_path.mkdir(parents=True, exist_ok=True)
        if not self.fsync:
            return
        for folder in made:
            fsync_path(str(folder.parent))
        # Held open, so that syncfs reports write errors of the whole time since the start.
        self._root_fd = os.open(self.local_path, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, self._root_fd)

    # --- writing --------------------------------------------------------------------------------

    def put(self, path: str, data: Buffers) -> None:
        target = self._prefix + check_path(path)
        views = views_of(data)
        try:
            self._write_new(target, path, views, sync=False)
        except FileExistsError as error:
            raise StoreConflict(path) from error
        except OSError as error:
            raise _failed("put", path, error) from error

    def put_if_absent(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        self._publish("put_if_absent", path, data, os.link, sync=sync)

    def replace(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        self._publish("replace", path, data, os.rename, sync=sync)

    def _publish(
        self, operation: str, path: str, data: Buffers, move: Callable[[str, str], None], *, sync: bool
    ) -> None:
        target = self._prefix + check_path(path)
        views = views_of(data)
        sync = sync and self.fsync
        hidden = self._hidden_beside(target)
        try:
            self._write_new(hidden, path, views, sync=sync)
            try:
                move(hidden, target)
            finally:
                unlink_quietly(hidden)  # after a rename there is none
            if sync:
                self._sync_folder(dirname(path))
        except FileExistsError as error:
            raise StoreConflict(path) from error
        except OSError as error:
            raise _failed(operation, path, error) from error

    def _hidden_beside(self, target: str) -> str:
        # The pid is asked for each time: after a fork both processes count on from the same number.
        return f"{target.rpartition('/')[0]}{self._hidden}{os.getpid()}-{next(self._serial)}.tmp"

    def _write_new(self, target: str, path: str, views: list[memoryview], *, sync: bool) -> None:
        try:
            fd = create(target)
        except FileNotFoundError:
            # Asking first would cost every put a stat; a missing folder is met once.
            self._make_folder(dirname(path))
            fd = create(target)
        try:
            try:
                write_all(fd, views)
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)
        except BaseException:
            # Ours alone (O_EXCL). Left behind, a cut file would turn the retry into a conflict.
            unlink_quietly(target)
            raise

    def _make_folder(self, folder: str) -> None:
        """Make a folder and those above it, but never the root: if that is gone, a volume was probably unmounted."""
        if not folder:
            return
        self._anchored.discard(folder)
        try:
            os.mkdir(self._prefix + folder)
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make_folder(dirname(folder))
            with suppress(FileExistsError):
                os.mkdir(self._prefix + folder)

    # --- reading --------------------------------------------------------------------------------

    def get(self, path: str) -> bytes:
        try:
            with FileIO(self._prefix + check_path(path)) as file:
                return file.readall()
        except _MISSING as error:
            raise StoreNotFound(path) from error
        except OSError as error:
            raise _failed("get", path, error) from error

    def get_range(self, path: str, start: int, length: int) -> bytes:
        check_range(start, length)
        try:
            with FileIO(self._prefix + check_path(path)) as file:
                fd = file.fileno()
                wanted = max(0, min(length, os.fstat(fd).st_size - start))
                return os.pread(fd, wanted, start) if wanted else b""
        except _MISSING as error:
            raise StoreNotFound(path) from error
        except OSError as error:
            raise _failed("get_range", path, error) from error

    def stat(self, path: str) -> Stat:
        try:
            found = os.stat(self._prefix + check_path(path))
        except _MISSING as error:
            raise StoreNotFound(path) from error
        except OSError as error:
            raise _failed("stat", path, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise StoreNotFound(path)
        return Stat(found.st_size, found.st_mtime_ns // 1_000_000)

    def open_input(self, path: str) -> pa.NativeFile:
        try:
            # Not mapped, though that is a little faster: a bad sector under a mapping is SIGBUS, which ends us.
            return pa.OSFile(self._prefix + check_path(path), "r")
        except _MISSING as error:
            raise StoreNotFound(path) from error
        except OSError as error:
            self.stat(path)  # pyarrow's error for a folder has no errno; this one does
            raise _failed("open_input", path, error) from error

    # --- folders --------------------------------------------------------------------------------

    def list(self, folder: str, after: str | None = None) -> Listing:
        found = []
        try:
            for entry in self._entries(folder):
                with suppress(FileNotFoundError):  # deleted since the listing began
                    if (after is None or entry.name > after) and entry.is_file():
                        about = entry.stat()
                        found.append(Listed(entry.name, about.st_size, about.st_mtime_ns // 1_000_000))
        except OSError as error:
            raise _failed("list", folder, error) from error
        return sorted(found, key=lambda listed: listed.name)

    def list_folders(self, folder: str) -> Names:
        try:
            return sorted(entry.name for entry in self._entries(folder) if entry.is_dir())
        except OSError as error:
            raise _failed("list_folders", folder, error) from error

    def _entries(self, folder: str) -> Iterable[os.DirEntry[str]]:
        try:
            with os.scandir(self._prefix + check_folder(folder)) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except _MISSING:
            return []

    def delete(self, path: str) -> None:
        try:
            os.unlink(self._prefix + check_path(path))
        except _MISSING:
            return
        except OSError as error:
            raise _failed("delete", path, error) from error

    def delete_folder(self, folder: str) -> None:
        try:
            for inside, _, names in os.walk(self._prefix + check_path(folder), topdown=False):
                for name in names:
                    with suppress(FileNotFoundError):  # others may be deleting too
                        os.unlink(os.path.join(inside, name))
                with suppress(FileNotFoundError):
                    os.rmdir(inside)
        except OSError as error:
            raise _failed("delete_folder", folder, error) from error

    # --- durability -----------------------------------------------------------------------------

    def sync(self, paths: Iterable[str]) -> None:
        names = dict.fromkeys(check_path(path) for path in paths) if self.fsync else {}
        if not names:
            return
        folders = dict.fromkeys(dirname(name) for name in names)
        at = self.url
        try:
            if len(names) > BULK_SYNC_FILES and self._on_one_device(folders) and syncfs(self._root_fd):
                self._anchored.update(folders)
                return
            for at in names:
                with suppress(FileNotFoundError):
                    fsync_path(self._prefix + at)
            for at in folders:
                with suppress(FileNotFoundError):
                    self._sync_folder(at)
        except SyncRefused as error:
            raise _failed("sync", at, error) from error
        except OSError as error:
            raise _failed("sync", at, error, SyncNotTried) from error

    def _on_one_device(self, folders: Iterable[str]) -> bool:
        """syncfs reaches one file system; a topic may be mounted from another."""
        device = os.fstat(self._root_fd).st_dev
        try:
            return all(os.stat(self._prefix + folder).st_dev == device for folder in folders)
        except FileNotFoundError:
            return False

    def _sync_folder(self, folder: str) -> None:
        """Sync a folder and, once per folder, its own entry in the folders above: who made it may not have."""
        fsync_path(self._prefix + folder)
        climbed = []
        while folder and folder not in self._anchored:
            climbed.append(folder)
            folder = dirname(folder)
            fsync_path(self._prefix + folder)
        self._anchored.update(climbed)


def _failed(operation: str, path: str, error: Exception, kind: type[StoreError] = StoreError) -> Exception:
    number = getattr(error, "errno", None)
    if number == errno.ENAMETOOLONG:
        return ValueError(f"not a path below the root: too long: {path!r}")
    return kind(f"{operation} {path}: {explain(error)}", operation=operation, path=path, errno=number)
