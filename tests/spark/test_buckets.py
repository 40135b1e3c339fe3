"""Sink and consumer jobs on a root in a bucket: what holds in a folder holds there. (The source: test_source.py.)"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.streaming import register
from sluice.streaming.spark.job_options import parse_options
from sluice.streaming.spark.job_run import run_query
from sluice.streaming.spark.job_stop import StopGate
from tests.http.checks import V3
from tests.support.s3_server import S3Server
from tests.support.server import Server, running
from tests.support.spark_buckets import bucket_environment, bucket_options
from tests.support.spark_jobs import origins, stored_rows

PARTITIONS, ROWS = 2, 60
WITHIN_S = 240


@pytest.fixture(scope="module")
def url(s3: S3Server) -> str:
    return f"{s3.bucket('lake')}/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def server(s3: S3Server, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = bucket_environment(s3, tmp_path_factory.mktemp("wal"))
    with running(url, SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS="100", **settings) as found:  # type: ignore[arg-type]
        yield found


def _forget_last_commit(checkpoint: Path) -> None:
    """As when Spark died before it had noted that the batch was done: it runs the batch again."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


@pytest.mark.full
def test_what_the_sink_writes_to_a_bucket_a_job_brings_to_delta_once(
    spark: SparkSession, s3: S3Server, server: Server, url: str, tmp_path: Path
) -> None:
    register(spark)
    keys = bucket_options(s3)
    created = server.client.post(f"{V3}/topics", json={"topic_name": "t", "partitions_count": PARTITIONS})
    assert created.status_code == 201

    # Batch: the tasks write to the bucket, the service appends.
    rows = spark.range(0, ROWS, 1, 3).selectExpr("cast(id as string) value")
    sink = {"server": server.url, "path": url, "topic": "t", **keys}
    rows.write.format("sluice").options(**sink).mode("append").save()

    # Streaming, and the same batch once more.
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("".join(f"{number}\n" for number in range(ROWS, 2 * ROWS)))
    for _ in range(2):
        lines = spark.readStream.text(str(tmp_path / "in")).repartition(2).writeStream.format("sluice")
        query = lines.options(**sink, checkpointLocation=str(tmp_path / "sunk")).trigger(availableNow=True).start()
        assert query.awaitTermination(WITHIN_S)
        assert query.exception() is None
        _forget_last_commit(tmp_path / "sunk")

    assert not list((s3.folder / url.removeprefix("s3://") / "_sluice" / "staging").rglob("*.arrows"))

    # Alone with its checkpoint, then as a member of a group; each run once more after a crash.
    ends = {number: _end(server, number) for number in range(PARTITIONS)}
    everything = Counter((partition, offset) for partition, end in ends.items() for offset in range(end))
    assert everything.total() == 2 * ROWS
    for more in (["--path", url], ["--path", url, "--server", server.url, "--group", "g"]):
        table, checkpoint = tmp_path / f"out-{len(more)}", tmp_path / f"checkpoint-{len(more)}"
        settings = [part for name, value in keys.items() for part in ("--option", f"{name}={value}")]
        arguments = ["--topics", "t", "--to", f"delta:{table}", "--checkpoint", str(checkpoint), *more, *settings]
        for _ in range(2):
            _run(spark, [*arguments, "--starting-offsets", "earliest", "--max-offsets-per-trigger", "70"])
            stored = stored_rows(table)
            assert origins(stored) == everything
            assert sorted(int(row["value"]) for row in stored) == list(range(2 * ROWS))
            _forget_last_commit(checkpoint)
    lags = server.client.get(f"{V3}/consumer-groups/g/lags").json()["data"]
    assert [lag["lag"] for lag in lags] == [0] * PARTITIONS


def _end(server: Server, partition: int) -> int:
    found: int = server.client.get(f"/topics/t/partitions/{partition}/offsets").json()["end_offset"]
    return found


def _run(spark: SparkSession, arguments: list[str]) -> None:
    options = parse_options([*arguments, "--trigger", "availableNow"], {})
    assert options.checkpoint is not None
    assert run_query(spark, options, options.checkpoint, StopGate()) == 0
