"""What `os` leaves open about writing files well: whole writes, durable folders, syncfs(2)."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_MODE = 0o666  # less the umask: Spark may read as another user
_IOV_MAX = 1024

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EMFILE: "this process has too many open files",
}
NEEDS_A_PERSON = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""What goes on until somebody makes room: whoever waits for storage is told instead of being kept waiting."""

# Older kernels answer 0 to syncfs even if a page could not be written.
_SYNCFS_HONEST_SINCE = (5, 8)


class SyncRefused(OSError):
    """fsync itself failed: the kernel may have dropped the pages, and would call the next try a success."""


def explain(error: BaseException) -> str:
    """An error of the operating system in the words of an operator."""
    number = getattr(error, "errno", None)
    if number in _REASONS:
        return f"{_REASONS[number]} ({errno.errorcode[number]})"
    return str(error)


def create(path: str) -> int:
    """A descriptor on a new file; `FileExistsError` if there is one."""
    return os.open(path, _CREATE, _MODE)


def write_all(fd: int, views: list[memoryview]) -> None:
    """Write flat, non-empty views in order, however many calls the kernel makes of it."""
    while views:
        written = os.writev(fd, views[:_IOV_MAX])
        done = 0
        while done < len(views) and written >= views[done].nbytes:
            written -= views[done].nbytes
            done += 1
        views = views[done:]
        if written:
            views[0] = views[0][written:]


def fsync_path(path: str) -> None:
    """fsync a file or a folder by name."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise SyncRefused(error.errno, error.strerror) from error
    finally:
        os.close(fd)


def unlink_quietly(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _find_syncfs() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if release < _SYNCFS_HONEST_SINCE:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
    return function


_syncfs = _find_syncfs()


def syncfs(fd: int) -> bool:
    """Sync the file system that holds `fd`; False if this machine cannot do it, `OSError` if it failed."""
    if _syncfs is None:
        return False
    if _syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise SyncRefused(number, os.strerror(number))
    return True
