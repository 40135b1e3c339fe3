"""The Spark source beside Spark's own readers of the same files, its cost per batch, and its latency.

Beside them stand the floors of PySpark's Python data sources (`spark_floors.py`): what one that does nothing takes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache, partial, reduce
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import spark_floors
from bench.data import batch
from bench.figures import Findings, at_least, at_most, percentile
from bench.harness import cluster, scratch
from bench.spark_session import Spent, cpu_seconds, in_turn, session
from sluice.log_store.engine import LogStore
from sluice.log_store.records import make_batch

RECORDS, PARTITIONS, ROUNDS, FILE_RECORDS = 10_000_000, 8, 4, 250_000
BATCHES, WARM_BATCHES, BATCH_ROUNDS = 25, 5, 4
PROBES, PROBE_EVERY_S = 150, 0.15
SAME = ",".join(spark_floors.COLUMNS)
OURS, ALL, PARQUET, DELTA = "sluice", "sluice, all seven columns", "parquet", "delta"
FLOOR, BARE = "a Python source of rows in memory", "pyarrow in a Python source"
SMALL, TASKS, RATE, RATE_TASKS, PYTHON = "sluice", "sluice, 8 tasks", "rate", "rate, 8 tasks", "an empty Python source"


def run(records: int | None = None) -> Findings:
    records = records or RECORDS
    findings = Findings(
        "spark_source",
        f"{records:,} × 100 B records over {PARTITIONS} partitions, read by Spark on local[2]",
        {"records": records, "partitions": PARTITIONS, "records_per_file": FILE_RECORDS, "sink": "noop"},
        notes=[
            "spark.python.unix.domain.socket.enabled = true, as docs/spark.md advises",
            "the same files and columns for all; delta is a union of the eight tables",
            f"{FLOOR}: what crossing from Python to the JVM takes, with nothing to read or decode",
            f"{BARE}: the same files as pyarrow decodes them, with nothing checked or chosen",
            "CPU is that of the JVM, its Python workers and this process: it hardly notices a busy machine",
            "per batch: triggerExecution of batches of 8 rows of 8 partitions; rate is Spark's rate-micro-batch source",
            f"one task each, but where 8 are named; {PYTHON}: one row from a Python worker, as in any Python source "
            "whose rows do not come with the plan",
            "latency: from the call of append (acks=all, in this process) to the record in foreachBatch, trigger 0",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        spark = stack.enter_context(session(folder))
        spark.dataSource.register(spark_floors.FloorSource)
        spark.dataSource.register(spark_floors.BareSource)
        log = stack.enter_context(cluster(folder / "root", fsync=False, merge=False))
        _throughput(findings, spark, log, folder, records)
        _overhead(findings, spark, log, folder)
        _latency(findings, spark, log, folder)
    return findings


# --- throughput ------------------------------------------------------------------------------------


def _throughput(findings: Findings, spark: SparkSession, log: LogStore, folder: Path, records: int) -> None:
    root = folder / "root"
    files = _fill(log, root, records)
    paths = [path for paths in files for path in paths]
    tables = [str(root / log.partition("orders", number).ref.folder) for number in range(PARTITIONS)]
    # A reader keeps the options it was once given: one for each.
    frames: dict[str, Callable[[], DataFrame]] = {
        OURS: lambda: spark.read.format("sluice").load(str(root), subscribe="orders", columns=SAME),
        ALL: lambda: spark.read.format("sluice").load(str(root), subscribe="orders"),
        PARQUET: lambda: spark.read.parquet(*paths).drop("headers"),
        DELTA: lambda: reduce(DataFrame.union, [spark.read.format("delta").load(t).drop("headers") for t in tables]),
        FLOOR: lambda: spark.read.format(spark_floors.NAME).load(tasks=PARTITIONS, rows=records // PARTITIONS),
        BARE: lambda: spark.read.format(spark_floors.BARE_NAME).load(tables=json.dumps(files)),
    }
    found = in_turn({name: partial(_read_all, frame) for name, frame in frames.items()}, ROUNDS)
    for name, rounds in found.items():
        findings.add(name, "M records/s", [records / spent.wall / 1e6 for spent in rounds])
    wall = {name: [spent.wall for spent in rounds] for name, rounds in found.items()}
    cpu = {name: [spent.cpu for spent in rounds] for name, rounds in found.items()}
    findings.ratio(f"rate of {OURS} / {PARQUET}", wall[PARQUET], wall[OURS], at_least(0.9))
    findings.ratio(f"rate of {OURS} / {DELTA}", wall[DELTA], wall[OURS])
    findings.ratio(f"rate of {OURS} / {FLOOR}", wall[FLOOR], wall[OURS])
    findings.ratio(f"rate of {OURS} / {BARE}", wall[BARE], wall[OURS])
    findings.ratio(f"rate of {BARE} / {PARQUET}", wall[PARQUET], wall[BARE])
    findings.ratio(f"rate of {FLOOR} / {PARQUET}", wall[PARQUET], wall[FLOOR])
    for name in (OURS, PARQUET, DELTA, FLOOR, BARE):
        findings.add(f"{name}: CPU of 1 M records", "s", [spent / records * 1e6 for spent in cpu[name]])
    findings.ratio(f"CPU of {PARQUET} / {OURS}", cpu[PARQUET], cpu[OURS])


def _read_all(frame: Callable[[], DataFrame]) -> None:
    frame().write.format("noop").mode("overwrite").save()


def _fill(log: LogStore, root: Path, records: int) -> list[list[str]]:
    """The files of each partition."""
    log.create_topic("orders", partitions=PARTITIONS)
    each = records // PARTITIONS
    made = lru_cache(batch)
    for number in range(PARTITIONS):
        for seed, done in enumerate(range(0, each, FILE_RECORDS)):
            log.append("orders", number, made(min(FILE_RECORDS, each - done), seed)).result()
    partitions = [log.partition("orders", number) for number in range(PARTITIONS)]
    return [[str(root / one.ref.folder / file.path) for file in one.state.files] for one in partitions]


# --- what a batch costs --------------------------------------------------------------------------


def _overhead(findings: Findings, spark: SparkSession, log: LogStore, folder: Path) -> None:
    log.create_topic("small", partitions=PARTITIONS)
    for number in range(PARTITIONS):
        log.append("small", number, batch(2 * BATCHES)).result()
    frames: dict[str, DataFrame] = {
        SMALL: _small(spark, folder),
        RATE: _rate(spark, 1),
        PYTHON: spark.readStream.format(spark_floors.NAME).load(tasks=1),
        TASKS: _small(spark, folder, minPartitions=PARTITIONS),
        RATE_TASKS: _rate(spark, PARTITIONS),
    }
    found: dict[str, list[Spent]] = {name: [] for name in frames}
    for number in range(BATCH_ROUNDS + 1):
        for place, (name, frame) in enumerate(frames.items()):
            taken = _one_batch(frame, folder / f"checkpoint-{place}-{number}")
            if number:
                found[name].append(taken)
    wall = {name: [spent.wall for spent in rounds] for name, rounds in found.items()}
    for name, rounds in found.items():
        findings.add(f"{name}: one micro-batch", "ms", wall[name])
        findings.add(f"{name}: CPU of one micro-batch", "ms", [spent.cpu for spent in rounds])
    findings.ratio(f"one micro-batch, {SMALL} / {RATE}", wall[SMALL], wall[RATE], at_most(1.3))
    findings.ratio(f"one micro-batch, {SMALL} / {PYTHON}", wall[SMALL], wall[PYTHON])
    findings.ratio(f"one micro-batch, {PYTHON} / {RATE}", wall[PYTHON], wall[RATE])
    findings.ratio(f"one micro-batch, {TASKS} / {RATE_TASKS}", wall[TASKS], wall[RATE_TASKS])


def _small(spark: SparkSession, folder: Path, **more: int) -> DataFrame:
    source = spark.readStream.format("sluice").options(subscribe="small", startingOffsets="earliest", **more)
    return source.load(str(folder / "root"), maxOffsetsPerTrigger=PARTITIONS)


def _rate(spark: SparkSession, tasks: int) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").load(rowsPerBatch=PARTITIONS, numPartitions=tasks)


def _one_batch(frame: DataFrame, checkpoint: Path) -> Spent:
    """Milliseconds: the median of the batches after the first, and their CPU on average."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    found: dict[int, float] = {}

    def reached(count: int) -> bool:
        found.update(_durations(query))
        return len(found) >= count

    try:
        _until(query, lambda: reached(WARM_BATCHES))
        begun, cpu = len(found), cpu_seconds()
        _until(query, lambda: reached(BATCHES))
        cpu = (cpu_seconds() - cpu) / max(1, len(found) - begun)
    finally:
        query.stop()
    return Spent(median(ms for number, ms in found.items() if number >= WARM_BATCHES), cpu * 1e3)


