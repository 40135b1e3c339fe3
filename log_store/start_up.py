"""What a start does before anything is served: what the last leader left in its WALs goes into the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain

from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.errors import NotLeader
from sluice.log_store.partition import PartitionLog
from sluice.log_store.recovery import Finding, Report, recover_wal, repair_tail
from sluice.log_store.runtime import Runtime
from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.log_store.wal import Wal
from sluice.log_store.wal_values import PartitionKey, SyncPoint, WalStalled


class StartUp:
    def __init__(
        self,
        runtime: Runtime,
        other_wals: list[Wal],
        report: Report,
        partitions: Mapping[PartitionKey, PartitionLog],
    ) -> None:
        self._runtime = runtime
        self._other_wals = other_wals
        self._report = report
        self._partitions = partitions
        self._synced: dict[PartitionKey, SyncPoint] = {}
        self._in_wals: dict[PartitionKey, OffsetRange] = {}

    def recover(
        self,
        partition_of: Callable[[PartitionRef], PartitionLog | None],
        take_catalog_over: Callable[[], None],
        sync_all: Callable[[], None],
    ) -> None:
        """The catalog first, because it says which of the other WAL entries still belong to a topic."""
        self._survey()
        if self._runtime.wal is not None:
            self._runtime.wal.hold_sync_points()
        for wal in self.wals():
            for damage in wal.recovered.findings:
                self._report.add(Finding(f"WAL {damage.file}", str(damage), f"severity {damage.severity}"))
            recover_wal(wal, self._runtime.store, self._report, partition_of, lambda ref: ref == METADATA_REF)
        take_catalog_over()
        for wal in self.wals():
            recover_wal(wal, self._runtime.store, self._report, partition_of, lambda ref: ref != METADATA_REF)
        with suppress(WalStalled):  # its disk is full: it is cut later, and until then produce is refused
            if self._runtime.wal is not None:
                self._runtime.wal.state_held()
            sync_all()
        for wal in self._other_wals:
            self._retire(wal)
        self._other_wals = []
        if self._runtime.wal is not None:
            # An entry of a full WAL is a few hundred bytes of index; `_synced` and `_in_wals` hold what is needed.
            self._runtime.wal.forget_recovered()

    def _survey(self) -> None:
        """What all WALs together know of each partition. What one calls synced is synced, whoever leads now."""
        for wal in self.wals():
            scan = wal.recovered
            for key, point in scan.sync_points.items():
                known = self._synced.get(key)
                self._synced[key] = point if known is None or point.version > known.version else known
            for entry in chain(*scan.entries.values(), *(file.entries for file in scan.parked)):
                key = (entry.ref.topic_id, entry.ref.partition)
                held = self._in_wals.get(key, OffsetRange(entry.base_offset, entry.end_offset))
                self._in_wals[key] = OffsetRange(min(held.start, entry.base_offset), max(held.end, entry.end_offset))

    def wals(self) -> list[Wal]:
        """The newest leader's first: what it appended stands, and an older tail at the same offsets is set aside."""
        wals = [wal for wal in (self._runtime.wal, *self._other_wals) if wal is not None]
        return sorted(wals, key=_newest_epoch, reverse=True)

    def _retire(self, wal: Wal) -> None:
        """A WAL of a dead process: what it held is committed, synced or set aside by now."""
        for key in wal.recovered.entries:
            partition = self._partitions.get(key)
            if partition is not None and partition.problem is None:
                wal.release(partition.ref)
        wal.close()

    def repair_before_open(self, ref: PartitionRef, torn: bool) -> int:
        """See `Runtime.before_open`. After a clean release only what the WALs hold, or what is torn, needs a look."""
        key, store = (ref.topic_id, ref.partition), self._runtime.store
        synced, in_wals = self._synced.get(key), self._in_wals.get(key)
        reached = synced.version if synced is not None and store.fsync else -1
        if self._runtime.wal is None:
            return -1
        if self._runtime.leadership.after_clean_release and in_wals is None and not torn:
            return reached
        try:
            self._runtime.leadership.confirm(0)
        except NotLeader:
            return reached  # what looks torn may be what the new leader is writing: a fenced process only reads
        return repair_tail(store, ref, synced, in_wals, self._report)


def _newest_epoch(wal: Wal) -> int:
    return max((entries[-1].epoch for entries in wal.recovered.entries.values()), default=-1)
