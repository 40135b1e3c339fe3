"""The sink: `df.write.format("sluice")` and `df.writeStream.format("sluice")`.

Two phases. Tasks upload their rows to a staging place, under names of their own; the driver then names the attempts
that won, and the service appends those, once. A task that is retried, that runs twice or that comes back with its rows
in another order leaves parts that nobody names.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sluice.log_store.errors import InvalidConfig, InvalidRequest, SluiceError
from sluice.log_store.sinks import JOB_PREFIX, MAX_PARTS
from sluice.log_store.staging import Part
from sluice.streaming.spark.sink_columns import SinkColumns
from sluice.streaming.spark.sink_options import SinkOptions
from sluice.streaming.spark.staging import commit, drop, open_upload, stage
from sluice.streaming.spark.workers import begin_task

logger = logging.getLogger("sluice.spark")

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Properties that Spark sets on the tasks of a micro-batch. The id of a query comes from its checkpoint: it is the same
after a restart, and another query has another."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What an attempt that won has left behind."""

    query: str
    batch: int
    task: int
    parts: tuple[Part, ...]


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> JobWriter:
    if overwrite:
        raise InvalidConfig("mode('overwrite'): a log is appended to; use mode('append')", name="mode")
    parsed = SinkOptions.parse(options, streaming=False, environ=os.environ)
    return JobWriter(parsed, _columns(parsed, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:  # noqa: ARG001
    """`overwrite` is output mode complete: each batch appends the whole result, as with Spark's Kafka sink."""
    parsed = SinkOptions.parse(options, streaming=True, environ=os.environ)
    return StreamWriter(parsed, _columns(parsed, schema))


def _columns(options: SinkOptions, schema: StructType) -> SinkColumns:
    return SinkColumns.of(schema, topic=options.topic, include_headers=options.include_headers)


class JobWriter(DataSourceArrowWriter):
    """A batch write. Its commit is exactly-once; a job that is run again is another job, unless it names itself."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options, self._columns = options, columns
        # Made once in the driver: tasks and commit get copies of this object.
        self._query = options.query_id or f"{JOB_PREFIX}{uuid.uuid4().hex}"
        self._batch = options.batch_id or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _write(self._options, self._columns, self._query, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _commit(self._options, self._query, self._batch, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _abort(self._options, self._query, self._batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write, exactly-once: a batch that Spark runs again adds nothing twice."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options, self._columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return _write(self._options, self._columns, _property(QUERY_ID), int(_property(BATCH_ID)), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if not staged:
            return  # a batch without tasks: no query to speak of, and nothing to append
        query = staged[0].query
        if any((message.query, message.batch) != (query, batchId) for message in staged):
            raise InvalidRequest(f"the tasks of batch {batchId} say that they belong to another query or batch")
        _commit(self._options, query, batchId, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _staged(messages)
        if staged:
            _abort(self._options, staged[0].query, batchId)


def _property(name: str) -> str:
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(name)
    if found is None:
        raise InvalidRequest(f"this is no task of a micro-batch: Spark does not set {name}")
    return found


def _write(
    options: SinkOptions, columns: SinkColumns, query: str, batch: int, batches: Iterator[pa.RecordBatch]
) -> Staged:
    begin_task()
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
    rows = (each for received in batches if received.num_rows for each in columns.records(received))
    upload = open_upload(options, query, batch)
    try:
        parts = stage(rows, upload, task=task, attempt=attempt, part_bytes=options.part_bytes)
    finally:
        upload.close()
    return Staged(query, batch, task, tuple(parts))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """In the order of the tasks. None stands for a task that failed."""
    return sorted((m for m in messages if isinstance(m, Staged)), key=lambda message: message.task)


def _commit(options: SinkOptions, query: str, batch: int, staged: list[Staged]) -> None:
    parts = [part for message in staged for part in message.parts]
    _check_count(parts, tasks=sum(1 for message in staged if message.parts))
    records = commit(options, query, batch, parts)
    logger.info("batch %d of %s: %d records appended, of %d", batch, query, records, sum(p.rows for p in parts))


def _check_count(parts: Sequence[Part], *, tasks: int) -> None:
    """The service would refuse them as well, but only here is it known how they came to be so many."""
    if len(parts) > MAX_PARTS:
        topics = len({part.topic for part in parts})
        raise InvalidRequest(
            f"the batch has {len(parts)} parts, from {tasks} tasks with rows for {topics} topics; at most {MAX_PARTS} "
            "can be committed at once. Each task makes a part, or more, for each topic that it meets: bring the rows "
            "of a topic together before the write, with repartition('topic'), or have fewer tasks, with coalesce(n). "
            "Parts are also fewer with a larger option 'upload.part.bytes', or with less input for each batch",
            field="parts",
            limit=MAX_PARTS,
        )


def _abort(options: SinkOptions, query: str, batch: int) -> None:
    """What cannot be deleted now is swept by the service when it is old."""
    with suppress(SluiceError):
        drop(options, query, batch)
