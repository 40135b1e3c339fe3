"""How far behind a group is: in records, in seconds, and whether it is getting on."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import OffsetOutOfRange, SluiceError
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.records import micros_of
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.coordinator import Coordinator
from sluice.streaming.coordinator.entry import GroupView
from sluice.streaming.coordinator.status import Status, group_status, partition_status
from sluice.streaming.groups import Group
from sluice.streaming.groups.state import Member
from sluice.streaming.groups.subscription import decode_assignment

CACHED = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    where: TopicPartition
    current_offset: int
    log_end_offset: int
    lag: int
    lag_seconds: float
    """Age of the oldest record that was not read; 0 when there is none, as on an idle topic."""
    status: Status
    member: Member | None
    """Who reads it now."""


@dataclass(frozen=True, slots=True)
class LagSummary:
    total: int
    worst: PartitionLag | None
    """The one with the most records; of several, the first by topic and number."""
    seconds: float
    status: Status


def summary(lags: Iterable[PartitionLag]) -> LagSummary:
    found = list(lags)
    return LagSummary(
        total=sum(one.lag for one in found),
        worst=max(found, key=lambda one: one.lag, default=None),
        seconds=max((one.lag_seconds for one in found), default=0.0),
        status=group_status(one.status for one in found),
    )


def owners(group: Group) -> dict[TopicPartition, Member]:
    """Who reads what. Assignments that are not a consumer's say nothing."""
    if not group.is_consumer_group:
        return {}
    found: dict[TopicPartition, Member] = {}
    for member in group.members.values():
        try:
            found.update(dict.fromkeys(decode_assignment(member.assignment).partitions, member))
        except SluiceError:
            continue
    return found


class LagReader:
    """Reads files, so it is asked from a thread. What the record at an offset says does not change: it is kept."""

    def __init__(self, log: LogStore, coordinator: Coordinator, window_ms: int) -> None:
        self._log = log
        self._coordinator = coordinator
        self._window_ms = window_ms
        self._lock = threading.Lock()
        self._times: dict[tuple[str, int, int], int] = {}
        """Timestamp of the first record at or after (topic id, partition, offset)."""

    def lags(self, view: GroupView) -> list[PartitionLag]:
        """By topic and number. Partitions that cannot be read are left out, rather than the whole answer."""
        now_ms, members, found = self._log.runtime.clock.wall_ms(), owners(view.group), []
        committed = self._coordinator.live_offsets(view)
        for where in sorted(committed, key=lambda one: (one.topic, one.partition)):
            try:
                found.append(self._lag(view, where, committed[where].offset, members, now_ms))
            except SluiceError:
                continue
        return found

    def _lag(
        self,
        view: GroupView,
        where: TopicPartition,
        offset: int,
        members: Mapping[TopicPartition, Member],
        now_ms: int,
    ) -> PartitionLag:
        partition = self._log.partition(where.topic, where.partition)
        partition.open()
        end, start = partition.high_watermark, partition.log_start
        lag = max(0, end - offset)
        since = self._time_of(where, max(offset, start)) if lag and end > start else None
        return PartitionLag(
            where=where,
            current_offset=offset,
            log_end_offset=end,
            lag=lag,
            lag_seconds=0.0 if since is None else max(0, now_ms - since) / 1000,
            status=partition_status(view.samples.get(where, ()), lag, now_ms, self._window_ms),
            member=members.get(where),
        )

    def _time_of(self, where: TopicPartition, offset: int) -> int | None:
        partition = self._log.partition(where.topic, where.partition)
        key = (partition.ref.topic_id, where.partition, offset)
        found = self._times.get(key)
        if found is None:
            found = _timestamp(PartitionReads(partition), offset)
            if found is not None:
                self._keep(key, found)
        return found

    def _keep(self, key: tuple[str, int, int], ms: int) -> None:
        with self._lock:
            if len(self._times) >= CACHED:
                self._times.clear()
            self._times[key] = ms


def _timestamp(reads: PartitionReads, offset: int) -> int | None:
    try:
        batches = reads.fetch(offset, max_records=1, max_bytes=1).rows.batches
    except OffsetOutOfRange:
        return None  # deleted since the look at the log start
    for batch in batches:
        if batch.num_rows:
            return int(micros_of(batch.column(batch.schema.get_field_index("timestamp")))[0]) // 1000
    return None
