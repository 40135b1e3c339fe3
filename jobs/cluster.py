"""The cluster as a job sees it: it reads storage by itself, and leaves every commit to the leader (I-8, R-1).

::

    open_cluster ── the claim is held        OnlineCluster    plans go to the leader over HTTP
                 ├─ the claim has lapsed     OfflineCluster   takes the leadership, which replays the WAL first (R-2)
                 └─ read_only=True           StoredCluster    looks, and can change nothing (dry runs)
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import httpx
import msgspec

from sluice.conf.settings import Settings
from sluice.jobs.led_cluster import OfflineCluster, OnlineCluster
from sluice.jobs.stored_cluster import Expired, StoredCluster, StoreSpec, Swept, Target
from sluice.log_store.claims import MAINTENANCE, SERVICE, Claim, newest_claim, renewal_of
from sluice.log_store.clock import Clock, SystemClock, WallGuard
from sluice.log_store.cluster_file import CLUSTER_FILE
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import InvalidRequest, NotLeader, ResourceNotFound
from sluice.log_store.store import Store, StoreNotFound, open_store
from sluice.streaming.http_client import Connection, RetryPolicy
from sluice.streaming.http_errors import ConnectionFailed

__all__ = [
    "Expired",
    "OfflineCluster",
    "OnlineCluster",
    "StoreSpec",
    "StoredCluster",
    "Swept",
    "Target",
    "open_cluster",
]

_log = logging.getLogger(__name__)
RETRY = RetryPolicy(budget_s=60.0)
PROBE = RetryPolicy(budget_s=0.0)
PROBE_TIMEOUT_S = 5.0


def open_cluster(
    root: str | None = None,
    server: str | None = None,
    token: str | None = None,
    *,
    settings: Settings | None = None,
    ca_file: str | None = None,
    clock: Clock | None = None,
    read_only: bool = False,
    purpose: str = MAINTENANCE,
    wall: WallGuard | None = None,
) -> StoredCluster:
    """The cluster at `root`; its leader is found by its claim, or given as `server`.

    `wall`: that of a process which lives longer than this, and has seen more of the clock (R-13).

    NotLeader with the leader's address when a live leader cannot be reached from here. `purpose=SERVICE` is for the
    rare offline job that must append rows, such as tombstones of offsets; it is refused while acknowledged records may
    still lie in the WAL of another machine.
    """
    settings, clock = settings or Settings(), clock or SystemClock()
    if root is not None:
        settings = replace(settings, storage=replace(settings.storage, root=root))
    cluster = _opened(settings, clock, server, token, ca_file, read_only=read_only, purpose=purpose)
    cluster.wall = wall or cluster.wall
    return cluster


def _opened(
    settings: Settings,
    clock: Clock,
    server: str | None,
    token: str | None,
    ca_file: str | None,
    *,
    read_only: bool,
    purpose: str,
) -> StoredCluster:
    storage = settings.storage
    if "://" not in storage.root and not os.path.isdir(storage.root):
        raise ResourceNotFound(f"there is no folder {storage.root}", field="root")  # opening it would make one
    store = open_store(storage.root, fsync=storage.fsync, storage_options=storage.options)
    cluster_id = _stored_id(store)
    if read_only:
        return StoredCluster(settings, store, clock, cluster_id)
    claim = newest_claim(store)
    address = server or _live_address(store, claim)
    if address is not None:
        connection = Connection(address, token, ca_file=ca_file, retry=RETRY, clock=clock)
        try:
            if _answers(connection, cluster_id, must=server is not None):
                return OnlineCluster(settings, store, clock, cluster_id, connection)
        except BaseException:
            connection.close()
            raise
        connection.close()
    if purpose == SERVICE and store.local_path is None and not _released(store, claim):
        raise NotLeader("the last leader did not stop in order: its WAL may hold records; start the service instead")
    _log.info("no leader answers: taking the leadership for maintenance")
    return OfflineCluster(settings, LogStore.open(settings, store=store, clock=clock, purpose=purpose), cluster_id)


def _stored_id(store: Store) -> str:
    try:
        return str(msgspec.json.decode(store.get(CLUSTER_FILE))["cluster_id"])
    except StoreNotFound:
        raise ResourceNotFound(f"there is no cluster at {store.url}", field="root") from None


def _released(store: Store, claim: Claim | None) -> bool:
    return claim is None or renewal_of(store, claim.epoch).released


def _live_address(store: Store, claim: Claim | None) -> str | None:
    """Where the leader says that it can be found; None if it has left in order or serves nobody."""
    if claim is None or _released(store, claim) or claim.purpose != SERVICE or not claim.address:
        return None
    return claim.address


def _answers(connection: Connection, cluster_id: str, *, must: bool) -> bool:
    """Does the leader of this very cluster answer? One that died does not: its claim will be seen to have lapsed."""
    try:
        answer = connection.repeat(
            lambda: connection.once("GET", "/v3/clusters/-", timeout_s=PROBE_TIMEOUT_S), RETRY if must else PROBE
        )
    except ConnectionFailed as error:
        if must:
            raise
        _log.info("the claimed address does not answer: %s", error.message)
        return False
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise InvalidRequest(f"{connection.server} wants an access token that grants admin", field="token")
    found = msgspec.json.decode(answer.content).get("cluster_id") if answer.is_success else None
    if found != cluster_id:
        if must:
            raise InvalidRequest(f"{connection.server} is not the leader of cluster {cluster_id}", field="server")
        return False
    return True
