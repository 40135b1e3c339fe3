"""A lease keeps two runs of one job apart: numbered files by put-if-absent, renewed beside, like the claims (R-1).

`_sluice/jobs/leases/<key>/<n>.json` says who took it, `<n>.renewal` is rewritten every few seconds. Whoever finds one
that is not released watches it by its own boottime clock (R-13) and takes the next number once it has not changed for
the time-out; on a local root a file lock shows a killed holder at once. A lease saves work, it does not keep data
safe: that is what the checks of a plan are for (R-7). So its old numbers may be deleted.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType

import msgspec

from sluice.log_store.clock import Clock
from sluice.log_store.commit import put_version
from sluice.log_store.errors import SluiceError, StorageError, TransientError
from sluice.log_store.file_lock import FileLock
from sluice.log_store.store import Store, StoreNotFound

_log = logging.getLogger(__name__)
LEASES = "_sluice/jobs/leases"
RENEW_S = 3.0
TIMEOUT_S = 15.0
_KEY = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")


class LeaseHeld(TransientError):
    """Another run holds the lease. `fields["holder"]` says who."""

    error, code = "CONCURRENT_TRANSACTIONS", 51


class LeaseLost(SluiceError):
    """The lease lapsed under us, perhaps because this process was stopped, and another run took it."""

    error, code = "FENCED_LEADER_EPOCH", 74


@dataclass(frozen=True, slots=True)
class Holder:
    number: int
    id: str
    node: str
    pid: int
    taken_ms: int
    locked: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.node}"


@dataclass(frozen=True, slots=True)
class _Renewal:
    count: int = 0
    released: bool = False


class Lease:
    """Held from `acquire` to `release`. `check` says whether it still is; a thread renews it meanwhile."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        key: str,
        *,
        renew_s: float = RENEW_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a name for a lease: {key!r}")
        self._store, self._clock = store, clock
        self._folder = f"{LEASES}/{key}"
        self._key = key
        self._renew_s, self._timeout_s = renew_s, timeout_s
        self._stop = threading.Event()
        self._lost = threading.Event()
        # Shows a killed holder at once; on a root that is no folder it can never be held.
        self._lock = FileLock(None if store.local_path is None else store.local_path / self._folder / "lock")
        self._count = 0
        self._renewed_at = 0.0
        self._thread: threading.Thread | None = None
        self.holder: Holder | None = None

    # --- taking --------------------------------------------------------------------------------

    def acquire(self) -> Lease:
        """LeaseHeld while another run is alive; waits out one that has gone silent."""
        locked = self._lock.acquire()
        try:
            self._take(locked)
        except BaseException:
            self._lock.release()
            raise
        self._thread = threading.Thread(target=self._renew_loop, name=f"sluice-lease-{self._key}", daemon=True)
        self._thread.start()
        return self

    def _take(self, locked: bool) -> None:
        while True:
            newest = self._newest()
            if newest is not None:
                if self._store.local_path is not None and not locked:
                    raise _held(self._key, newest)
                self._wait_until_lapsed(newest, locked)
            mine = Holder(
                number=0 if newest is None else newest.number + 1,
                id=uuid.uuid4().hex,
                node=os.uname().nodename,
                pid=os.getpid(),
                taken_ms=self._clock.wall_ms(),
                locked=locked,
            )
            if put_version(self._store, self._path(mine.number), msgspec.json.encode(asdict(mine))) is None:
                break
        self.holder = mine
        self._renew()
        self._clean(mine.number)

    def _wait_until_lapsed(self, newest: Holder, locked: bool) -> None:
        seen = self._renewal(newest.number)
        if seen.released or (locked and newest.locked):
            return  # the lock is ours now, so whoever held it has died
        since = self._clock.boottime()
        while self._clock.boottime() - since < self._timeout_s:
            self._stop.wait(self._renew_s / 10)
            now = self._renewal(newest.number)
            if now.released:
                return
            if now != seen:
                raise _held(self._key, newest)

    def _newest(self) -> Holder | None:
        names = [item.name for item in self._store.list(self._folder) if item.name.endswith(".json")]
        if not names:
            return None
        try:
            return msgspec.json.decode(self._store.get(f"{self._folder}/{max(names)}"), type=Holder)
        except (StoreNotFound, msgspec.DecodeError):
            # A local file is put whole, so this is no holder: damaged by hand, or just cleaned away.
            return Holder(int(max(names)[:20]), "", "unknown", 0, 0)

    def _clean(self, number: int) -> None:
        with suppress(StorageError):
            for item in self._store.list(self._folder):
                if item.name[:20].isdigit() and int(item.name[:20]) < number:
                    self._store.delete(f"{self._folder}/{item.name}")

    # --- holding -------------------------------------------------------------------------------

    def check(self) -> None:
        """LeaseLost when another run took it, or when it was not renewed for so long that one may have."""
        if self._lost.is_set() or self._clock.boottime() - self._renewed_at >= self._timeout_s:
            self._lost.set()
            raise LeaseLost(f"the lease of {self._key} was lost: this run stops, the next one goes on")

    def _renew_loop(self) -> None:
        while not self._stop.wait(self._renew_s):
            try:
                self._renew()
            except LeaseLost as error:
                _log.warning("%s", error.message)
                return
            except StorageError as error:
                _log.warning("the lease of %s could not be renewed: %s", self._key, error)

    def _renew(self, *, released: bool = False) -> None:
        if self.holder is None:
            return
        begun = self._clock.boottime()
        try:
            self._store.stat(self._path(self.holder.number + 1))
        except StoreNotFound:
            pass
        else:
            self._lost.set()
            raise LeaseLost(f"another run took the lease of {self._key}")
        self._count += 1
        path = f"{self._folder}/{self.holder.number:020d}.renewal"
        self._store.replace(path, msgspec.json.encode(_Renewal(self._count, released)))
        self._renewed_at = begun

    def release(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self.holder is not None and not self._lost.is_set():
                self._renew(released=True)
        except (StorageError, LeaseLost) as error:
            _log.warning("the lease of %s was not given back, it lapses: %s", self._key, error)
        finally:
            self._lock.release()

    def __enter__(self) -> Lease:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"

    def _renewal(self, number: int) -> _Renewal:
        try:
            return msgspec.json.decode(self._store.get(f"{self._folder}/{number:020d}.renewal"), type=_Renewal)
        except (StoreNotFound, msgspec.DecodeError):
            return _Renewal()


def _held(key: str, holder: Holder) -> LeaseHeld:
    return LeaseHeld(f"{key} is being run by {holder}", holder=str(holder))
