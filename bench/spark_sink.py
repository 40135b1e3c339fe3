"""The Spark sink beside a plain Parquet write of the same frame: records per second, in turn, in one session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Findings, at_least
from bench.harness import scratch, seconds
from bench.http import Process, service

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, RECORDS, VALUE_BYTES, ROUNDS = 8, 4_000_000, 100, 3


def run() -> Findings:
    findings = Findings(
        "spark_sink",
        "The Spark sink beside plain Parquet",
        {"records": RECORDS, "value_bytes": VALUE_BYTES, "partitions": PARTITIONS, "rounds": ROUNDS, "fsync": True},
    )
    with scratch() as folder, service(folder / "root", fsync=True) as server, session(folder) as spark:
        frame = made(spark, folder / "frame")
        rates: dict[str, list[float]] = {"Parquet": [], "sink, to storage": [], "sink, through the service": []}
        for number in range(ROUNDS + 1):
            found = {
                "Parquet": seconds(lambda n=number: frame.write.parquet(str(folder / f"plain-{n}"))),
                "sink, to storage": seconds(lambda n=number: written(frame, server, f"direct-{n}", folder / "root")),
                "sink, through the service": seconds(lambda n=number: written(frame, server, f"http-{n}", None)),
            }
            if number:  # the first round warms the virtual machine
                for name, taken in found.items():
                    rates[name].append(RECORDS / taken / 1e6)
    for name, rounds in rates.items():
        findings.add(name, "M records/s", rounds)
    findings.ratio("sink, to storage, of Parquet", rates["sink, to storage"], rates["Parquet"], at_least(0.3))
    findings.ratio("sink, through the service, of Parquet", rates["sink, through the service"], rates["Parquet"])
    findings.notes.append("Driver, executors and service share the machine; the service also keeps its WAL and fsyncs.")
    return findings


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    from sluice.conf.settings import SparkSettings
    from sluice.conf.spark import spark_session
    from sluice.streaming.source import SluiceDataSource

    extra = {"spark.local.dir": str(folder / "spark"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    cores = min(2, os.cpu_count() or 2)
    spark = spark_session(SparkSettings(driver_memory="2g", master=f"local[{cores}]"), "sluice-bench", extra)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SluiceDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def made(spark: SparkSession, folder: Path) -> DataFrame:
    """Rows that do not compress to nothing, read from disk by both sides."""
    digits = f"rpad(concat(sha2(cast(id as string), 256), id), {VALUE_BYTES}, 'x')"
    spark.range(0, RECORDS, 1, PARTITIONS).selectExpr(f"{digits} AS value").write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def written(frame: DataFrame, server: Process, topic: str, path: Path | None) -> None:
    import httpx

    created = httpx.post(
        f"{server.url}/v3/clusters/-/topics", json={"topic_name": topic, "partitions_count": PARTITIONS}, timeout=30
    )
    created.raise_for_status()
    writer = frame.write.format("sluice").option("server", server.url).option("topic", topic)
    (writer if path is None else writer.option("path", str(path))).mode("append").save()
