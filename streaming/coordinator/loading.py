"""The topic `__consumer_offsets` and its shards: created at the first use of a group, loaded before they answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.errors import CoordinatorLoadInProgress, NotCoordinator
from sluice.log_store.topic import CONSUMER_OFFSETS, MIB
from sluice.streaming.coordinator.context import Context
from sluice.streaming.coordinator.shard import Shard
from sluice.streaming.coordinator.table import GroupTable
from sluice.streaming.groups import partition_of_group

OFFSETS_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": 100 * MIB}


class _Slot:
    def __init__(self, table: GroupTable) -> None:
        self.table = table
        self.shard = Shard(table)
        self.loading: Future[None] | None = None
        self.writable = False


class Shards:
    """From any thread. What blocks runs in the pool."""

    def __init__(self, context: Context, pool: ThreadPoolExecutor) -> None:
        self._context = context
        self._pool = pool
        self._lock = threading.Lock()
        self._slots: dict[int, _Slot] = {}

    def opening(self, group_id: str, *, write: bool) -> Future[None] | None:
        """None: the group's shard can be asked. Else when it can; what went wrong is raised there."""
        meta = self._meta()
        if meta is None:
            return self._submit(lambda: self._create_and_open(group_id)) if write else None
        return self._opening(meta, partition_of_group(group_id, meta.partitions), write=write)

    def opening_all(self) -> list[Future[None]]:
        meta = self._meta()
        if meta is None:
            return []
        found = [self._opening(meta, number, write=False) for number in range(meta.partitions)]
        return [future for future in found if future is not None]

    def of(self, group_id: str) -> Shard | None:
        """None: there are no groups at all."""
        meta = self._meta()
        if meta is None:
            return None
        slot = self._slots.get(partition_of_group(group_id, meta.partitions))
        if slot is None or not slot.table.loaded:
            raise CoordinatorLoadInProgress("the groups are being loaded")
        return slot.shard

    def all(self) -> list[Shard]:
        """Those that are loaded."""
        with self._lock:
            return [slot.shard for slot in self._slots.values() if slot.table.loaded]

    def _meta(self) -> TopicMeta | None:
        return self._context.log.catalog.state.find(CONSUMER_OFFSETS)

    def _opening(self, meta: TopicMeta, number: int, *, write: bool) -> Future[None] | None:
        slot = self._slots.get(number)
        if slot is not None and slot.table.loaded and (slot.writable or not write):
            return None
        with self._lock:
            if slot is None:
                partition = self._context.log.partition(meta.name, number)
                slot = self._slots.setdefault(number, _Slot(GroupTable(partition, self._context)))
            # A load that failed is tried again by the next who asks; one that only read does not do for a writer.
            if slot.loading is None or slot.loading.done():
                found = slot
                slot.loading = self._submit(lambda: _open(found, write=write))
            return slot.loading

    def _create_and_open(self, group_id: str) -> None:
        partitions = self._context.settings.offsets_topic_num_partitions
        meta = self._context.log.internal_topic(CONSUMER_OFFSETS, partitions=partitions, configs=OFFSETS_CONFIGS)
        number = partition_of_group(group_id, meta.partitions)
        with self._lock:
            slot = self._slots.get(number)
            if slot is None:
                table = GroupTable(self._context.log.partition(meta.name, number), self._context)
                slot = self._slots[number] = _Slot(table)
        _open(slot, write=True)

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        try:
            return self._pool.submit(work)
        except RuntimeError:
            raise NotCoordinator("the service stops") from None


def _open(slot: _Slot, *, write: bool) -> None:
    """Several at once do no harm: a table is loaded once."""
    partition = slot.table.partition
    partition.open()
    # A table is not read again, so not even readers may have it before the last commit of a predecessor is there.
    if (write or partition.unsettled) and not slot.writable:
        partition.prepare()
        if slot.table.loaded:
            slot.table.catch_up()
        slot.writable = True
    if not slot.table.loaded:
        slot.table.load()
