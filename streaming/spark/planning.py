"""From offset ranges to tasks. A task carries the files that hold its range, so that an executor opens them at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from sluice.log_store.delta_log import DataFile
from sluice.log_store.values import OffsetRange, PartitionRef, TopicPartition
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.offsets import SourceOffset
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.partition_view import PartitionView
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.schema import CREATE_TIME, LOG_APPEND_TIME
from sluice.streaming.spark.splitting import split


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: the rows of a partition between two offsets."""

    root: str
    ref: PartitionRef
    wanted: OffsetRange
    files: tuple[DataFile, ...]
    """That held the range when it was planned."""
    timestamp_type: int


@dataclass(frozen=True)
class Pack(InputPartition):
    """Several small slices for one task."""

    slices: tuple[Slice, ...]


def slices_of(task: InputPartition) -> tuple[Slice, ...]:
    """None of a task that Spark made although there was nothing to read."""
    if isinstance(task, Pack):
        return task.slices
    return (task,) if isinstance(task, Slice) else ()


PACKED_ROWS = 20_000
"""A task costs some tens of milliseconds, as much as reading several times as many rows."""


def packed(slices: Sequence[Slice]) -> list[InputPartition]:
    """Small neighbours share a task, each slice whole, so that rows of a partition stay in order."""
    packs: list[list[Slice]] = []
    room = 0
    for one in slices:
        if not packs or one.wanted.count > room:
            packs.append([])
            room = PACKED_ROWS
        packs[-1].append(one)
        room -= one.wanted.count
    return [found[0] if len(found) == 1 else Pack(tuple(found)) for found in packs]


def plan(
    lake: Lake,
    options: SourceOptions,
    views: Mapping[PartitionRef, PartitionView],
    ranges: Mapping[PartitionRef, OffsetRange],
) -> list[Slice]:
    """`ranges` lie inside the views."""
    pieces = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    root = lake.store.url
    return [Slice(root, ref, wanted, views[ref].files(wanted), _timestamp_type(lake, ref)) for ref, wanted in pieces]


def plan_batch(
    lake: Lake,
    options: SourceOptions,
    judge: LossJudge,
    end: SourceOffset,
    read_elsewhere: Callable[[], Collection[TopicPartition]] = frozenset,
) -> list[Slice]:
    """The tasks of the batch that ends at `end`, from that alone: it may have been logged by an earlier run.

    `read_elsewhere`: what others have read meanwhile. If that is gone nothing is lost; it is asked for only then.
    """
    refs = _refs(lake, judge, end)
    views = lake.views(refs)
    for ref, view in views.items():
        view.check_reaches(end.ranges[ref.tp].end)
    gone = any(end.ranges[ref.tp].start < view.log_start for ref, view in views.items())
    excused = read_elsewhere() if gone else ()
    ranges = {
        ref: (LossJudge(fail=False) if ref.tp in excused else judge).readable(
            ref.tp, end.ranges[ref.tp], view.log_start, view.end
        )
        for ref, view in views.items()
    }
    return plan(lake, options, views, ranges)


def _refs(lake: Lake, judge: LossJudge, end: SourceOffset) -> list[PartitionRef]:
    lake.catalog()
    refs = []
    for tp, wanted in end.ranges.items():
        if wanted.count <= 0:
            continue
        meta = lake.live(tp.topic, end.topic_ids[tp.topic])
        if meta is None or tp.partition >= meta.partitions:
            judge.report(f"topic {tp.topic!r} of id {end.topic_ids[tp.topic]} was deleted")
        else:
            refs.append(meta.partition(tp.partition))
    return refs


def _timestamp_type(lake: Lake, ref: PartitionRef) -> int:
    meta = lake.live(ref.topic, ref.topic_id)
    return LOG_APPEND_TIME if meta is not None and meta.config().log_append_time else CREATE_TIME
