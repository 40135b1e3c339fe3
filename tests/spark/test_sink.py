"""The sink with real Spark and a real service: exactly once, whatever Spark repeats."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import httpx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sluice.streaming.source import SluiceDataSource
from tests.http.checks import V3, fetch
from tests.support.server import Server, running

PARTITIONS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("sink") / "root") as found:
        yield found


@pytest.fixture
def topic(server: Server) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    body = {"topic_name": name, "partitions_count": PARTITIONS}
    assert server.client.post(f"{V3}/topics", json=body).status_code == 201
    return name


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(SluiceDataSource)
    return spark


def records(http: httpx.Client, topic: str) -> list[list[tuple[str | None, str]]]:
    """(key, value) of each partition."""
    found = [fetch(http, topic, partition=p, max_records=100_000, format="string") for p in range(PARTITIONS)]
    return [[(record["key"], record["value"]) for record in one["data"]] for one in found]


def staged(server: Server) -> list[Path]:
    return [path for path in (server.root / "_sluice" / "staging").rglob("*") if path.is_file()]


# --- batch ---------------------------------------------------------------------------------------


def test_a_batch_write_appends_every_row_by_key_topic_and_partition(
    session: SparkSession, server: Server, topic: str
) -> None:
    other = f"{topic}-other"
    rows = session.range(0, 1000, 1, 4).select(
        sql.when(sql.col("id") % 2 == 0, topic).otherwise(other).alias("topic"),
        sql.concat(sql.lit("k"), sql.col("id") % 10).alias("key"),
        sql.col("id").cast("string").cast("binary").alias("value"),
        sql.array(sql.struct(sql.lit("h").alias("key"), sql.lit("1").cast("binary").alias("value"))).alias("headers"),
        sql.timestamp_millis(sql.lit(1_700_000_000_123)).alias("timestamp"),
        sql.col("id").alias("offset"),  # other columns are nobody's business
    )
    rows.write.format("sluice").option("server", server.url).mode("append").save()
    mine, others = records(server.client, topic), fetch(server.client, other, max_records=1000, format="string")
    assert sorted(int(value) for _, value in chain(*mine)) == list(range(0, 1000, 2))
    assert len(others["data"]) == 500
    by_key = [{key for key, _ in partition} for partition in mine]
    assert sum(map(len, by_key)) == len(set().union(*by_key)) == 5
    first = others["data"][0]
    assert (first["timestamp"], first["headers"]) == (1_700_000_000_123, [{"name": "h", "value": "MQ=="}])
    placed = session.range(10).selectExpr("cast(id as string) value", "cast(2 as int) partition", "'no' topic")
    written = placed.write.format("sluice").option("server", server.url).option("path", str(server.root))
    written.option("topic", topic).option("includeHeaders", "false").mode("append").save()
    assert [len(part) for part in records(server.client, topic)] == [len(part) for part in mine[:2]] + [
        len(mine[2]) + 10
    ]
    assert not staged(server)


def test_a_job_that_fails_leaves_nothing(session: SparkSession, server: Server, topic: str) -> None:
    def failing(batches):  # type: ignore[no-untyped-def]
        for number, batch in enumerate(batches):
            if number == 3:
                raise RuntimeError("this task does not like its rows")
            yield batch.assign(value=batch["id"].astype(str))[["value"]]

    rows = session.range(0, 50_000, 1, 1).mapInPandas(failing, "value string")
    with pytest.raises(PySparkException, match="does not like its rows"):
        _options(rows, server, topic).option("upload.part.bytes", "65536").mode("append").save()
    assert records(server.client, topic) == [[], [], []]
    assert not staged(server)


def _options(rows: DataFrame, server: Server, topic: str):  # type: ignore[no-untyped-def]
    return rows.write.format("sluice").option("server", server.url).option("topic", topic)


def test_a_frame_that_cannot_be_written_is_refused_by_the_name_of_its_column(
    session: SparkSession, server: Server, topic: str
) -> None:
    rows = session.range(3).selectExpr("cast(id as string) value", "id key")
    with pytest.raises(PySparkException, match="column 'key': must be string or binary, not bigint"):
        _options(rows, server, topic).mode("append").save()
    with pytest.raises(PySparkException, match=r"mode\('overwrite'\): a log is appended to"):
        _options(rows.select("value"), server, topic).mode("overwrite").save()
    with pytest.raises(PySparkException, match="larger than max"):
        _options(rows.select(sql.repeat("value", 2_000_000).alias("value")), server, topic).mode("append").save()
    assert records(server.client, topic) == [[], [], []]


def test_a_job_that_names_itself_is_written_once(session: SparkSession, server: Server, topic: str) -> None:
    """For foreachBatch and for jobs that a scheduler repeats."""
    rows = session.range(20).selectExpr("cast(id as string) value")
    named = _options(rows, server, topic).option("query.id", f"daily-{topic}").mode("append")
    for batch, expected in ((0, 20), (0, 20), (1, 40)):
        named.option("batch.id", str(batch)).save()
        assert sum(map(len, records(server.client, topic))) == expected


# --- streaming -----------------------------------------------------------------------------------


def test_a_new_checkpoint_is_another_query_and_a_stream_cannot_be_named_otherwise(
    session: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    """Spark numbers its batches from 0 again, which the same name would make repeats."""
    incoming = tmp_path / "in"
    incoming.mkdir()

    def run(checkpoint: str, **options: str) -> None:
        lines = session.readStream.text(str(incoming)).writeStream.format("sluice").trigger(availableNow=True)
        lines = lines.options(server=server.url, topic=topic, checkpointLocation=str(tmp_path / checkpoint), **options)
        lines.start().awaitTermination()

    (incoming / "0.txt").write_text("0\n")
    with pytest.raises(PySparkException, match=r"option 'query\.id': is for batch writes"):
        run("first", **{"query.id": "orders"})
    for number in range(2):
        run(f"checkpoint-{number}")
        assert [value for _, value in chain(*records(server.client, topic))] == ["0"] * (number + 1)


def test_a_query_that_is_restarted_adds_nothing_twice(
    session: SparkSession, server: Server, topic: str, tmp_path: Path
) -> None:
    """Spark runs its last batch again when it died before it had noted that the batch was done."""
    incoming, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    incoming.mkdir()

    def line(number: int) -> None:
        (incoming / f"{number}.txt").write_text("".join(f"{number}-{row}\n" for row in range(50)))

    def run() -> str:
        lines = session.readStream.option("maxFilesPerTrigger", "1").text(str(incoming))
        query = (
            lines.repartition(3)
            .writeStream.format("sluice")
            .option("server", server.url)
            .option("path", str(server.root))
            .option("topic", topic)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert query.exception() is None
        return str(query.id)

    def values() -> list[str]:
        return sorted(value for _, value in chain(*records(server.client, topic)))

    line(0)
    line(1)
    query = run()
    expected = sorted(f"{number}-{row}" for number in range(2) for row in range(50))
    assert values() == expected
    assert server.client.get(f"{V3}/sinks/{query}").json()["last_batch_id"] == 1
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    line(2)
    assert run() == query
    assert values() == sorted([*expected, *(f"2-{row}" for row in range(50))])
    assert server.client.get(f"{V3}/sinks/{query}").json()["last_batch_id"] == 2
    assert not staged(server)
