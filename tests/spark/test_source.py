"""The source with real Spark: batch and streaming queries against a log that lives, in a folder and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from sluice.log_store.engine import LogStore
from sluice.streaming.source import SluiceDataSource
from tests.http.checks import V3
from tests.support.harness import wait_until
from tests.support.logs import NOW_MS, append, batch, make_batch
from tests.support.server import running
from tests.support.spark_source import Place, Sink, start, stream, to_the_end

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(SluiceDataSource)


def test_a_batch_query(spark: SparkSession, place: Place):
    log, read = place.log, spark.read.format("sluice").options(**place.keys)
    records = [{"key": b"k", "value": b"v%d" % n, "headers": [("h", None)] if n else None} for n in range(3)]
    append(log, "t", 0, make_batch(records, default_ms=NOW_MS))
    append(log, "t", 1, batch("x"))
    plain = read.option("subscribe", "t").load(place.root)
    assert plain.schema.simpleString() == KAFKA_SCHEMA, "that of the Kafka source"
    rows = plain.orderBy("partition", "offset").collect()
    assert [(r.topic, r.partition, r.offset, r.timestampType) for r in rows] == [
        ("t", 0, 0, 0),
        ("t", 0, 1, 0),
        ("t", 0, 2, 0),
        ("t", 1, 0, 0),
    ]
    assert (bytes(rows[1].key), bytes(rows[1].value), rows[3].key) == (b"k", b"v1", None)
    assert plain.selectExpr("unix_millis(timestamp)").first()[0] == NOW_MS
    headed = spark.read.format("sluice").options(**place.keys, subscribe="t", includeHeaders="true")
    full = headed.load(place.root)
    assert [row.headers for row in full.orderBy("partition", "offset").collect()] == [
        None,
        [Row(key="h", value=None)],
        [Row(key="h", value=None)],
        None,
    ]
    # SQL alone, tasks cut, columns chosen, an end.
    given = place.keys | {"path": place.root, "subscribe": "t", "columns": "offset,partition", "minPartitions": "4"}
    options = ", ".join(f"'{name}' '{value}'" for name, value in given.items())
    ends = '{"t":{"0":2,"1":-1}}'
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING sluice OPTIONS ({options}, endingOffsets '{ends}')")
    found = spark.sql("SELECT partition, offset FROM v WHERE offset < 5 ORDER BY 1, 2")
    assert [tuple(row) for row in found.collect()] == [(0, 0), (0, 1), (1, 0)]
    spark.catalog.dropTempView("v")
    last = spark.read.format("sluice").options(**place.keys, assign='{"t":[1]}', startingOffsets='{"t":{"1":1}}')
    assert last.load(place.root).collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t", "startingOffset": "x"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "t", "columns": "price"}, "'price' is none of"),
        ({"subscribe": "nope"}, "there is no topic 'nope'"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, log: LogStore, tmp_root: Path, options: dict[str, str], message: str
):
    with pytest.raises(PySparkException, match=message):
        spark.read.format("sluice").options(**options).load(str(tmp_root)).collect()


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, log: LogStore, tmp_root: Path):
    own = StructType.fromDDL("value string")
    with pytest.raises(PySparkException, match="choose columns with the option 'columns'"):
        spark.read.format("sluice").schema(own).option("subscribe", "t").load(str(tmp_root)).collect()


def test_checkpoints_triggers_and_limits(spark: SparkSession, place: Place, tmp_path: Path):
    log = place.log
    append(log, "t", 0, batch(*map(str, range(60))))
    append(log, "t", 1, batch(*map(str, range(20))))
    frame, checkpoint = stream(spark, place, maxOffsetsPerTrigger=40, minPartitions=4), tmp_path / "checkpoint"
    first = to_the_end(frame, checkpoint)
    assert first.sizes == [40, 40]
    assert sorted(first.offsets) == [*((0, n) for n in range(60)), *((1, n) for n in range(20))]
    for partition in (0, 1):
        own = [offset for number, offset in first.offsets if number == partition]
        assert own == sorted(own), "order within a partition"
    assert to_the_end(frame, checkpoint).sizes == [], "nothing new, no batch"
    # A new partition, and more than one batch may hold: Once takes it all.
    log.grow_topic("t", 3)
    append(log, "t", 2, batch(*map(str, range(90))))
    again = to_the_end(frame, checkpoint, once=True)
    assert again.sizes == [90]
    assert again.offsets == [(2, n) for n in range(90)]


def test_a_running_query_follows_the_log(spark: SparkSession, log: LogStore, tmp_root: Path, tmp_path: Path):
    sink = Sink()
    frame = stream(
        spark, Place(str(tmp_root), log, {}), subscribe=None, subscribePattern="t.*", startingOffsets="latest"
    )
    append(log, "t", 0, batch("before"))
    query = start(frame, sink, tmp_path / "checkpoint", processingTime="100 milliseconds")
    try:
        wait_until(lambda: query.lastProgress is not None, "the first look", 60)
        append(log, "t", 0, batch("a"))
        wait_until(lambda: len(sink.offsets) == 1, "the first record", 60)
        log.grow_topic("t", 3)
        append(log, "t", 2, batch("b"))
        log.create_topic("tt", partitions=1)
        append(log, "tt", 0, batch("c"))
        wait_until(lambda: len(sink.offsets) == 3, "a new partition and a new topic", 60)
        assert sorted(row.value for rows in sink.batches.values() for row in rows) == [b"a", b"b", b"c"]
        wait_until(
            lambda: any('"tt": {"0": 1}' in str(p.sources[0].latestOffset) for p in query.recentProgress),
            "the progress shows the end of the log",
        )
        log.delete_topic("tt")
        wait_until(lambda: query.exception() is not None, "a topic that is gone is data loss", 60)
        assert "tt-0 is gone" in str(query.exception())
    finally:
        query.stop()


def test_the_service_names_its_root_and_may_then_be_down(spark: SparkSession, tmp_path: Path):
    with running(tmp_path / "root") as server:
        server.client.post("/topics/t", json={"records": [{"value": n} for n in range(5)]}).raise_for_status()
        assert server.client.get(f"{V3}").json()["storage_root"] == (tmp_path / "root").as_uri()
        by_server = spark.read.format("sluice").options(subscribe="t", server=server.url).load()
        assert by_server.count() == 5
        server.kill()
        assert spark.read.format("sluice").options(subscribe="t").load(str(tmp_path / "root")).count() == 5
