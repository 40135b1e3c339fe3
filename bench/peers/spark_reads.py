"""One Spark session that reads the same rows three ways, in turns, as a process of its own.

`python -m bench.peers.spark_reads` reads one line of JSON from stdin and prints one: seconds per round and source.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.harness import seconds
from sluice.conf.settings import SparkSettings
from sluice.conf.spark import delta_jars, spark_session
from sluice.streaming.source import SluiceDataSource

COLUMNS = ("key", "value", "offset", "timestamp")


def frames(spark: SparkSession, order: dict[str, Any]) -> dict[str, Callable[[], DataFrame]]:
    kafka = {"kafka.bootstrap.servers": order["bootstrap"], "startingOffsets": "earliest"}
    return {
        "sluice": lambda: (
            spark.read.format("sluice").options(subscribe=order["topic"], columns=",".join(COLUMNS)).load(order["root"])
        ),
        "kafka, none": lambda: spark.read.format("kafka").options(**kafka, subscribe="none").load().select(*COLUMNS),
        "kafka, zstd": lambda: spark.read.format("kafka").options(**kafka, subscribe="zstd").load().select(*COLUMNS),
        "parquet": lambda: spark.read.parquet(*order["parquet"]).select(*COLUMNS),
    }


def _scan(frame: Callable[[], DataFrame]) -> None:
    frame().write.format("noop").mode("overwrite").save()


def main() -> None:
    order = json.loads(sys.stdin.readline())
    settings = SparkSettings()
    extra = {
        "spark.jars": ",".join([*map(str, delta_jars(settings)), *order["jars"]]),
        "spark.sql.warehouse.dir": order["scratch"] + "/warehouse",
        "spark.local.dir": order["scratch"] + "/local",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    spark = spark_session(settings, "sluice-bench-peers", extra)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(SluiceDataSource)
        sources = frames(spark, order)
        counts = {name: frame().count() for name, frame in sources.items()}
        spent: dict[str, list[float]] = {name: [] for name in sources}
        for number in range(order["rounds"] + 1):
            for name, frame in sorted(sources.items(), reverse=number % 2 == 1):
                took = seconds(partial(_scan, frame))
                if number:
                    spent[name].append(took)
    finally:
        spark.stop()
    print(json.dumps({"counts": counts, "seconds": spent}))


if __name__ == "__main__":
    main()
