"""`spark.read.format("sluice")`: the rows between two points, decided once when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sluice.log_store.clock import SystemClock
from sluice.log_store.values import OffsetRange
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.planning import Slice, plan
from sluice.streaming.spark.reading import read_slice
from sluice.streaming.spark.retrying import Retry
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.starting import check_named, resolve
from sluice.streaming.spark.workers import begin_task


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        judge = LossJudge(fail=options.fail_on_data_loss)
        lake = Lake(options.address, SystemClock(), Retry(options.retries, options.retry_interval_ms))
        refs = lake.subscribed(options.subscription, all_there=True)
        check_named(options.starting, refs)
        check_named(options.ending, refs)
        views = lake.views(refs)
        for view in views.values():
            if view.problem is not None:
                raise view.problem
        starts = resolve(lake, judge, views, options.starting)
        ends = resolve(lake, judge, views, options.ending)
        ranges = {ref: OffsetRange(starts[ref], max(starts[ref], ends[ref])) for ref in refs}
        return [*plan(lake, options, views, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        begin_task()
        # Spark makes a task even when there are no partitions.
        return read_slice(self._options, partition) if isinstance(partition, Slice) else iter(())
