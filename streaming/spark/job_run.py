"""Runs the consumer job: the session, the query, the wait for its end, the exit code."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import load_settings
from sluice.log_store.errors import InvalidConfig, InvalidRequest, SluiceError
from sluice.streaming.spark.job_batches import BatchWriter
from sluice.streaming.spark.job_finished import note_finished, told_what_is_finished
from sluice.streaming.spark.job_log import say, set_up_logging
from sluice.streaming.spark.job_options import PROGRAM, JobOptions, Kind, UsageError, parse_options
from sluice.streaming.spark.job_progress import ProgressListener
from sluice.streaming.spark.job_records import load_function
from sluice.streaming.spark.job_rows import target_schema
from sluice.streaming.spark.job_stop import StopGate, stop_in_order, stop_on_signals, stop_with_jvm
from sluice.streaming.spark.options import columns_of
from sluice.streaming.spark.register import register
from sluice.streaming.spark.schema import spark_schema

DONE, FAILED, USAGE = 0, 1, 2
LOOK_EVERY_S = 0.5
SLOW_STARTS = 6
"""How often a query is started on a machine that is too busy."""

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main(arguments: Sequence[str]) -> int:
    try:
        options = parse_options(arguments, os.environ)
        set_up_logging()
        return run(options)
    except UsageError as error:
        sys.stderr.write(f"{PROGRAM}: {error.message}\n")
        return USAGE
    except (SluiceError, ConfigurationError) as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
    except (PySparkException, Py4JError) as error:
        sys.stderr.write(f"{PROGRAM}: {_first_lines(error)}\n")
    return FAILED


def run(options: JobOptions) -> int:
    gate = StopGate()
    spark = make_session(options)
    check_with_spark(options)
    farewell = ExitStack()
    try:
        stop_on_signals(gate)
        if under_spark_submit():
            farewell.callback(stop_with_jvm(spark, gate))
        spark.streams.addListener(ProgressListener(options.application, options.metrics_file))
        with checkpoint_of(options) as checkpoint, told_what_is_finished(options) as told:
            gate.exit_code = run_query(spark, told, checkpoint, gate)
        spark.stop()
        return gate.exit_code
    except BaseException:
        gate.exit_code = FAILED
        raise
    finally:
        farewell.close()
        gate.finished.set()


def under_spark_submit() -> bool:
    """Spark's JVM is there already, and its class path and master are decided."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def make_session(options: JobOptions) -> SparkSession:
    if under_spark_submit():
        builder = SparkSession.Builder().appName(options.application)
        # Without Delta's jars these would make every query fail.
        for key, value in DELTA.items() if options.target.kind is Kind.DELTA else ():
            builder = builder.config(key, value)
        spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    else:
        from sluice.conf.spark import spark_session

        settings = load_settings(None, os.environ).spark
        spark = spark_session(
            settings if options.master is None else replace(settings, master=options.master), options.application
        )
    register(spark)
    if options.target.kind is Kind.DELTA:
        _check_delta(spark)
    return spark


def _check_delta(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - to ask Spark's own class loader there is no other door
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(DELTA["spark.sql.extensions"]):
        raise InvalidConfig(
            "--to delta: Delta's jars are missing. Give spark-submit "
            "--packages io.delta:delta-spark_4.2_2.13:4.4.0, or --jars with the two files that "
            "`python -m sluice.streaming.spark.packaging jars` prints.",
            name="to",
        )


def check_with_spark(options: JobOptions) -> None:
    """Options that are wrong, too, but only a session can tell: it brings --py-files, and knows Spark's types."""
    try:
        if options.each is not None:
            load_function(options.each, "--each")
        if options.target.kind is Kind.FUNCTION:
            load_function(options.target.place, "--to")
        if options.json_schema is not None:
            target_schema(spark_schema(columns_of(options.source)), options)
    except (InvalidConfig, InvalidRequest) as error:
        raise UsageError(re.sub("^schema:", "--json-schema:", error.message)) from None


@contextmanager
def checkpoint_of(options: JobOptions) -> Iterator[str]:
    """The folder that was given; else one for this run only, whose progress the group keeps, or nobody."""
    if options.checkpoint is not None:
        yield options.checkpoint
        return
    folder = tempfile.mkdtemp(prefix="sluice-checkpoint-")
    try:
        yield f"file://{folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_query(spark: SparkSession, options: JobOptions, checkpoint: str, gate: StopGate) -> StreamingQuery:
    records = spark.readStream.format("sluice").options(**options.source).load()
    writer = BatchWriter(spark, records.schema, options, checkpoint, gate)
    stream = records.writeStream.queryName(options.application).option("checkpointLocation", checkpoint)
    say("reading", target=str(options.target), group=options.group, trigger=options.trigger.name)
    return stream.trigger(**options.trigger.arguments).foreachBatch(writer).start()  # type: ignore[arg-type]


def run_query(spark: SparkSession, options: JobOptions, checkpoint: str, gate: StopGate) -> int:
    """Until it ends by itself or a stop is asked for. Starting anew is safe: the checkpoint knows what is finished."""
    for attempts_left in reversed(range(SLOW_STARTS)):
        query = start_query(spark, options, checkpoint, gate)
        follow(query, gate, lambda number: note_finished(spark, options, checkpoint, number))
        failure = query.exception()
        if failure is None or gate.refused:
            break
        if gate.requested or not attempts_left or not started_too_slowly(str(failure)):
            sys.stderr.write(f"{PROGRAM}: the query failed: {_first_lines(failure)}\n")
            return FAILED
        say("again", why="this machine is too busy to start the query's process in the time that Spark allows")
    say("done", batches=gate.last_batch + 1)
    return DONE


def follow(query: StreamingQuery, gate: StopGate, recorded: Callable[[int], None]) -> None:
    while query.isActive and not gate.wait_requested(LOOK_EVERY_S):
        pass
    if gate.requested:
        stop_in_order(query, gate, recorded)


def started_too_slowly(failure: str) -> bool:
    """Spark waits ten seconds for the planner process of a source, which no setting changes."""
    return "Python worker failed to connect back" in failure


def _first_lines(failure: Exception) -> str:
    """What went wrong, without the stack of the JVM."""
    lines = [line for line in str(failure).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:30])
