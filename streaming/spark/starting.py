"""From what the options say (`points.py`) to offsets: a look into the log for times, and at its ends for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sluice.log_store.values import OffsetRange, PartitionRef, TopicPartition
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.offsets import SourceOffset
from sluice.streaming.spark.option_values import wrong
from sluice.streaming.spark.partition_view import PartitionView
from sluice.streaming.spark.points import EARLIEST_OFFSET, LATEST_OFFSET, ByOffset, ByTime, Edge, Point
from sluice.streaming.spark.roots import Lake


def offset_of(refs: Iterable[PartitionRef], positions: Mapping[PartitionRef, int]) -> SourceOffset:
    """The start of a query: nothing read yet."""
    refs = list(refs)
    return SourceOffset(
        ranges={ref.tp: OffsetRange(positions[ref], positions[ref]) for ref in refs},
        topic_ids={ref.topic: ref.topic_id for ref in refs},
    )


def resolve(
    lake: Lake, judge: LossJudge, views: Mapping[PartitionRef, PartitionView], point: Point
) -> dict[PartitionRef, int]:
    """An offset for every view. A partition that the point does not name is a new one: it begins at its log start."""
    return {ref: _resolve_one(lake, judge, view, point) for ref, view in views.items()}


def check_named(point: Point, refs: Sequence[PartitionRef]) -> None:
    """As in Spark's Kafka source, a list of offsets or times names every partition, and no other."""
    named: Iterable[TopicPartition]
    if isinstance(point, ByOffset):
        named = point.offsets
    elif isinstance(point, ByTime) and point.ms is None:
        named = point.times
    else:
        return
    given, there = set(named), {ref.tp for ref in refs}
    for tps, what in ((there - given, "is missing: name every partition"), (given - there, "is not subscribed")):
        if tps:
            names = ", ".join(sorted(map(str, tps)))
            raise wrong(point.option, f"{names} {what} (-1 means latest, -2 earliest)")


def _resolve_one(lake: Lake, judge: LossJudge, view: PartitionView, point: Point) -> int:
    if point is Edge.EARLIEST:
        return view.log_start
    if point is Edge.LATEST:
        return view.end
    if isinstance(point, ByTime):
        return _at_time(lake, view, point)
    if isinstance(point, ByOffset):
        return _given(judge, view, point)
    raise TypeError(point)


def _at_time(lake: Lake, view: PartitionView, point: ByTime) -> int:
    ms = point.times.get(view.ref.tp) if point.ms is None else point.ms
    if ms is None:
        return view.log_start
    found = lake.offset_at(view.ref, ms)
    if found is not None:
        return found
    if point.else_latest:
        return view.end
    raise wrong(
        point.option,
        f"{view.ref.tp} has no record at or after {ms}; with startingOffsetsByTimestampStrategy = latest "
        "the query would begin at its end",
    )


def _given(judge: LossJudge, view: PartitionView, point: ByOffset) -> int:
    offset = point.offsets.get(view.ref.tp, EARLIEST_OFFSET)
    if offset == EARLIEST_OFFSET:
        return view.log_start
    if offset == LATEST_OFFSET:
        return view.end
    if not view.log_start <= offset <= view.end:
        judge.report(f"{point.option}: offset {offset} of {view.ref.tp} is outside {view.log_start}..{view.end}")
    return min(max(offset, view.log_start), view.end)
