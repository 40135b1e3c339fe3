"""Every root that is not a folder, through obstore: memory for tests and examples; S3, GCS and Azure.

How long a call may take. The log tries again by itself, in order and with identical bytes (R-4), so a call that fails
soon is worth more than one that hides an outage: obstore's own three minutes are cut to seconds. Requests for small
things (commits, claims, renewals) have a time-out of their own: a connection that hangs must not cost a leader its
claim, and no time-out fits both a renewal and a file of 128 MiB on a slow line.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import obstore
import obstore.store
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError

from sluice.log_store.store import (
    REQUEST_TIMEOUT,
    Buffers,
    Listed,
    Listing,
    Names,
    Stat,
    StoreConflict,
    StoreError,
    StoreNotFound,
    check_folder,
    check_path,
    check_range,
    views_of,
)

CONNECT_S, REQUEST_S = 5, 30
"""Until a connection stands, and until a data file is transferred; `storage.request.timeout.ms` sets the second."""
SMALL_BYTES, SMALL_REQUEST_S = 1 << 20, 5
RETRIES, RETRY_S, SMALL_RETRY_S, BACKOFF_MOST_S = 3, 20, 10, 2

_MOST_BYTES = 1 << 62
_CREATES = frozenset({"put", "put_if_absent"})
_FINDS = frozenset({"get", "get_range", "stat", "open_input", "delete"})


class ObjectStore:
    local_path: Path | None = None
    fsync = False

    def __init__(
        self,
        inner: obstore.store.ObjectStore,
        *,
        url: str,
        delta_uri: str | None,
        delta_storage_options: dict[str, str] | None = None,
        durable_puts: bool = True,
        bulk: obstore.store.ObjectStore | None = None,
    ) -> None:
        """`bulk`: the same place with more patience, for data files."""
        self._inner = inner
        self._bulk = bulk or inner
        self.url = url
        self.delta_uri = delta_uri
        self.delta_storage_options = delta_storage_options
        self.durable_puts = durable_puts

    @classmethod
    def from_url(cls, url: str, options: Mapping[str, str]) -> ObjectStore:
        """Both libraries also read the cloud's own environment variables; `options` go before those."""
        url = url.rstrip("/")
        config: Any = {key.lower(): value for key, value in options.items()}
        client: Any = {"connect_timeout": timedelta(seconds=CONNECT_S)}
        for key in [key for key in config if key.endswith("allow_http")]:
            client["allow_http"] = config.pop(key)  # obstore keeps this one apart, deltalake does not
        request_s = int(config.pop(REQUEST_TIMEOUT, f"{REQUEST_S * 1000}ms").removesuffix("ms")) / 1000

        def connect(timeout_s: float, retry_s: float) -> obstore.store.ObjectStore:
            limits: Any = client | {"timeout": timedelta(seconds=timeout_s)}
            retry: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=retry_s)}
            retry["backoff"] = {"max_backoff": timedelta(seconds=BACKOFF_MOST_S)}
            return obstore.store.from_url(url, config=config or None, client_options=limits, retry_config=retry)

        with _border("open", url):
            small = connect(min(request_s, SMALL_REQUEST_S), SMALL_RETRY_S)
            bulk = connect(request_s, RETRY_S)
        return cls(small, url=url, delta_uri=url, delta_storage_options=dict(options), bulk=bulk)

    def put(self, path: str, data: Buffers) -> None:
        whole = _whole(data)
        try:
            self._put("put", path, whole, "create")
        except StoreConflict as conflict:
            # The client repeats a request whose answer was lost: what is there may be our own first try.
            try:
                with _border("get", path):
                    found = obstore.get(self._bulk, path).bytes()
            except StoreNotFound as error:
                raise StoreError(f"put {path}: not known yet", operation="put", path=path, errno=None) from error
            if found.to_bytes() != whole:
                raise conflict

    def put_if_absent(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        self._put("put_if_absent", path, _whole(data), "create")

    def replace(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        self._put("replace", path, _whole(data), "overwrite")

    def _put(self, operation: str, path: str, whole: bytes, mode: Any) -> None:
        check_path(path)
        inner = self._inner if len(whole) <= SMALL_BYTES else self._bulk
        with _border(operation, path):
            obstore.put(inner, path, whole, mode=mode, use_multipart=False)

    def get(self, path: str) -> bytes:
        check_path(path)
        with _border("get", path):
            return obstore.get(self._inner, path).bytes().to_bytes()

    def get_range(self, path: str, start: int, length: int) -> bytes:
        check_path(path)
        check_range(start, length)
        if length and start + length < _MOST_BYTES:
            try:
                return self._range(path, start, length)
            except StoreError:
                # Stores disagree about ranges that end or begin behind the end: look how long it is.
                if start + length <= self.stat(path).size:
                    raise
        wanted = max(0, min(length, self.stat(path).size - start))
        return self._range(path, start, wanted) if wanted else b""

    def _range(self, path: str, start: int, length: int) -> bytes:
        with _border("get_range", path):
            return obstore.get_range(self._bulk, path, start=start, length=length).to_bytes()

    def stat(self, path: str) -> Stat:
        check_path(path)
        with _border("stat", path):
            found = obstore.head(self._inner, path)
        return Stat(found["size"], _modified_ms(found))

    def open_input(self, path: str) -> pa.NativeFile:
        check_path(path)
        with _border("open_input", path):
            content: Any = obstore.get(self._bulk, path).bytes()
        return pa.BufferReader(pa.py_buffer(content))

    def list(self, folder: str, after: str | None = None) -> Listing:
        prefix = _prefix(folder)
        with _border("list", folder):
            if after is None:
                metas: Iterable[Any] = obstore.list_with_delimiter(self._inner, folder or None)["objects"]
            else:
                # The server skips the names before `after` only in a recursive listing.
                metas = obstore.list(self._inner, folder or None, offset=prefix + after).collect()
        named = ((str(meta["path"])[len(prefix) :], meta) for meta in metas)
        return sorted(
            (
                Listed(name, meta["size"], _modified_ms(meta))
                for name, meta in named
                if name and "/" not in name and not name.startswith(".") and (after is None or name > after)
            ),
            key=lambda listed: listed.name,
        )

    def list_folders(self, folder: str) -> Names:
        prefix = _prefix(folder)
        with _border("list_folders", folder):
            found = obstore.list_with_delimiter(self._inner, folder or None)["common_prefixes"]
        names = (path[len(prefix) :].rstrip("/") for path in found)
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, path: str) -> None:
        check_path(path)
        try:
            with _border("delete", path):
                obstore.delete(self._inner, path)
        except StoreNotFound:
            return  # S3 says nothing, others do

    def delete_folder(self, folder: str) -> None:
        check_path(folder)
        with _border("delete_folder", folder):
            paths = [meta["path"] for meta in obstore.list(self._inner, folder).collect()]
        for path in paths:
            self.delete(path)

    def sync(self, paths: Iterable[str]) -> None:
        """Nothing to do: a put that returned is as durable as this store gets."""


class MemoryStore(ObjectStore):
    _named: ClassVar[dict[str, MemoryStore]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, name: str = "") -> None:
        super().__init__(obstore.store.MemoryStore(), url=f"memory://{name}", delta_uri=None, durable_puts=False)

    @classmethod
    def named(cls, name: str) -> MemoryStore:
        """The store of that name; it lives as long as the process, so a restarted engine finds its data."""
        with cls._lock:
            return cls._named.setdefault(name, cls(name))


def _prefix(folder: str) -> str:
    return check_folder(folder) and f"{folder}/"


def _modified_ms(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1000)


def _whole(data: Buffers) -> bytes:
    """obstore keeps a reference to what it is given, so only what cannot change may go in uncopied."""
    return data if isinstance(data, bytes) else b"".join(views_of(data))


@contextmanager
def _border(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and operation in _FINDS:
            raise StoreNotFound(path) from error
        # S3 answers 409 to other requests too, and 404 to all of them when the bucket is missing: those are failures.
        if isinstance(error, AlreadyExistsError) and operation in _CREATES:
            raise StoreConflict(path) from error
        # The debug dump behind the first line stays in the cause.
        reason = str(error).partition("\n")[0]
        raise StoreError(f"{operation} {path}: {reason}", operation=operation, path=path, errno=None) from error
