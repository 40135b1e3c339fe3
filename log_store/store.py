"""The storage port: the few verbs that the log needs from a disk, a bucket or a dictionary.

Paths are relative to the root and separated by '/'. Every implementation is synchronous and thread-safe, and no
foreign exception (`OSError`, obstore's) leaves it: callers see the three errors below, with the cause attached, or a
`ValueError` for a path that no store could hold.

::

    open_store(url) ── a folder, file://   local_store.LocalStore     os calls, fsync
                    ├─ memory://[name]     object_store.MemoryStore   unit tests, examples
                    └─ s3:// gs:// az://   object_store.ObjectStore   through obstore
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from sluice.log_store.errors import StorageError

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

# Bytes, a pyarrow buffer, …, or several in a row. A string, because `Buffer` has no name at run time before 3.12.
Buffers: TypeAlias = "Buffer | Sequence[Buffer]"


class StoreConflict(Exception):
    """The name is taken. On an object store the taker may be our own, retried request: read back to know (I-2)."""

    def __init__(self, path: str) -> None:
        super().__init__(f"already exists: {path}")
        self.path = path


class StoreNotFound(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(f"not found: {path}")
        self.path = path


class StoreError(StorageError):
    """The store failed. A write that raised this may or may not have been applied (R-4).

    `fields`: `operation`, `path`, and `errno` if the operating system gave one.
    """


class SyncNotTried(StoreError):
    """Some file could not even be opened to be synced: no page was given up, so trying again is honest."""


@dataclass(frozen=True, slots=True)
class Stat:
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listed:
    name: str
    """The name inside the listed folder, not the whole path."""
    size: int
    modified_ms: int


# Inside the classes `list` is a method, so the types need names of their own.
Listing: TypeAlias = list[Listed]
Names: TypeAlias = list[str]


class Store(Protocol):
    @property
    def url(self) -> str:
        """The root as a person would write it."""

    @property
    def local_path(self) -> Path | None:
        """The root folder, if it is one."""

    @property
    def delta_uri(self) -> str | None:
        """What deltalake takes, once `/` and a folder are added; None where it cannot follow (memory)."""

    @property
    def delta_storage_options(self) -> dict[str, str] | None: ...

    @property
    def durable_puts(self) -> bool:
        """Whether a write that returned survives the loss of the machine (object stores)."""

    @property
    def fsync(self) -> bool:
        """Whether `sync` and the `sync` arguments do anything."""

    def put(self, path: str, data: Buffers) -> None:
        """Write a file whose name is unique for ever (I-4); `StoreConflict` if it is not.

        Readers that know the name may see it half-written: nobody may learn it before this returns.
        """

    def put_if_absent(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        """Create a file at once and whole; `StoreConflict` if it exists. One winner among any number of racers."""

    def replace(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        """Create or overwrite; readers see the old bytes or the new ones, never a mix."""

    def get(self, path: str) -> bytes: ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """The bytes `[start, start + length)` that exist: shorter, or empty, where the file ends earlier."""

    def stat(self, path: str) -> Stat: ...

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable input that goes on working when the file is deleted meanwhile. The caller closes it."""

    def list(self, folder: str, after: str | None = None) -> Listing:
        """Files directly in `folder` ("" is the root), in name order, behind `after` if given; hidden ones left out."""

    def list_folders(self, folder: str) -> Names:
        """Names of the folders directly in `folder`, in order. Only a local root can show an empty one."""

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""

    def delete_folder(self, folder: str) -> None:
        """Delete everything below `folder`; a missing one is fine."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make files and the folders that lead to them durable; those deleted meanwhile are passed over.

        After a failure the state on disk is unknown, and trying again proves nothing: the kernel forgets pages that
        it could not write. Only a rewrite, or the WAL, helps.
        """


# A part may not begin with '.': that refuses '.' and '..', and keeps hidden names for temporary files. Control
# characters, lone surrogates and '\' are refused because some store or Delta reader would take them otherwise.
_PART = r"[^./\\\x00-\x1f\x7f\ud800-\udfff][^/\\\x00-\x1f\x7f\ud800-\udfff]*"
_is_path = re.compile(rf"{_PART}(?:/{_PART})*").fullmatch


def check_path(path: str) -> str:
    """The path itself, or `ValueError`."""
    if _is_path(path) is None:
        raise ValueError(f"not a path below the root: {path!r}")
    return path


def check_folder(path: str) -> str:
    """Like `check_path`, but the root itself ("") is allowed."""
    return path and check_path(path)


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 0:
        raise ValueError(f"not a range: start {start}, length {length}")


def views_of(data: Buffers) -> list[memoryview]:
    """The data as flat byte views without empty ones, so that lengths are bytes. `TypeError` for anything else."""
    parts = data if isinstance(data, (list, tuple)) else (data,)
    views = [memoryview(part) for part in parts]
    return [view.cast("B") for view in views if view.nbytes]


REQUEST_TIMEOUT = "timeout"
"""Storage option: how long the transfer of one object may take, as text in whole milliseconds such as `30000ms`."""
OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})


def open_store(url: str | Path, *, fsync: bool = True, storage_options: Mapping[str, str] | None = None) -> Store:
    """Open the root that `url` names; a local one is created.

    `memory://name` is one store per name in this process; `memory://` is a new one each time. `storage_options` are
    object_store's keys (`aws_endpoint_url`, …) for object stores only, given to obstore and to deltalake alike.
    """
    # Imported here because the adapters need this module.
    from sluice.log_store.local_store import LocalStore
    from sluice.log_store.object_store import MemoryStore, ObjectStore

    text = str(url)
    scheme, separator, rest = text.partition("://")
    if not text:
        raise ValueError("the root needs a name")
    if isinstance(url, Path) or not separator:
        return LocalStore(Path(text), fsync=fsync)
    if scheme == "file":
        return LocalStore(_file_url_path(text), fsync=fsync)
    if scheme == "memory":
        return MemoryStore.named(rest) if rest else MemoryStore()
    if scheme in OBJECT_SCHEMES:
        return ObjectStore.from_url(text, storage_options or {})
    raise ValueError(f"cannot store at {text!r}: use a folder, file://, memory://, s3://, gs:// or az://")


def _file_url_path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise ValueError(f"not a local folder: {url!r} (write file:///folder)")
    return Path(unquote(parts.path))
