"""Who leads the cluster: numbered claims made by put-if-absent, renewals beside them, fencing (R-1).

`_sluice/claims/<epoch>.json` says who claimed; `<epoch>.renewal` is rewritten every few seconds. Another process
claims when the last leader released its claim, when no renewal was seen to change for the time-out by its own
boottime clock, or by force. On a local root a file lock answers at once: whoever can take it knows that the last
holder is dead.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from sluice.conf.settings import ClusterSettings
from sluice.log_store.clock import Clock
from sluice.log_store.commit import put_version
from sluice.log_store.errors import NotLeader, StorageError
from sluice.log_store.file_lock import FileLock
from sluice.log_store.store import Store, StoreNotFound

CLAIMS = "_sluice/claims"
CLAIM_CHECK_S = 1.0
FAILED_LOOK_S = 1.0
SERVICE, MAINTENANCE = "service", "maintenance"
LEADER_KNOWN_S = 1.0
"""How long a fenced process repeats what it last found out about its successor: clients may ask often."""
_log = logging.getLogger(__name__)


def claim_check_s(store: Store) -> float:
    """How old a look at the claims may be. On a local root it costs a system call, so each commit looks."""
    return 0.0 if store.local_path is not None else CLAIM_CHECK_S


@dataclass(frozen=True, slots=True)
class Claim:
    epoch: int
    node: str
    address: str
    wal: str
    purpose: str
    """`service` appends rows; `maintenance` never does (R-2)."""
    locked: bool = False
    """The claimant held the file lock of a local root: known even if it died before its first renewal."""
    id: str = ""
    """Unique: tells our own claim, put but answered with an error, from somebody else's."""


@dataclass(frozen=True, slots=True)
class Renewal:
    count: int = 0
    locked: bool = False
    """The claimant holds the file lock of a local root, so that its death is seen at once."""
    released: bool = False
    """Given up in order, with nothing left in the claimant's WAL."""


def newest_claim(store: Store) -> Claim | None:
    names = [item.name for item in store.list(CLAIMS) if item.name.endswith(".json")]
    if not names:
        return None
    return msgspec.json.decode(store.get(f"{CLAIMS}/{max(names)}"), type=Claim)


def renewal_of(store: Store, epoch: int) -> Renewal:
    try:
        return msgspec.json.decode(store.get(_renewal_path(epoch)), type=Renewal)
    except (StoreNotFound, msgspec.DecodeError):
        return Renewal()


def _claim_path(epoch: int) -> str:
    return f"{CLAIMS}/{epoch:020d}.json"


def _renewal_path(epoch: int) -> str:
    return f"{CLAIMS}/{epoch:020d}.renewal"


class RootLock(FileLock):
    """The file lock of a local root; on other roots it can never be held."""

    def __init__(self, root: Path | None) -> None:
        super().__init__(None if root is None else root / "_sluice" / "leader.lock")


