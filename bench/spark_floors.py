"""What PySpark's Python data sources cost when they do nothing, or only what pyarrow does: floors of our own.

Workers import these by name, so they are found when the benchmark is started in the folder of the repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bench.data import batch
from sluice.streaming.spark.schema import arrow_schema, spark_schema

COLUMNS = ("key", "value", "offset", "timestamp")
BATCH_ROWS = 8_192
NAME, BARE_NAME = "bench-floor", "bench-bare"


class FloorSource(DataSource):
    """Rows that are in memory already. Options: `tasks`, and for a batch query `rows` of each."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(int(self.options["tasks"]), int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return FloorStream(int(self.options["tasks"]))


class Rows(InputPartition):
    def __init__(self, count: int) -> None:
        super().__init__(None)
        self.count = count


class FloorReader(DataSourceReader):
    def __init__(self, tasks: int, rows: int) -> None:
        self._tasks, self._rows = tasks, rows

    def partitions(self) -> list[InputPartition]:
        return [Rows(self._rows) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        for done in range(0, partition.count, BATCH_ROWS):
            yield decoded().slice(0, partition.count - done)


class BareSource(DataSource):
    """Files as pyarrow decodes them, and nothing else: no offsets checked, no ranges, no checksums.

    Option `tables`: for each task the files of one partition, as JSON.
    """

    @classmethod
    def name(cls) -> str:
        return BARE_NAME

    def schema(self) -> StructType:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BareReader(json.loads(self.options["tables"]))


class Files(InputPartition):
    def __init__(self, paths: list[str]) -> None:
        super().__init__(None)
        self.paths = paths


class BareReader(DataSourceReader):
    def __init__(self, tables: list[list[str]]) -> None:
        self._tables = tables

    def partitions(self) -> list[InputPartition]:
        return [Files(paths) for paths in self._tables]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        schema = arrow_schema(COLUMNS)
        for path in partition.paths:
            for rows in pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=COLUMNS, use_threads=False):
                yield pa.RecordBatch.from_arrays([rows.column(name) for name in COLUMNS], schema=schema)


class FloorStream(DataSourceStreamReader):
    """One row per task and batch, for ever."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [Rows(1) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield decoded().slice(0, 1)


@lru_cache(maxsize=1)
def decoded() -> pa.RecordBatch:
    """Of the shape of the benchmark's records."""
    rows = batch(BATCH_ROWS)
    named = dict(zip(rows.schema.names, rows.columns, strict=True)) | {"offset": pa.array(range(BATCH_ROWS))}
    return pa.RecordBatch.from_arrays([named[name] for name in COLUMNS], schema=arrow_schema(COLUMNS))
