"""The file that makes a root a cluster."""

from __future__ import annotations

import uuid
from contextlib import suppress

import msgspec

from sluice.log_store.clock import Clock
from sluice.log_store.errors import CorruptData, UnsupportedFormat
from sluice.log_store.store import Store, StoreConflict

CLUSTER_FILE, CLUSTER_FORMAT = "_sluice/cluster.json", 1


def cluster_id_of(store: Store, clock: Clock) -> str:
    """The id of this cluster, made at its first opening."""
    fresh = {"cluster_id": uuid.uuid4().hex, "format": CLUSTER_FORMAT, "created_ms": clock.wall_ms()}
    with suppress(StoreConflict):
        store.put_if_absent(CLUSTER_FILE, msgspec.json.encode(fresh), sync=True)
    stored = stored_cluster(store)
    if stored.format > CLUSTER_FORMAT:
        raise UnsupportedFormat(f"this cluster has format {stored.format}: it needs a newer Sluice")
    return stored.cluster_id


class ClusterFile(msgspec.Struct, frozen=True):
    cluster_id: str
    format: int


def stored_cluster(store: Store) -> ClusterFile:
    return decode_cluster_file(store.get(CLUSTER_FILE))


def decode_cluster_file(data: bytes) -> ClusterFile:
    try:
        return msgspec.json.decode(data, type=ClusterFile)
    except msgspec.DecodeError as error:
        raise CorruptData(f"{CLUSTER_FILE} is damaged, put it back from a backup: {error}") from error
