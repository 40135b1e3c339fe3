"""A store that fails on command.

::

    store = FaultyStore(open_store("memory://"))
    store.fail_before("put", "*.parquet")                 # next data file: not written, StoreError
    store.fail_after("put_if_absent", "*/_delta_log/*")   # next commit: written, StoreError all the same
    store.conflict("put_if_absent", times=20)             # twenty lost races, nothing written
    outage = store.fail_before("*", times=None)           # everything, until outage.cancel()
    with store.gate("put", "*.parquet") as gate:          # the next data file stops before it is written
        thread.start(); gate.wait(); ...                  # …here; leaving the block lets it go on
    store.counts["put"], store.calls

A path matches by shell pattern ('*' crosses '/') or by predicate. Faults are tried oldest first, one before and one
after each call; one that is used up is passed over.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import pyarrow as pa

from sluice.log_store.store import Buffers, Listing, Names, Stat, Store, StoreConflict, StoreError

Match: TypeAlias = str | Callable[[str], bool]
When: TypeAlias = Literal["before", "after"]
T = TypeVar("T")

GATE_TIMEOUT_S = 60
"""So that a broken test ends with an error and not with a hung run."""


@dataclass(eq=False)
class Fault:
    operation: str
    match: Match
    when: When
    times: int | None
    """How many calls it still hits; None is all of them."""
    action: Callable[[str], None]
    hits: int = 0

    def cancel(self) -> None:
        self.times = 0

    def hit(self, operation: str, path: str) -> bool:
        if self.times == 0 or self.operation not in ("*", operation):
            return False
        if not (fnmatchcase(path, self.match) if isinstance(self.match, str) else self.match(path)):
            return False
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        return True


class Gate:
    """Holds each matching call until `release`. As a context manager it releases at the end of the block."""

    def __init__(self) -> None:
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def wait(self) -> None:
        """Until one (more) call has arrived at the gate."""
        if not self._entered.acquire(timeout=GATE_TIMEOUT_S):
            raise AssertionError("no call arrived at the gate")

    def release(self) -> None:
        self._open.set()

    def hold(self, path: str) -> None:
        self._entered.release()
        if not self._open.wait(GATE_TIMEOUT_S):
            raise AssertionError(f"the gate was never opened for {path}")

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class FaultyStore:
    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.counts: Counter[str] = Counter()
        self.calls: list[tuple[str, str]] = []
        """(operation, path) of every call, failed ones too, in order of arrival."""
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    # --- programming ----------------------------------------------------------------------------

    def fail_before(
        self, operation: str, match: Match = "*", *, times: int | None = 1, error: Exception | None = None
    ) -> Fault:
        """The call fails and has no effect."""
        return self._fail(operation, match, "before", times, error)

    def fail_after(
        self, operation: str, match: Match = "*", *, times: int | None = 1, error: Exception | None = None
    ) -> Fault:
        """The call takes effect and fails all the same: a lost answer."""
        return self._fail(operation, match, "after", times, error)

    def conflict(self, operation: str = "put_if_absent", match: Match = "*", *, times: int | None = 1) -> Fault:
        """`StoreConflict` although nobody took the name."""

        def action(path: str) -> None:
            raise StoreConflict(path)

        return self.on(operation, action, match, times=times)

    def gate(self, operation: str, match: Match = "*", *, when: When = "before", times: int | None = 1) -> Gate:
        """Stop the call before it takes effect, or after that and before it returns."""
        gate = Gate()
        self.on(operation, gate.hold, match, when=when, times=times)
        return gate

    def on(
        self,
        operation: str,
        action: Callable[[str], None],
        match: Match = "*",
        *,
        when: When = "before",
        times: int | None = 1,
    ) -> Fault:
        """Run `action(path)` in the calling thread; what it raises is the call's result."""
        fault = Fault(operation, match, when, times, action)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all faults; counts stay."""
        with self._lock:
            self._faults.clear()

    def _fail(self, operation: str, match: Match, when: When, times: int | None, error: Exception | None) -> Fault:
        def action(path: str) -> None:
            raise error or StoreError(f"injected {when} {operation} {path}", operation=operation, path=path, errno=None)

        return self.on(operation, action, match, when=when, times=times)

    def _run(self, operation: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.counts[operation] += 1
            self.calls.append((operation, path))
        self._strike("before", operation, path)
        result = call()
        self._strike("after", operation, path)
        return result

    def _strike(self, when: When, operation: str, path: str) -> None:
        with self._lock:
            fault = next((f for f in self._faults if f.when == when and f.hit(operation, path)), None)
        if fault is not None:
            fault.action(path)  # outside the lock: it may wait

    # --- the port -------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def local_path(self) -> Path | None:
        return self.inner.local_path

    @property
    def delta_uri(self) -> str | None:
        return self.inner.delta_uri

    @property
    def delta_storage_options(self) -> dict[str, str] | None:
        return self.inner.delta_storage_options

    @property
    def durable_puts(self) -> bool:
        return self.inner.durable_puts

    @property
    def fsync(self) -> bool:
        return self.inner.fsync

    def put(self, path: str, data: Buffers) -> None:
        self._run("put", path, lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        self._run("put_if_absent", path, lambda: self.inner.put_if_absent(path, data, sync=sync))

    def replace(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        self._run("replace", path, lambda: self.inner.replace(path, data, sync=sync))

    def get(self, path: str) -> bytes:
        return self._run("get", path, lambda: self.inner.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        return self._run("get_range", path, lambda: self.inner.get_range(path, start, length))

    def stat(self, path: str) -> Stat:
        return self._run("stat", path, lambda: self.inner.stat(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._run("open_input", path, lambda: self.inner.open_input(path))

    def list(self, folder: str, after: str | None = None) -> Listing:
        return self._run("list", folder, lambda: self.inner.list(folder, after))

    def list_folders(self, folder: str) -> Names:
        return self._run("list_folders", folder, lambda: self.inner.list_folders(folder))

    def delete(self, path: str) -> None:
        self._run("delete", path, lambda: self.inner.delete(path))

    def delete_folder(self, folder: str) -> None:
        self._run("delete_folder", folder, lambda: self.inner.delete_folder(folder))

    def sync(self, paths: Iterable[str]) -> None:
        """Matched once, by its first path; `calls` shows that one too."""
        wanted = [*paths]
        self._run("sync", wanted[0] if wanted else "", lambda: self.inner.sync(wanted))
