"""Spark queries in consumer groups: in the session of the tests, and in driver processes of their own to be killed.

    python -m tests.support.spark_members <group> <topic> <server> <folder>

writes what it reads to the Delta table `<folder>/out`, each batch once, until it is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Row = tuple[int, int]
"""partition, offset"""


def start_query(
    spark: SparkSession, server: str, topic: str, group: str, folder: Path, trigger: dict[str, Any], **more: str
) -> StreamingQuery:
    """Exactly once into `<folder>/out`: a batch that is run again is not written again."""
    from sluice.streaming.source import SluiceDataSource

    spark.dataSource.register(SluiceDataSource)
    options = {
        "server": server,
        "subscribe": topic,
        "group.id": group,
        "startingOffsets": "earliest",
        "group.heartbeat.interval.ms": "200",
        "group.session.timeout.ms": "10000",
    }

    def write(frame: DataFrame, batch: int) -> None:
        rows = frame.select("partition", "offset").coalesce(1)
        once = {"txnAppId": str(folder), "txnVersion": str(batch)}
        rows.write.format("delta").mode("append").options(**once).save(str(folder / "out"))

    return (
        spark.readStream.format("sluice")
        .options(**(options | more))
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def written(*folders: Path) -> Counter[Row]:
    """What is in the tables of these queries, without Spark."""
    from deltalake import DeltaTable

    found: Counter[Row] = Counter()
    for folder in folders:
        if DeltaTable.is_deltatable(str(folder / "out")):
            table = DeltaTable(str(folder / "out")).to_pyarrow_table(columns=["partition", "offset"])
            found.update(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
    return found


class Driver:
    """A driver process, with its JVM and its planner."""

    def __init__(self, group: str, topic: str, server: str, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.support.spark_members", group, topic, server, str(folder)]
        self._log = (folder.parent / f"{folder.name}.log").open("w")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, start_new_session=True)

    def kill(self) -> None:
        """All of it at once, as when a machine goes."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def kill_jvm(self) -> None:
        """The JVM alone: the planner process outlives it for a moment."""
        for child in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)


def main(group: str, topic: str, server: str, folder: str) -> None:
    from sluice.conf.settings import SparkSettings
    from sluice.conf.spark import QUICK_START, spark_session

    work = Path(folder)
    extra = QUICK_START | {"spark.sql.warehouse.dir": f"{work}/warehouse", "spark.local.dir": f"{work}/local"}
    spark = spark_session(SparkSettings(driver_memory="1g"), "member", extra)
    start_query(spark, server, topic, group, work, {"processingTime": "200 milliseconds"}).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