def _durations(query: StreamingQuery) -> dict[int, float]:
    return {p.batchId: float(p.durationMs["triggerExecution"]) for p in query.recentProgress if p.numInputRows}


def _until(query: StreamingQuery, condition: Callable[[], Any]) -> None:
    pause = threading.Event()
    while not condition():
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        pause.wait(0.05)


# --- latency -------------------------------------------------------------------------------------


def _latency(findings: Findings, spark: SparkSession, log: LogStore, folder: Path) -> None:
    log.create_topic("probes", partitions=1)
    seen: dict[int, float] = {}

    def arrived(frame: DataFrame, _: int) -> None:
        rows = frame.collect()
        now = time.perf_counter()
        seen.update({row.offset: now for row in rows})

    frame = spark.readStream.format("sluice").options(subscribe="probes", startingOffsets="earliest")
    writer = frame.load(str(folder / "root")).writeStream.foreachBatch(arrived)
    query = writer.option("checkpointLocation", str(folder / "checkpoint-probes")).start()
    sent: list[float] = []
    pause = threading.Event()
    try:
        for _ in range(PROBES):
            sent.append(time.perf_counter())
            log.append("probes", 0, make_batch([{"value": b"probe"}], default_ms=0)).result()
            pause.wait(PROBE_EVERY_S)
        _until(query, lambda: len(seen) == PROBES)
    finally:
        query.stop()
    taken = [(seen[offset] - sent[offset]) * 1e3 for offset in range(PROBES // 5, PROBES)]
    for percent in (50, 99):
        findings.add(f"produce to foreachBatch, p{percent}", "ms", [percentile(taken, percent)])
