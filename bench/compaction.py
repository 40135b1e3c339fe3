"""Key compaction on Spark against a plain Spark job on the same files, what producers notice of it, and its memory.

`python -m bench compaction` is the full size; `--records 1000000 --keys 50000` is a quick look.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data import VALUE_BYTES, batch
from bench.figures import REPOSITORY, Findings, at_least, at_most, percentile
from bench.harness import cluster, scratch, seconds
from bench.http import Process, ask, service
from bench.http_bodies import Body, json_body
from bench.process_memory import TreeMemory
from sluice.conf.settings import Settings, SparkSettings, StorageSettings
from sluice.jobs.command_line import job_parser
from sluice.jobs.compaction import JOB
from sluice.jobs.framework import run_job
from sluice.jobs.output import Output
from sluice.log_store.compaction import LogView, cleanable
from sluice.log_store.records import HEADERS, RECORD_SCHEMA

RECORDS, KEYS, ROUNDS = 20_000_000, 1_000_000, 2
BATCH, SEGMENT_BYTES = 100_000, 128 << 20
ENOUGH_S = 110.0
"""No further round is begun after this: all of it shall take six minutes at the most."""
WARM_RECORDS = 400_000
RATE, IDLE_S, PIECE_S = 500, 10.0, 4.0
KEY_BYTES, ROW_BYTES = 15, 24
"""Of `customer-123456`; of offset, timestamp and two positions in Arrow."""
MEMORY, SMALL_HEAP = "2g", "512m"
MIB = 1 << 20
HEAP_MIB = 512
MEMORY_RATIO = 4.0
"""Times that the rows must be larger than the heap for the memory to say anything."""


def run(records: int | None = None, keys: int | None = None) -> Findings:
    records, keys = records or RECORDS, keys or KEYS
    findings = Findings(
        "compaction",
        f"{records:,} records with {keys:,} keys, compacted by the job and by a plain Spark job",
        {
            "records": records,
            "keys": keys,
            "value_bytes": VALUE_BYTES,
            "master": "local[*]",
            "driver_memory": MEMORY,
            "driver_memory_beside_the_service": SMALL_HEAP,
        },
        notes=[
            "plain: reads the same files, row_number over (partition by key order by offset desc) = 1, writes Parquet",
            "both in one Spark session, warmed by a small log, in turns, each round on a copy of the log; the job ends "
            "with its commit",
            f"p99 of acks=all at {RATE} requests/s of one record each, of all requests while the job runs in a process "
            "of its own",
            f"memory is that of this process, with a heap of {SMALL_HEAP} for driver and executors together: own pages "
            "of its JVM, its Python and its Python workers, the most at any moment",
        ],
    )
    with scratch() as folder:
        _fill(folder / "log", records, keys)
        _fill(folder / "small", WARM_RECORDS, min(keys, WARM_RECORDS // 20))
        _throughput(findings, folder, records)
        _producers(findings, folder, records)
    return findings


# --- the log -------------------------------------------------------------------------------------


def _fill(root: Path, records: int, keys: int) -> None:
    configs = {"cleanup.policy": "compact", "segment.bytes": max(1 << 20, min(SEGMENT_BYTES, records * 5))}
    with cluster(root, fsync=False, merge=False) as log:
        log.create_topic("keyed", configs=configs)
        for rows in _batches(records, keys):
            log.append("keyed", 0, rows).result(60)


def _batches(records: int, keys: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(7)
    values = [batch(min(BATCH, records), seed) for seed in range(8)]
    for number, first in enumerate(range(0, records, BATCH)):
        count = min(BATCH, records - first)
        rows = values[number % len(values)].slice(0, count)
        names = pa.array(rng.integers(0, keys, count)).cast(pa.string())
        names = pa.compute.binary_join_element_wise(pa.scalar("customer-"), names, "").cast(pa.binary())
        columns = [rows.column("timestamp"), names, rows.column("value"), pa.nulls(count, HEADERS)]
        yield pa.record_batch(columns, schema=RECORD_SCHEMA)


def _copy(folder: Path, name: str, log: str = "log") -> Path:
    """Hard links: data files are never written twice (I-4)."""
    target = folder / name
    shutil.copytree(folder / log, target, copy_function=_link)
    return target


def _link(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


# --- how fast ------------------------------------------------------------------------------------


def _throughput(findings: Findings, folder: Path, records: int) -> None:
    from sluice.conf.spark import spark_session

    spark = spark_session(SparkSettings(driver_memory=MEMORY), "sluice-bench-compaction")
    spark.sparkContext.setLogLevel("ERROR")
    times: dict[str, list[float]] = {"plain": [], "job": []}
    report: Any = None
    started = time.perf_counter()
    try:
        for number in range(ROUNDS + 1):
            root = _copy(folder, f"round-{number}", "log" if number else "small")
            plain = seconds(partial(_plain, spark, root, folder / "plain"))
            begun = time.perf_counter()
            report = _job(spark, root)
            took = time.perf_counter() - begun
            if number:  # the first warms both up
                times["plain"].append(plain)
                times["job"].append(took)
                if time.perf_counter() - started > ENOUGH_S:
                    break
            shutil.rmtree(root)
            shutil.rmtree(folder / "plain")
    finally:
        spark.stop()
    row = report.rows[0]
    rates = {name: [records / took for took in found] for name, found in times.items()}
    for name, found in rates.items():
        findings.add(f"{name}: records read", "records/s", found)
    findings.ratio("job / plain", rates["job"], rates["plain"], at_least(1))
    findings.add("records kept", "records", [row["records_kept"]])


def _files(root: Path) -> list[str]:
    """Those of the range that the job cleans."""
    from sluice.log_store.snapshot import load
    from sluice.log_store.store import open_store
    from sluice.log_store.topic import TopicConfig

    view = LogView.of(load(open_store(root), "topics/keyed/0").state)
    chosen = cleanable(view, TopicConfig.parse({"cleanup.policy": "compact"}), 2**60)
    return [str(root / "topics/keyed/0" / file.path) for file in view.files if file.base_offset < chosen.end]


def _plain(spark: Any, root: Path, out: Path) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    newest = Window.partitionBy("key").orderBy(F.col("offset").desc())
    rows = spark.read.parquet(*_files(root)).withColumn("place", F.row_number().over(newest))
    rows.where("place = 1").drop("place").write.mode("overwrite").parquet(str(out))


def _job(spark: Any, root: Path) -> Any:
    settings = Settings(storage=StorageSettings(root=str(root), fsync=False))
    arguments = ["--root", str(root), "--topic", "keyed", "--driver-max-bytes", "0", "--json"]
    with open(os.devnull, "w") as nowhere:
        output = Output(as_json=True, out=nowhere, err=nowhere)
        options = job_parser(JOB, "bench").parse_args(arguments)
        report = run_job(JOB, options, settings, output=output, spark=lambda: spark)
    assert report.outcome == "done", report.error
    return report


# --- what producers notice, and what it takes ------------------------------------------------------


def _producers(findings: Findings, folder: Path, records: int) -> None:
    body = Body("single records", 1, 200, "application/json", [json_body(1, seed) for seed in range(50)])
    root = _copy(folder, "served")
    # A small log would be cleaned by the service before the job comes.
    with service(root, fsync=True, SLUICE_COMPACTION_IN_PROCESS_MAX_BYTES="0") as server:
        _latencies(server, body, 2.0)
        idle = _percentiles([_latencies(server, body, IDLE_S)])
        busy, memory = _while_compacting(server, root, body)
    findings.add("produce, idle: p50", "ms", [idle["p50"] * 1e3])
    findings.add("produce, idle: p99", "ms", [idle["p99"] * 1e3])
    findings.add("produce, while the job runs: p50", "ms", [busy["p50"] * 1e3])
    findings.add("produce, while the job runs: p99", "ms", [busy["p99"] * 1e3])
    findings.ratio("p99: while the job runs / idle", [busy["p99"]], [idle["p99"]], at_most(2))
    rows_mib = records * (VALUE_BYTES + KEY_BYTES + ROW_BYTES) / MIB
    findings.add("rows of the partition, as Arrow", "MiB", [rows_mib])
    for kind, mib in memory.items():
        findings.add(f"job, {kind}: peak memory", "MiB", [mib])
    if rows_mib >= MEMORY_RATIO * HEAP_MIB:
        findings.ratio("rows of the partition / heap", [rows_mib], [HEAP_MIB], at_least(MEMORY_RATIO))


def _latencies(server: Process, body: Body, seconds: float) -> list[float]:
    order = {
        "port": server.port,
        "bodies": [one.decode() for one in body.bodies],
        "paths": ["/topics/bench"],
        "connections": body.connections,
        "seconds": seconds,
        "rate": RATE,
        "latencies": True,
    }
    found = ask(order)
    if found["failures"]:
        raise RuntimeError(f"{found['failures']} requests failed: {found['first_failure']}")
    latencies: list[float] = found["latencies"]
    return latencies


def _percentiles(pieces: list[list[float]]) -> dict[str, float]:
    """Over all requests of all pieces."""
    latencies = [one for piece in pieces for one in piece]
    return {"p50": percentile(latencies, 50), "p99": percentile(latencies, 99)}


def _while_compacting(server: Process, root: Path, body: Body) -> tuple[dict[str, float], dict[str, float]]:
    """From the start of the job to its end: latencies, and the most memory of the job."""
    command = [sys.executable, "-m", "sluice.jobs", "run", "compaction", "--root", str(root), "--server", server.url]
    command += ["--topic", "keyed", "--driver-max-bytes", "0", "--json"]
    environment = os.environ | {"SLUICE_SPARK_DRIVER_MEMORY": SMALL_HEAP}
    found: list[list[float]] = []
    job = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    answer: list[str] = []
    reader = threading.Thread(target=lambda: answer.append(job.communicate()[0]))
    reader.start()
    with TreeMemory(job.pid) as memory:
        while job.poll() is None:
            found.append(_latencies(server, body, PIECE_S))
    reader.join()
    assert json.loads(answer[0])["outcome"] == "done", answer[0][-2_000:]
    # The last piece may have outlived the job.
    return _percentiles(found[:-1] or found), memory.peaks_mib
