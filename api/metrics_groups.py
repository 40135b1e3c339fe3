"""What /metrics says of consumer groups: how many there are, and how far behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sluice.api.groups_resources import STATES
from sluice.api.prometheus import Labels, family, single
from sluice.log_store.errors import SluiceError
from sluice.streaming.coordinator import Coordinator, GroupView
from sluice.streaming.coordinator.lag import LagReader, PartitionLag, summary
from sluice.streaming.coordinator.status import Status


def lines(coordinator: Coordinator, reader: LagReader, most: int) -> list[str]:
    """Reads files: to be asked from a thread. A process that does not coordinate says nothing of groups."""
    try:
        views = coordinator.views()
    except SluiceError:
        return []
    return list(_lines([(view, reader.lags(view)) for view in views], most))


def _lines(found: list[tuple[GroupView, list[PartitionLag]]], most: int) -> Iterator[str]:
    states = Counter(STATES[view.group.phase] for view, _ in found)
    samples = (({"state": state}, states[state]) for state in STATES.values())
    yield from family("sluice_groups", "gauge", "Consumer groups by state.", samples)
    members = sum(len(view.group.members) for view, _ in found)
    yield from single("sluice_group_members", "gauge", "Members of all consumer groups.", members)
    total = sum(lag.lag for _, lags in found for lag in lags)
    yield from single("sluice_groups_lag_records", "gauge", "Records that groups have not read, all in all.", total)
    yield from _by_partition(found, most)
    yield from _by_group(found, most)


def _by_partition(found: list[tuple[GroupView, list[PartitionLag]]], most: int) -> Iterator[str]:
    """Those that lag most come first: if not all can be shown, the others matter less."""
    rows = [(view.group.group_id, lag) for view, lags in found for lag in lags]
    rows.sort(key=lambda row: -row[1].lag)
    shown = [(_labels(group_id, lag), lag) for group_id, lag in rows[:most]]
    yield from single("sluice_group_partitions_shown", "gauge", "Partitions of groups that follow.", len(shown))
    records = ((labels, lag.lag) for labels, lag in shown)
    yield from family("sluice_group_lag_records", "gauge", "Records that a group has not read.", records)
    seconds = ((labels, lag.lag_seconds) for labels, lag in shown)
    yield from family("sluice_group_lag_seconds", "gauge", "Age of the oldest record not read.", seconds)


def _labels(group_id: str, lag: PartitionLag) -> Labels:
    return {"group": group_id, "topic": lag.where.topic, "partition": lag.where.partition}


def _by_group(found: list[tuple[GroupView, list[PartitionLag]]], most: int) -> Iterator[str]:
    """The worst first; 1 for the status that holds."""
    order = (Status.ERR, Status.WARN, Status.OK)
    rows = sorted(((order.index(summary(lags).status), view.group.group_id) for view, lags in found))
    samples = (({"group": group_id, "status": order[place]}, 1) for place, group_id in rows[:most])
    yield from family("sluice_group_status", "gauge", "How a group is doing: OK, WARN or ERR.", samples)
