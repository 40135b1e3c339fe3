"""The data source `sluice` of Spark: what `format("sluice")` means. Composition root of the Spark side.

Everything here is picklable and free of side effects: Spark makes the object in the driver's Python workers and sends
it to others. Options are judged when the direction is known, that is when a reader or writer is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from sluice.log_store.clock import Clock
from sluice.streaming.spark.data_loss import LossJudge
from sluice.streaming.spark.following import CheckpointFollower, Follower
from sluice.streaming.spark.options import SourceOptions, columns_of
from sluice.streaming.spark.roots import Lake
from sluice.streaming.spark.schema import check_schema, spark_schema

NAME = "sluice"


class SluiceDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(columns_of(self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        from sluice.streaming.spark.batch_reader import BatchReader

        options = SourceOptions.parse(self._given, streaming=False, environ=os.environ)
        check_schema(schema, options.columns)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from sluice.streaming.spark.stream_reader import StreamReader

        options = SourceOptions.parse(self._given, streaming=True, environ=os.environ)
        check_schema(schema, options.columns)
        return StreamReader(options, make_follower)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # The sink is loaded by those who write.
        from sluice.streaming.spark.sink import batch_writer

        return batch_writer(self._given, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from sluice.streaming.spark.sink import stream_writer

        return stream_writer(self._given, schema, overwrite=overwrite)

    @property
    def _given(self) -> Mapping[str, Any]:
        return dict(self.options)


def make_follower(options: SourceOptions, lake: Lake, judge: LossJudge, clock: Clock) -> Follower:
    """With `group.id` the query is a member of a consumer group; without, its checkpoint is all there is."""
    if options.group is None:
        return CheckpointFollower(options, lake, judge)
    # Queries without a group need none of it.
    from sluice.streaming.spark.group_follower import GroupFollower

    return GroupFollower(options, lake, judge, clock)
