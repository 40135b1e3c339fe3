"""The Spark source beside Spark's own readers of the same files, its cost per batch, and its latency."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.data import batch
from bench.figures import Findings, at_least, at_most, percentile
from bench.harness import cluster, scratch, seconds
from sluice.conf.settings import SparkSettings
from sluice.conf.spark import spark_session
from sluice.log_store.engine import LogStore
from sluice.log_store.records import make_batch
from sluice.streaming.source import SluiceDataSource

RECORDS, PARTITIONS, ROUNDS, FILE_RECORDS = 10_000_000, 8, 5, 250_000
BATCHES, WARM_BATCHES = 40, 10
PROBES, PROBE_EVERY_S = 150, 0.15
SAME = "key,value,offset,timestamp"
OURS, ALL, PARQUET, DELTA = "sluice", "sluice, all seven columns", "parquet", "delta"


def run(records: int | None = None) -> Findings:
    records = records or RECORDS
    findings = Findings(
        "spark_source",
        f"{records:,} × 100 B records over {PARTITIONS} partitions, read by Spark on local[2]",
        {"records": records, "partitions": PARTITIONS, "records_per_file": FILE_RECORDS, "sink": "noop"},
        notes=[
            "spark.python.unix.domain.socket.enabled = true, as docs/spark.md advises",
            "the same files and columns for all; delta is a union of the eight tables",
            "per batch: triggerExecution of batches of 8 rows in 8 tasks; rate is Spark's rate-micro-batch source",
            "latency: from the call of append (acks=all, in this process) to the record in foreachBatch, trigger 0",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        spark = stack.enter_context(_session(folder))
        log = stack.enter_context(cluster(folder / "root", fsync=False, merge=False))
        _throughput(findings, spark, log, folder, records)
        _overhead(findings, spark, log, folder)
        _latency(findings, spark, log, folder)
    return findings


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    extra = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
    extra["spark.python.unix.domain.socket.enabled"] = "true"
    session = spark_session(SparkSettings(), "sluice-bench", extra)
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(SluiceDataSource)
    try:
        yield session
    finally:
        session.stop()


# --- throughput ------------------------------------------------------------------------------------


def _throughput(findings: Findings, spark: SparkSession, log: LogStore, folder: Path, records: int) -> None:
    root = folder / "root"
    paths = _fill(log, root, records)
    tables = [str(root / log.partition("orders", number).ref.folder) for number in range(PARTITIONS)]
    source = spark.read.format("sluice").option("subscribe", "orders")
    frames: dict[str, Callable[[], DataFrame]] = {
        OURS: lambda: source.option("columns", SAME).load(str(root)),
        ALL: lambda: spark.read.format("sluice").option("subscribe", "orders").load(str(root)),
        PARQUET: lambda: spark.read.parquet(*paths).drop("headers"),
        DELTA: lambda: reduce(DataFrame.union, [spark.read.format("delta").load(t).drop("headers") for t in tables]),
    }
    times: dict[str, list[float]] = {name: [] for name in frames}
    for number in range(ROUNDS + 1):
        for name, frame in frames.items():
            spent = seconds(lambda frame=frame: frame().write.format("noop").mode("overwrite").save())
            if number:
                times[name].append(spent)
    for name, spent in times.items():
        findings.add(name, "M records/s", [records / t / 1e6 for t in spent])
    findings.ratio(f"rate of {OURS} / {PARQUET}", times[PARQUET], times[OURS], at_least(0.9))
    findings.ratio(f"rate of {OURS} / {DELTA}", times[DELTA], times[OURS])


def _fill(log: LogStore, root: Path, records: int) -> list[str]:
    log.create_topic("orders", partitions=PARTITIONS)
    each = records // PARTITIONS
    for number in range(PARTITIONS):
        for seed, done in enumerate(range(0, each, FILE_RECORDS)):
            log.append("orders", number, batch(min(FILE_RECORDS, each - done), seed)).result()
    partitions = [log.partition("orders", number) for number in range(PARTITIONS)]
    return [str(root / one.ref.folder / file.path) for one in partitions for file in one.state.files]


# --- what a batch costs --------------------------------------------------------------------------


def _overhead(findings: Findings, spark: SparkSession, log: LogStore, folder: Path) -> None:
    log.create_topic("small", partitions=PARTITIONS)
    total = BATCHES + WARM_BATCHES
    for number in range(PARTITIONS):
        log.append("small", number, batch(total)).result()
    ours = (
        spark.readStream.format("sluice")
        .options(subscribe="small", startingOffsets="earliest", maxOffsetsPerTrigger=str(PARTITIONS))
        .load(str(folder / "root"))
    )
    rate = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=str(PARTITIONS), numPartitions=str(PARTITIONS))
        .load()
    )
    frames = {"sluice": ours, "rate": rate}
    spent = {name: _batches(frame, folder / f"checkpoint-{name}", total) for name, frame in frames.items()}
    for name, times in spent.items():
        findings.add(f"{name}: one micro-batch", "ms", times)
    findings.add("one micro-batch, sluice / rate", "×", [median(spent["sluice"]) / median(spent["rate"])], at_most(1.3))


def _batches(frame: DataFrame, checkpoint: Path, count: int) -> list[float]:
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    found: dict[int, float] = {}
    try:
        _until(query, lambda: found.update(_durations(query)) or len(found) >= count)
    finally:
        query.stop()
    return [ms for number, ms in sorted(found.items()) if WARM_BATCHES <= number < count]


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
