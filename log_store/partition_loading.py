"""From what storage holds of a partition to its state: repaired by the WAL where need be (section 2)."""

from __future__ import annotations

from typing import NamedTuple

from sluice.log_store import snapshot
from sluice.log_store.errors import CorruptCommit, UnknownTopicId
from sluice.log_store.runtime import Runtime
from sluice.log_store.values import PartitionRef


class LoadedPartition(NamedTuple):
    found: snapshot.Loaded
    begun: float
    """When the look at the newest version began (R-3)."""
    synced: int
    """Version up to which everything is known to be on disk."""


def load_partition(runtime: Runtime, ref: PartitionRef) -> LoadedPartition:
    """Repair and load. UnknownTopicId if the folder belongs to another incarnation of the topic (R-8)."""
    reached = synced = runtime.before_open(ref, False)
    begun = runtime.clock.boottime()
    found = snapshot.load(runtime.store, ref.folder)
    if isinstance(found.problem, CorruptCommit) or found.state.version < reached:
        reached = runtime.before_open(ref, True)
        begun = runtime.clock.boottime()
        found = snapshot.load(runtime.store, ref.folder)
    if found.problem is None and found.state.version < reached:
        missing = found.state.version + 1
        found.problem = CorruptCommit(
            f"version {missing} is missing, the log went up to version {reached}: it is cut off at offset "
            f"{found.state.end}",
            version=missing,
        )
    identity = found.state.identity
    if identity is not None and identity.topic_id != ref.topic_id:
        raise UnknownTopicId(f"{ref.folder} belongs to another incarnation of {ref.topic}")
    return LoadedPartition(found, begun, max(synced, found.checkpoint))
