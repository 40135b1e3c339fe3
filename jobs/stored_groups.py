"""Consumer groups as `__consumer_offsets` holds them, read from storage: what jobs look at without asking anybody."""

from __future__ import annotations

from sluice.jobs.cluster import StoredCluster
from sluice.log_store import reader
from sluice.log_store.topic import CONSUMER_OFFSETS
from sluice.streaming.coordinator.replay import Replay, StoredGroup
from sluice.streaming.groups import Group, Now, new_group, step
from sluice.streaming.groups.events import Restore
from sluice.streaming.groups.ids import partition_of_group


def stored_groups(cluster: StoredCluster) -> dict[str, StoredGroup]:
    """All there are, by name."""
    found: dict[str, StoredGroup] = {}
    for number in range(_partitions(cluster)):
        found |= _groups_of(cluster, number)
    return dict(sorted(found.items()))


def stored_group(cluster: StoredCluster, group_id: str) -> StoredGroup | None:
    partitions = _partitions(cluster)
    return _groups_of(cluster, partition_of_group(group_id, partitions)).get(group_id) if partitions else None


def _partitions(cluster: StoredCluster) -> int:
    """The topic is made at the first use of a group: there may be none."""
    return next((meta.partitions for meta in cluster.topics() if meta.name == CONSUMER_OFFSETS), 0)


def _groups_of(cluster: StoredCluster, number: int) -> dict[str, StoredGroup]:
    ref = next(meta for meta in cluster.topics() if meta.name == CONSUMER_OFFSETS).partition(number)
    state = cluster.load(ref)
    batches = reader.scan(cluster.store, ref.folder, state.files, state.log_start, state.end)
    return Replay().take(batches).groups()


def as_group(group_id: str, stored: StoredGroup, now: Now) -> Group:
    """The group as a coordinator that starts now would know it."""
    group = new_group(group_id, now)
    return group if stored.metadata is None else step(group, Restore(stored.metadata), now).group
