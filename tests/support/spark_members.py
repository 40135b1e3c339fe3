"""Spark queries in consumer groups, in the session of the tests. Drivers to be killed are in `spark_jobs`."""

from __future__ import annotations

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
