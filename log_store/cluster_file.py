"""The file that makes a root a cluster."""

from __future__ import annotations

import uuid
from contextlib import suppress

import msgspec

from sluice.log_store.clock import Clock
from sluice.log_store.errors import UnsupportedFormat
from sluice.log_store.store import Store, StoreConflict

CLUSTER_FILE, CLUSTER_FORMAT = "_sluice/cluster.json", 1


def cluster_id_of(store: Store, clock: Clock) -> str:
    """The id of this cluster, made at its first opening."""
    fresh = {"cluster_id": uuid.uuid4().hex, "format": CLUSTER_FORMAT, "created_ms": clock.wall_ms()}
    with suppress(StoreConflict):
        store.put_if_absent(CLUSTER_FILE, msgspec.json.encode(fresh), sync=True)
    stored = msgspec.json.decode(store.get(CLUSTER_FILE))
    if stored["format"] > CLUSTER_FORMAT:
        raise UnsupportedFormat(f"this cluster has format {stored['format']}: it needs a newer Sluice")
    return str(stored["cluster_id"])
