"""A lock on a local file. It ends with its holder's process: whoever gets it knows that the last holder is dead."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sluice.log_store.errors import StorageError
from sluice.log_store.os_files import explain


class FileLock:
    """`path=None`, for roots that are no folder: it can never be held."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> bool:
        """Whether it is held now; never waits."""
        if self._path is None or self._fd is not None:
            return self.held
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot open {self._path}: {explain(error)}", errno=error.errno) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