class Leadership:
    """A claim that this process made. Once fenced it stays fenced."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: ClusterSettings,
        claim: Claim,
        lock: RootLock,
        *,
        after_clean_release: bool = False,
    ) -> None:
        self.after_clean_release = after_clean_release
        """The predecessor had committed and synced everything, or there was none."""
        self.settled_at = clock.boottime() + (0.0 if after_clean_release else claim_check_s(store))
        """Until then a predecessor that is alive may answer for what it commits: it trusts an older look."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._lock = lock
        self._mutex = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_fenced: Callable[[], None] = lambda: None
        self._fenced = False
        self._count = 0
        self._checked_at = clock.boottime()
        self._failed: tuple[float, StorageError] | None = None
        self._leader = ""
        self._leader_asked_at = float("-inf")
        self.claim = claim

    @property
    def epoch(self) -> int:
        return self.claim.epoch

    @property
    def fenced(self) -> bool:
        return self._fenced

    # --- fencing -------------------------------------------------------------------------------

    def confirm(self, max_age_s: float) -> None:
        """Raise NotLeader if a newer claim exists; a check begun less than `max_age_s` ago is good enough."""
        if self._fenced:
            raise self.not_leader()
        begun = self._clock.boottime()
        if max_age_s > 0 and begun - self._checked_at < max_age_s:
            return
        if max_age_s > 0 and self._failed is not None and begun - self._failed[0] < FAILED_LOOK_S:
            raise self._failed[1]  # storage is out: many threads ask, one look a second is enough
        try:
            self._store.stat(_claim_path(self.epoch + 1))
        except StoreNotFound:
            self._checked_at, self._failed = begun, None
            return
        except StorageError as error:
            self._failed = (self._clock.boottime(), error)
            raise
        self.fence("a newer claim exists")
        raise self.not_leader()

    def fence(self, why: str) -> None:
        with self._mutex:
            if self._fenced:
                return
            self._fenced = True
        _log.warning("fenced at epoch %d: %s; this process appends nothing any more", self.epoch, why)
        self._stop.set()
        self._on_fenced()

    def not_leader(self) -> NotLeader:
        """The refusal that clients get, with the address of the leader as far as it is known."""
        now = self._clock.boottime()
        if now - self._leader_asked_at >= LEADER_KNOWN_S:
            self._leader_asked_at = now
            # The address is a courtesy; the refusal stands without it.
            with suppress(StorageError, StoreNotFound):
                newest = newest_claim(self._store)
                self._leader = newest.address if newest else ""
        return NotLeader(f"this process was fenced at epoch {self.epoch}", leader=self._leader)

    # --- renewal -------------------------------------------------------------------------------

    def start(self, on_fenced: Callable[[], None]) -> None:
        self._on_fenced = on_fenced
        self._thread = threading.Thread(target=self._renew_loop, name="sluice-claim", daemon=True)
        self._thread.start()

    def _renew_loop(self) -> None:
        while not self._stop.wait(self._settings.claim_renew_ms / 1000):
            try:
                self.renew()
            except NotLeader:
                return
            except StorageError as error:
                _log.warning("claim %d could not be renewed: %s", self.epoch, error)

    def renew(self) -> None:
        # A leader that came by force picks the lock up once the old holder is gone.
        locked = self._lock.acquire()
        self._count += 1
        self._store.replace(_renewal_path(self.epoch), msgspec.json.encode(Renewal(self._count, locked)))
        self.confirm(0)

    def release(self, *, clean: bool) -> None:
        """Stop renewing. `clean` says that every accepted record is committed: the next leader need not wait."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if clean and not self._fenced:
                final = Renewal(self._count + 1, self._lock.held, released=True)
                self._store.replace(_renewal_path(self.epoch), msgspec.json.encode(final), sync=True)
        except StorageError as error:
            _log.warning("claim %d could not be released: %s", self.epoch, error)
        finally:
            self._lock.release()


def claim_leadership(
    store: Store,
    clock: Clock,
    settings: ClusterSettings,
    *,
    wal_uuid: Callable[[], str],
    force: bool = False,
    purpose: str = SERVICE,
    cancelled: threading.Event | None = None,
) -> Leadership:
    """Claim the cluster, waiting out a silent leader; NotLeader (with its address) when it is alive.

    `wal_uuid` is asked only once the way is free, so that a process that may not lead opens no WAL.
    """
    lock = RootLock(store.local_path)
    locked = lock.acquire()
    try:
        return _claim(store, clock, settings, lock, locked, wal_uuid, force, purpose, cancelled or threading.Event())
    except BaseException:
        lock.release()
        raise


def _claim(
    store: Store,
    clock: Clock,
    settings: ClusterSettings,
    lock: RootLock,
    locked: bool,
    wal_uuid: Callable[[], str],
    force: bool,
    purpose: str,
    cancelled: threading.Event,
) -> Leadership:
    while True:
        newest = newest_claim(store)
        if newest is not None and not force:
            if store.local_path is not None and not locked:
                raise _alive(newest, "it holds the lock of this root")
            _wait_until_lapsed(store, clock, settings, newest, locked, cancelled)
        claim = Claim(
            epoch=1 if newest is None else newest.epoch + 1,
            node=settings.node_name or os.uname().nodename,
            address=settings.advertised_address,
            wal=wal_uuid(),
            purpose=purpose,
            locked=locked,
            id=uuid.uuid4().hex,
        )
        if put_version(store, _claim_path(claim.epoch), msgspec.json.encode(asdict(claim)), sync=True) is not None:
            continue  # somebody claimed this number first: look again
        clean = newest is None or renewal_of(store, newest.epoch).released
        leadership = Leadership(store, clock, settings, claim, lock, after_clean_release=clean)
        leadership.renew()
        return leadership


def _wait_until_lapsed(
    store: Store, clock: Clock, settings: ClusterSettings, claim: Claim, locked: bool, cancelled: threading.Event
) -> None:
    seen = renewal_of(store, claim.epoch)
    # Holding the lock proves its former holder dead; a claimant without the lock must be waited out.
    if seen.released or (locked and (claim.locked or seen.locked)):
        return
    since = clock.boottime()
    while clock.boottime() - since < settings.claim_timeout_ms / 1000:
        if cancelled.wait(settings.claim_renew_ms / 10_000):
            raise NotLeader("the wait for the leadership was cancelled", leader=claim.address)
        now = renewal_of(store, claim.epoch)
        if now.released:
            return
        if now != seen:
            raise _alive(claim, "its claim is being renewed")


def _alive(claim: Claim, why: str) -> NotLeader:
    where = claim.address or claim.node
    return NotLeader(f"{where} leads this cluster under epoch {claim.epoch}: {why}", leader=claim.address)
