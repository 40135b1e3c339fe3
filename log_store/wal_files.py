"""The folder of a WAL: who may use it, what it is called, and files made ready before they are needed."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from sluice.log_store.wal_format import FORMAT, check_format
from sluice.log_store.wal_values import CorruptWal, WalLocked

PARKED, CUT = "parked", "cut"
TEMPORARY = ".tmp"
_IOV_MAX = 1024
_LOG = re.compile(r"wal-(\d{20})\.log")
_SPARE = re.compile(r"spare-\d{20}\.wal")


def log_name(seq: int) -> str:
    return f"wal-{seq:020}.log"


def spare_name(seq: int) -> str:
    return f"spare-{seq:020}.wal"


def log_files(directory: Path) -> dict[int, Path]:
    """The log's files by sequence number, oldest first."""
    found = {int(match[1]): path for path in directory.iterdir() if (match := _LOG.fullmatch(path.name))}
    return dict(sorted(found.items()))


def spare_seq(path: Path) -> int:
    """The number that a spare file had in the log."""
    return int(path.stem.removeprefix("spare-"))


def spare_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if _SPARE.fullmatch(path.name))


def parked_files(directory: Path) -> list[Path]:
    return sorted((directory / PARKED).glob("*.wal"))


def sync_folder(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_files(directory: Path) -> None:
    for path in log_files(directory).values():
        fd = os.open(path, os.O_RDWR)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    sync_folder(directory)


def write_all(fd: int, parts: list[bytes | memoryview], position: int) -> None:
    """`pwritev` until everything is written, however little it takes at a time."""
    while parts:
        written = os.pwritev(fd, parts[:_IOV_MAX], position)
        position += written
        done = 0
        while done < len(parts) and written >= len(parts[done]):
            written -= len(parts[done])
            done += 1
        parts = parts[done:]
        if written:
            parts[0] = memoryview(parts[0])[written:]


class WalFolder:
    """The folder, locked by this process from `open` to `close`."""

    def __init__(self, path: Path, lock: int, uuid: str) -> None:
        self.path = path
        self.uuid = uuid
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> WalFolder:
        path = path.resolve()
        if not path.exists():
            path.mkdir(parents=True)
            sync_folder(path.parent)
        lock = _lock(path)
        try:
            uuid = _read_uuid(path)
            for folder in (path, path / PARKED, path / CUT):
                folder.mkdir(exist_ok=True)
                for left_over in folder.glob(f"*{TEMPORARY}"):
                    left_over.unlink()
            sync_folder(path)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, lock, uuid)

    def close(self) -> None:
        os.close(self._lock)


def _lock(path: Path) -> int:
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        if not isinstance(error, BlockingIOError):
            raise
        who = f"process {owner}" if owner else "another process"
        raise WalLocked(f"the WAL in {path} is in use by {who}", folder=str(path)) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _read_uuid(path: Path) -> str:
    meta = path / "meta.json"
    if not meta.exists():
        if log_files(path) or any((path / PARKED).glob("*.wal")):
            raise CorruptWal(
                f"{path} holds WAL files but no meta.json, so nothing says whose they are", folder=str(path)
            )
        write_atomically(meta, json.dumps({"uuid": secrets.token_hex(16), "format": FORMAT}).encode())
    try:
        fields = json.loads(meta.read_bytes())
        version, uuid = int(fields["format"]), str(fields["uuid"])
        if len(bytes.fromhex(uuid)) != 16:
            raise ValueError(uuid)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptWal(f"{meta} is not what Sluice wrote there", file=str(meta)) from error
    check_format(version)
    return uuid


def write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)
