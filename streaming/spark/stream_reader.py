"""`spark.readStream.format("sluice")`: looks at the log, decides how far the next batch goes, cuts it into tasks.

Which partitions, and from where, is a `Follower`'s decision (`following.py`). Planner calls come from one thread of one
process; `read` runs in the executors' Python workers, which know only the options and their slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sluice.log_store.clock import Clock, SystemClock
from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.streaming.spark import admission
from sluice.streaming.spark.carrying import CarriesRows, rows_to_carry
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.following import Follower
from sluice.streaming.spark.offsets import Json, SourceOffset, plain
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.partition_view import PartitionView
from sluice.streaming.spark.planning import Slice, packed, plan, plan_batch, slices_of
from sluice.streaming.spark.reading import read_slice
from sluice.streaming.spark.retrying import Retry
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.workers import begin_task

MakeFollower = Callable[[SourceOptions, Lake, LossJudge, Clock], Follower]


class StreamReader(CarriesRows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Constructing it does nothing, because Spark constructs it in processes that never plan."""

    def __init__(self, options: SourceOptions, make_follower: MakeFollower) -> None:
        self._options = options
        self._make_follower = make_follower
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    @property
    def _plans(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options, self._make_follower, SystemClock())
        return self._planner

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plans.fix_target()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What `latestOffset` is called with, but by Trigger.Once, which asks for everything."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> Json:  # noqa: N802
        return self._plans.initial()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        return self._plans.next_end(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return self._plans.newest()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        self.carry(None)
        slices = self._plans.tasks(end)
        if not self._plans.packs:
            return slices
        tasks = packed(slices)
        if len(tasks) == 1 and start != end:  # both are the same when a restarted query tells where it had got to
            self.carry(rows_to_carry(self._options, slices_of(tasks[0])))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin_task()
        for one in slices_of(partition):
            yield from read_slice(self._options, one)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()


class Planner:
    """The state of a running query, in the planner process."""

    def __init__(self, options: SourceOptions, make_follower: MakeFollower, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._judge = LossJudge(fail=options.fail_on_data_loss)
        self.lake = Lake(options.address, clock, Retry(options.retries, options.retry_interval_ms))
        self._follower = make_follower(options, self.lake, self._judge, clock)
        self._initial: Json | None = None
        self._planned: Json | None = None
        self._target: Mapping[PartitionRef, int] | None = None
        self._views: dict[PartitionRef, PartitionView] = {}
        """Of the last look: the batch that it decided is cut into tasks without another one."""
        least = options.min_offsets_per_trigger
        self._patience = None if least is None else admission.Patience(least, options.max_trigger_delay_ms / 1000)

    def fix_target(self) -> None:
        """Of Trigger.AvailableNow: everything that is subscribed, whoever in a group will read it."""
        refs = self.lake.subscribed(self._options.subscription)
        self._target = {ref: view.end for ref, view in self.lake.views(refs).items()}
        self._patience = None  # the rest may never reach the least number, and the query would not end
        self._follower.prepare_available_now()

    def initial(self) -> Json:
        """Spark asks twice; with `latest` a second look could lie behind records that the first one did not have."""
        if self._initial is None:
            self._initial = self._follower.initial().to_json()
        return self._initial

    def next_end(self, start: Json, *, limited: bool) -> Json:
        begun = SourceOffset.from_json(start)
        self._follower.done(begun)
        ranges = self._admitted(self._backlog(self._follower.positions(begun)), limited=limited)
        if not any(wanted.count for wanted in ranges.values()):
            self._follower.idle()
            return start
        end = SourceOffset(
            ranges={ref.tp: wanted for ref, wanted in ranges.items()},
            topic_ids={ref.topic: ref.topic_id for ref in ranges},
            stamp=self._follower.stamp(),
        )
        self._follower.planned(end)
        self._planned = end.to_json()
        return self._planned

    def _backlog(self, positions: Mapping[PartitionRef, int]) -> dict[PartitionRef, OffsetRange]:
        """From each position to the end of the log, as far as it can be read."""
        found = {}
        self._views = self.lake.views(positions)
        for ref, position in positions.items():
            view = self._views[ref]
            if view.problem is not None and position >= view.end:
                raise view.problem  # "no more rows" would be a lie
            wanted = OffsetRange(position, max(position, view.end))
            found[ref] = self._judge.readable(ref.tp, wanted, view.log_start, max(position, view.end))
            if position > view.end:
                self._judge.report(f"{ref.tp} ends at {view.end}, before offset {position} that was there already")
        return found

    def _admitted(self, backlog: dict[PartitionRef, OffsetRange], *, limited: bool) -> dict[PartitionRef, OffsetRange]:
        if self._target is not None:
            backlog = {
                **{ref: OffsetRange(wanted.start, wanted.start) for ref, wanted in backlog.items()},
                **admission.up_to(self._target, backlog),
            }
        if not limited:
            return backlog
        count = sum(wanted.count for wanted in backlog.values())
        if count and self._patience is not None and not self._patience.lets_through(count, self._clock.boottime()):
            return {}
        limit = self._options.max_offsets_per_trigger
        return backlog if limit is None else admission.at_most(limit, backlog)

    def newest(self) -> Json | None:
        return plain({ref.tp: view.end for ref, view in self._views.items()}) if self._views else None

    @property
    def packs(self) -> bool:
        """Not where tasks were asked for by number or size, nor where each file is a round trip to wait for."""
        options = self._options
        asked = options.min_partitions is not None or options.max_records_per_partition is not None
        return not asked and not self.lake.store.durable_puts

    def tasks(self, end: Json) -> list[Slice]:
        wanted = SourceOffset.from_json(end)
        if end == self._planned:
            ranges = {ref: wanted.ranges[ref.tp] for ref in self._views if ref.tp in wanted.ranges}
            return plan(self.lake, self._options, self._views, ranges)
        return plan_batch(self.lake, self._options, self._judge, wanted, lambda: self._follower.read_elsewhere(wanted))

    def close(self) -> None:
        self._follower.close()
