"""A streaming query that writes lines of files to a topic, in a process of its own, to be killed.

    python -m tests.support.sink_job '{"server", "root", "topic", "incoming", "checkpoint", "work"}'

Its tasks may fail, and some do: the first attempt of the first task of each batch dies when it has uploaded a part of
its rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

LINES_PER_BATCH = "200"
PART_BYTES = "65536"


def main(job: dict[str, str]) -> None:
    from sluice.conf.settings import SparkSettings
    from sluice.conf.spark import spark_session
    from sluice.streaming.source import SluiceDataSource
    from tests.support.quick_jvm import java_options

    extra = {
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.warehouse.dir": f"{job['work']}/warehouse",
        "spark.local.dir": f"{job['work']}/local",
        "spark.sql.execution.arrow.maxRecordsPerBatch": LINES_PER_BATCH,
    }
    spark = spark_session(SparkSettings(master="local[2,3]", driver_memory="1g", shuffle_partitions=2), "sink", extra)
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(SluiceDataSource)
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(job["incoming"])
    query = (
        lines.repartition(2)
        .mapInPandas(failing, "value string")
        .writeStream.format("sluice")
        .options(server=job["server"], topic=job["topic"], checkpointLocation=job["checkpoint"])
        .option("upload.part.bytes", PART_BYTES)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"query": str(query.id)}), flush=True)
    spark.stop()


def failing(batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    unlucky = context is not None and (context.attemptNumber(), context.partitionId()) == (0, 0)
    for number, batch in enumerate(batches):
        if unlucky and number == 3:
            raise RuntimeError("the first attempt fails, with some of its rows uploaded")
        yield batch


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
