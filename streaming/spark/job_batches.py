"""One micro-batch: judge the records, send away the rejected ones, write the rest.

The order is the guarantee. Dead letters go first: a crash after them repeats the batch, which finds that its letters
are there already; a crash before them repeats everything. A batch is never finished with its letters lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sluice.log_store.errors import CorruptData
from sluice.streaming.spark.delta_target import ORIGIN, DeltaTarget
from sluice.streaming.spark.job_dead_letters import DeadLetters
from sluice.streaming.spark.job_log import say
from sluice.streaming.spark.job_options import JobOptions, Kind
from sluice.streaming.spark.job_records import load_function
from sluice.streaming.spark.job_rows import (
    ENVELOPE,
    decoded,
    judged,
    passes_through,
    readable,
    rejected_records,
    rows_for_target,
    target_schema,
)
from sluice.streaming.spark.job_stop import StopGate
from sluice.streaming.spark.offsets import SourceOffset

Write = Callable[[DataFrame, int], None]
SHOWN_ROWS = 20


class BatchWriter:
    """What `foreachBatch` calls. Made and checked before the query starts, so that a wrong target is told at once."""

    def __init__(self, spark: SparkSession, source: StructType, options: JobOptions, checkpoint: str, gate: StopGate):
        self._spark = spark
        self._options = options
        self._checkpoint = checkpoint
        self._gate = gate
        self._letters = DeadLetters(options) if options.dead_letter is not None else None
        self._write = self._writer(target_schema(source, options))
        if options.each is not None:
            load_function(options.each, "--each")

    def __call__(self, records: DataFrame, number: int) -> None:
        with self._gate.batch(number):
            self._process(records, number)

    def _process(self, records: DataFrame, number: int) -> None:
        options = self._options
        if passes_through(options) and options.each is None:
            self._write(records, number)
            return
        found = judged(records, options)
        if not passes_through(options):
            found = decoded(found, options)
        if self._letters is None:
            self._write(rows_for_target(found), number)
            return
        # Read twice: once for the letters, once for the rest. The user's function must not run twice, either.
        found = found.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            sent = self._letters.send(rejected_records(self._enveloped(found)), query_id(records), number)
            if sent:
                say("rejected", batch=number, records=sent, topic=options.dead_letter)
            self._write(rows_for_target(found), number)
        finally:
            found.unpersist()

    def _enveloped(self, found: DataFrame) -> DataFrame:
        if not passes_through(self._options):
            return found
        return found.withColumnsRenamed({name: new for name, new in ENVELOPE.items() if name in found.columns})

    # --- the targets ---------------------------------------------------------------------------

    def _writer(self, rows: StructType) -> Write:
        target = self._options.target
        if target.kind is Kind.FUNCTION:
            return load_function(target.place, "--to")
        if target.kind is Kind.PARQUET:
            return self._to_parquet
        if target.kind is Kind.CONSOLE:
            return self._to_console
        table = DeltaTarget(target.place)
        table.prepare(self._spark, rows)
        if self._options.group is None:
            return lambda rows, number: table.append(rows, query_id(rows), number)
        return lambda rows, number: self._merge(table, rows, number)

    def _merge(self, table: DeltaTarget, rows: DataFrame, number: int) -> None:
        end = planned_batch(self._spark, self._checkpoint, number)
        table.merge(rows, end.ranges, end.topic_ids)

    def _to_parquet(self, rows: DataFrame, number: int) -> None:
        """A folder for each batch, replaced as a whole when the batch is repeated."""
        folder = f"{self._options.target.place.rstrip('/')}/__batch={query_id(rows)[:8]}-{number:09d}"
        rows.write.mode("overwrite").parquet(folder)

    def _to_console(self, rows: DataFrame, number: int) -> None:
        say("batch", batch=number)
        readable(rows).orderBy(*ORIGIN).show(SHOWN_ROWS, truncate=False)


def query_id(frame: DataFrame) -> str:
    """Of the query that runs now: it stays the same as long as its checkpoint does."""
    found = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise RuntimeError("this is no batch of a streaming query")
    return found


def planned_batch(spark: SparkSession, checkpoint: str, number: int) -> SourceOffset:
    """What Spark has logged of the batch before it ran it: its offsets, with the ids of its topics."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Hadoop's file systems have no other door
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint.rstrip('/')}/offsets/{number}")
    system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    stream = system.open(path)
    try:
        text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return logged_offset(text)


def logged_offset(text: str) -> SourceOffset:
    """From an entry of Spark's offset log: a version, a line about the batch, then one line for each source."""
    lines = text.splitlines()
    if not lines or lines[0] != "v1" or len(lines) != 3:
        raise CorruptData(f"the checkpoint is not as Spark 4.2 writes it: {text[:200]!r}")
    return SourceOffset.from_json(msgspec.json.decode(lines[2]))
