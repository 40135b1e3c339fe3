"""The Spark sink beside a plain Parquet write of the same frame: records per second, in turn, in one session."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Findings, at_least
from bench.harness import scratch
from bench.http import Process, service
from bench.spark_session import Spent, session, spent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, RECORDS, WARM_RECORDS, VALUE_BYTES, ROUNDS = 8, 10_000_000, 400_000, 100, 3
PARQUET, DIRECT, HTTP = "Parquet", "sink, to storage", "sink, through the service"


def run(records: int | None = None) -> Findings:
    records = records or RECORDS
    findings = Findings(
        "spark_sink",
        f"The Spark sink beside plain Parquet, {records:,} × {VALUE_BYTES} B records",
        {"records": records, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS, "rounds": ROUNDS, "fsync": True},
    )
    found: dict[str, list[Spent]] = {PARQUET: [], DIRECT: [], HTTP: []}
    with scratch() as folder, service(folder / "root", fsync=True) as server, session(folder) as spark:
        _round(made(spark, folder / "warm", min(records, WARM_RECORDS)), server, folder, "warm-up")
        frame = made(spark, folder / "frame", records)
        for number in range(ROUNDS):
            for name, taken in _round(frame, server, folder, f"round-{number}").items():
                found[name].append(taken)
    rates = {name: [records / one.wall / 1e6 for one in rounds] for name, rounds in found.items()}
    for name, rounds in rates.items():
        findings.add(name, "M records/s", rounds)
    findings.ratio(f"{DIRECT}, of {PARQUET}", rates[DIRECT], rates[PARQUET], at_least(0.3))
    findings.ratio(f"{HTTP}, of {PARQUET}", rates[HTTP], rates[PARQUET])
    for name, each in found.items():
        findings.add(f"{name}: CPU of 1 M records", "s", [one.cpu / records * 1e6 for one in each])
    findings.notes.append("Driver, executors and service share the machine; the service also keeps its WAL and fsyncs.")
    findings.notes.append("CPU is that of the JVM, its Python workers, the service and this process.")
    return findings


def _round(frame: DataFrame, server: Process, folder: Path, name: str) -> dict[str, Spent]:
    plain = folder / f"plain-{name}"
    taken = {
        PARQUET: spent(lambda: frame.write.parquet(str(plain))),
        DIRECT: spent(lambda: written(frame, server, f"direct-{name}", folder / "root")),
        HTTP: spent(lambda: written(frame, server, f"http-{name}", None)),
    }
    shutil.rmtree(plain)
    return taken


def made(spark: SparkSession, folder: Path, records: int) -> DataFrame:
    """Rows that do not compress to nothing, read from disk by both sides."""
    digits = f"rpad(concat(sha2(cast(id as string), 256), id), {VALUE_BYTES}, 'x')"
    spark.range(0, records, 1, PARTITIONS).selectExpr(f"{digits} AS value").write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def written(frame: DataFrame, server: Process, topic: str, path: Path | None) -> None:
    import httpx

    created = httpx.post(
        f"{server.url}/v3/clusters/-/topics", json={"topic_name": topic, "partitions_count": PARTITIONS}, timeout=30
    )
    created.raise_for_status()
    writer = frame.write.format("sluice").option("server", server.url).option("topic", topic)
    (writer if path is None else writer.option("path", str(path))).mode("append").save()
