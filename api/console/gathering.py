"""Where the console's figures come from: counters of the loop, partitions and groups of the log."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sluice.api.console.figures import GroupCounts, Sample, ServiceCounts, TopicCounts, TopicLag
from sluice.api.groups_resources import STATES
from sluice.api.service import Service
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import SluiceError
from sluice.log_store.inspection import SMALL_BYTES
from sluice.log_store.partition import PartitionLog
from sluice.streaming.coordinator import GroupView
from sluice.streaming.coordinator.lag import PartitionLag
from sluice.streaming.coordinator.status import group_status

PRODUCE_ROUTES = (
    "/topics/{t}",
    "/topics/{t}/partitions/{p}",
    "/v3/clusters/{c}/topics/{t}/records",
    "/v3/clusters/{c}/topics/{t}/records:batch",
)
OPENED_AT_ONCE = 50
OPENED_MOST = 2_000
"""Partitions that are loaded only to know their size. Above it, only those in use are counted."""


class GroupLook(NamedTuple):
    view: GroupView
    lags: list[PartitionLag]


class Looked(NamedTuple):
    """What a look at the log found."""

    topics: dict[str, TopicCounts]
    groups: dict[str, GroupLook]
    groups_problem: str | None


class _Known(NamedTuple):
    version: int
    size: int
    files: int
    small: int


class Gatherer:
    """`look` and `open_some` run in a thread, one call at a time; the rest belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[PartitionLog, _Known] = {}
        self._versions: defaultdict[str, int] = defaultdict(int)
        """By topic id, counted while we look: a partition that is loaded later brings no versions of the past."""
        self._failed: set[str] = set()

    # --- on the loop -----------------------------------------------------------------------------

    def sample(self, number: int, looked: Looked) -> Sample:
        service, clock = self._service, self._service.log.runtime.clock
        produced = service.metrics.by_topic()
        topics = {}
        for name, counts in looked.topics.items():
            records_in, bytes_in, records_out, bytes_out = produced.get(name, (0, 0, 0, 0))
            topics[name] = TopicCounts(
                records_in,
                bytes_in,
                records_out,
                bytes_out,
                counts.versions,
                counts.partitions,
                counts.known,
                counts.size_bytes,
                counts.files,
                counts.small_files,
                counts.records,
            )
        return Sample(
            number=number,
            at=clock.boottime(),
            ms=clock.wall_ms(),
            service=_service_counts(service),
            topics=topics,
            groups={name: _group_counts(look) for name, look in looked.groups.items()},
            groups_problem=looked.groups_problem,
        )

    def size_of(self, partition: PartitionLog) -> int:
        """Of its live files at the last look."""
        known = self._known.get(partition)
        return 0 if known is None else known.size

    # --- in a thread -----------------------------------------------------------------------------

    def look(self) -> Looked:
        log = self._service.log
        found: dict[str, list[PartitionLog]] = defaultdict(list)
        for partition in log.opened_partitions():
            found[partition.ref.topic_id].append(partition)
        topics = {meta.name: self._topic(found[meta.topic_id], meta.partitions) for meta in log.topics()}
        self._known = {one: known for one, known in self._known.items() if one.ref.topic_id in found}
        groups, problem = _groups(self._service)
        return Looked(topics, groups, problem)

    def _topic(self, opened: list[PartitionLog], partitions: int) -> TopicCounts:
        known = [self._partition(one) for one in opened]
        return TopicCounts(
            versions=self._versions[opened[0].ref.topic_id] if opened else 0,
            partitions=partitions,
            known=len(known),
            size_bytes=sum(one.size for one in known),
            files=sum(one.files for one in known),
            small_files=sum(one.small for one in known),
            records=sum(one.high_watermark - one.log_start for one in opened),
        )

    def _partition(self, partition: PartitionLog) -> _Known:
        """Files are counted again only when a version changed them."""
        version, before = partition.state.version, self._known.get(partition)
        if before is not None and before.version == version:
            return before
        files, count, _, _ = partition.view()
        live = files[:count]
        sizes = [file.size for file in live]
        known = _Known(version, sum(sizes), count, sum(size < SMALL_BYTES for size in sizes))
        if before is not None:
            self._versions[partition.ref.topic_id] += max(0, version - before.version)
        self._known[partition] = known
        return known

    def open_some(self) -> None:
        """Load a few partitions that nobody used yet: what is stored in them counts as well."""
        log = self._service.log
        left = min(OPENED_AT_ONCE, OPENED_MOST - len(self._known))
        for partition in _closed(log):
            if left <= 0:
                return
            if partition.ref.folder in self._failed:
                continue
            left -= 1
            try:
                partition.open()
            except SluiceError:
                self._failed.add(partition.ref.folder)  # its own pages say why


def _closed(log: LogStore) -> list[PartitionLog]:
    found = []
    for meta in log.topics():
        for number in range(meta.partitions):
            try:
                partition = log.partition(meta.name, number)
            except SluiceError:
                break  # deleted meanwhile
            if not partition.opened:
                found.append(partition)
            if len(found) >= OPENED_MOST:
                return found
    return found


def _groups(service: Service) -> tuple[dict[str, GroupLook], str | None]:
    try:
        views = service.groups.views()
    except SluiceError as error:
        return {}, f"{error.error}: {error.message}"
    return {view.group.group_id: GroupLook(view, service.lags.lags(view)) for view in views}, None


def _group_counts(look: GroupLook) -> GroupCounts:
    by_topic: dict[str, list[PartitionLag]] = defaultdict(list)
    for lag in look.lags:
        by_topic[lag.where.topic].append(lag)
    topics = {
        name: TopicLag(
            sum(lag.lag for lag in lags),
            max(lag.lag_seconds for lag in lags),
            group_status(lag.status for lag in lags),
        )
        for name, lags in by_topic.items()
    }
    group = look.view.group
    return GroupCounts(STATES[group.phase], len(group.members), topics)


def _service_counts(service: Service) -> ServiceCounts:
    metrics, wal = service.metrics, service.log.runtime.wal
    requests, errors = metrics.totals()
    return ServiceCounts(
        requests=requests,
        errors=errors,
        acks=metrics.buckets("POST", PRODUCE_ROUTES),
        wal_bytes=wal.size_bytes if wal else 0,
        wal_fill=wal.fill if wal else 0.0,
    )
