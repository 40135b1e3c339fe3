"""Source, sink and consumer job on a standalone cluster, from --py-files, where Sluice is not installed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from sluice.streaming.spark.packaging import build_zip
from tests.support.server import running
from tests.support.spark_cluster import cluster_environment, spark_cluster
from tests.support.spark_jobs import Driver, drivers, origins, stored_rows

ROOT = Path(__file__).parents[2]
RECORDS, PARTITIONS = 300, 4

# A user's program. What comes with --py-files has to be registered: docs/spark-submit.md.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from sluice.streaming import register

server, checkpoint, report = sys.argv[1:]
spark = SparkSession.builder.appName("program").getOrCreate()
register(spark)
where = {"server": server, "topic": "orders"}
rows = spark.range(0, 300, 1, 4).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
rows.write.format("sluice").options(**where).mode("append").save()

records = spark.read.format("sluice").option("server", server).option("subscribe", "orders").load()
values = sorted(int(bytes(row.value)) for row in records.select("value").collect())

stream = spark.readStream.format("sluice").option("server", server).option("subscribe", "orders")
copied = stream.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("sluice")
copied.option("server", server).option("topic", "copy").option("checkpointLocation", checkpoint).trigger(
    availableNow=True
).start().awaitTermination()

def look(_):
    import os, sluice.streaming.spark.reading
    yield os.path.abspath(sluice.streaming.spark.reading.__file__)

places = set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(look).collect())
with open(report, "w") as file:
    json.dump({"values": values, "places": sorted(places)}, file)
spark.stop()
"""


@pytest.mark.timeout(1800)
def test_a_cluster_without_sluice_runs_source_sink_and_consumer_job(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    archive = build_zip(tmp_path / "sluice.zip")
    table = tmp_path / "out"
    environment = cluster_environment(tmp_path / "driver-local")
    with (
        running(tmp_path / "root") as server,
        spark_cluster(tmp_path / "cluster", archive) as cluster,
        drivers() as started,
    ):
        for name in ("orders", "copy"):
            made = server.client.post(
                "/v3/clusters/-/topics", json={"topic_name": name, "partitions_count": PARTITIONS}
            )
            assert made.status_code == 201
        # Both at once: the job reads what the program's stream writes, as a member of a group, until it is stopped.
        arguments = [
            *("--topics", "copy", "--group", "g", "--server", server.url, "--to", f"delta:{table}"),
            *("--starting-offsets", "earliest", "--trigger", "processingTime=200ms"),
        ]
        job = Driver(arguments, tmp_path, [*cluster.submit(), str(ROOT / "streaming" / "consumer.py")], environment)
        started.append(job)
        given = [server.url, str(tmp_path / "copied"), str(tmp_path / "report.json")]
        submitted = [*cluster.submit(), str(tmp_path / "program.py"), *given]
        program = Driver((), tmp_path, submitted, environment)
        started.append(program)
        assert program.wait(600) == 0, program.text
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["values"] == list(range(RECORDS))
        # The executors use what Spark brought to them, not the driver's file, which another machine would not have.
        fetched = str(tmp_path / "cluster")
        assert all(place.startswith(fetched) and "sluice.zip/sluice/" in place for place in report["places"]), report

        deadline = time.monotonic() + 400
        while len(rows := stored_rows(table)) < RECORDS:
            assert job.process.poll() is None, job.text
            assert time.monotonic() < deadline, job.text
            threading.Event().wait(0.3)
        # To spark-submit itself, that is to the JVM, as a supervisor would.
        assert job.terminate() == 0, job.text
        assert set(origins(rows).values()) == {1}
        assert Counter(int(row["value"]) for row in rows) == Counter(range(RECORDS))
        group = server.client.get("/v3/clusters/-/consumer-groups/g").json()
        lags = server.client.get("/v3/clusters/-/consumer-groups/g/lags").json()["data"]
        assert (group["state"], {lag["lag"] for lag in lags}) == ("EMPTY", {0})
