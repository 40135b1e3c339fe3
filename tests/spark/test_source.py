"""The source with real Spark: batch and streaming queries against a log that lives, in a folder and in a bucket."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from sluice.log_store.engine import LogStore
from sluice.log_store.plans import PlanKind
from sluice.streaming.source import SluiceDataSource
from tests.http.checks import V3
from tests.support.harness import settings_of, wait_until
from tests.support.logs import NOW_MS, append, append_one_by_one, batch, folder_cluster, folder_of, make_batch, rewrite
from tests.support.s3_server import S3Server
from tests.support.server import running

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    spark.dataSource.register(SluiceDataSource)


@pytest.fixture
def log(tmp_root: Path) -> Iterator[LogStore]:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=2)
        yield log


class Sink:
    """What a query delivered, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(partition, offset) in the order of delivery."""
        return [(row.partition, row.offset) for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in sorted(self.batches.items())]


def stream(spark: SparkSession, root: object, **options: Any) -> DataFrame:
    given = {"subscribe": "t", "startingOffsets": "earliest"} | options
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return spark.readStream.format("sluice").options(**texts).load(str(root))


def start(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def to_the_end(frame: DataFrame, checkpoint: Path, **trigger: Any) -> Sink:
    sink = Sink()
    query = start(frame, sink, checkpoint, **(trigger or {"availableNow": True}))
    assert query.awaitTermination(120)
    return sink


def test_a_batch_query(spark: SparkSession, log: LogStore, tmp_root: Path):
    records = [{"key": b"k", "value": b"v%d" % n, "headers": [("h", None)] if n else None} for n in range(3)]
    append(log, "t", 0, make_batch(records, default_ms=NOW_MS))
    append(log, "t", 1, batch("x"))
    plain = spark.read.format("sluice").option("subscribe", "t").load(str(tmp_root))
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
    full = plain.sparkSession.read.format("sluice").options(subscribe="t", includeHeaders="true").load(str(tmp_root))
    assert [row.headers for row in full.orderBy("partition", "offset").collect()] == [
        None,
        [Row(key="h", value=None)],
        [Row(key="h", value=None)],
        None,
    ]
    # SQL alone, tasks cut, columns chosen, an end.
    options = f"path '{tmp_root}', subscribe 't', columns 'offset,partition', minPartitions '4'"
    ends = '{"t":{"0":2,"1":-1}}'
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING sluice OPTIONS ({options}, endingOffsets '{ends}')")
    found = spark.sql("SELECT partition, offset FROM v WHERE offset < 5 ORDER BY 1, 2")
    assert [tuple(row) for row in found.collect()] == [(0, 0), (0, 1), (1, 0)]
    spark.catalog.dropTempView("v")
    empty = spark.read.format("sluice").options(assign='{"t":[1]}', startingOffsets='{"t":{"1":1}}').load(str(tmp_root))
    assert empty.collect() == []


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


def test_checkpoints_triggers_and_limits(spark: SparkSession, log: LogStore, tmp_root: Path, tmp_path: Path):
    append(log, "t", 0, batch(*map(str, range(60))))
    append(log, "t", 1, batch(*map(str, range(20))))
    frame, checkpoint = stream(spark, tmp_root, maxOffsetsPerTrigger=40, minPartitions=4), tmp_path / "checkpoint"
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
    frame = stream(spark, tmp_root, subscribe=None, subscribePattern="t.*", startingOffsets="latest")
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


def test_slow_batches_race_merge_retention_and_vacuum(
    spark: SparkSession, log: LogStore, tmp_root: Path, tmp_path: Path
):
    """Files are replaced and deleted all the time; every record above the log start comes once, in order."""
    append_one_by_one(log, "t", map(str, range(120)))
    stop = threading.Event()
    failures: list[BaseException] = []

    def churn() -> None:
        count = 120
        try:
            while not stop.is_set():
                files = list(log.partition("t", 0).state.files)
                log.apply_plan("t", 0, rewrite(log, "t", PlanKind.MERGE, files[-8:]))
                # A vacuum without mercy: what left the log is gone at once.
                for file in files[-8:]:
                    log.runtime.store.delete(f"{folder_of(log, 't')}/{file.path}")
                append_one_by_one(log, "t", map(str, range(count, count + 3)))
                count += 3
                stop.wait(0.02)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        sink = to_the_end(stream(spark, tmp_root, maxOffsetsPerTrigger=30), tmp_path / "checkpoint")
    finally:
        stop.set()
        churning.join()
    assert not failures, failures
    offsets = [offset for _, offset in sink.offsets]
    assert len(offsets) >= 120
    assert offsets == list(range(len(offsets)))
    # Retention passes the position of the query: an error, or, if asked for, the rest.
    log.delete_records("t", 0, len(offsets) + 2)
    append(log, "t", 0, batch("last"))
    with pytest.raises(PySparkException, match="below the log start"):
        to_the_end(stream(spark, tmp_root), tmp_path / "checkpoint")
    rest = to_the_end(stream(spark, tmp_root, failOnDataLoss="false"), tmp_path / "checkpoint")
    end = log.partition("t", 0).state.end
    assert [offset for _, offset in rest.offsets] == list(range(len(offsets) + 2, end))


def test_the_service_names_its_root_and_may_then_be_down(spark: SparkSession, tmp_path: Path):
    with running(tmp_path / "root") as server:
        server.client.post("/topics/t", json={"records": [{"value": n} for n in range(5)]}).raise_for_status()
        assert server.client.get(f"{V3}").json()["storage_root"] == (tmp_path / "root").as_uri()
        by_server = spark.read.format("sluice").options(subscribe="t", server=server.url).load()
        assert by_server.count() == 5
        server.kill()
        assert spark.read.format("sluice").options(subscribe="t").load(str(tmp_path / "root")).count() == 5


def test_a_bucket(spark: SparkSession, s3: S3Server, tmp_path: Path):
    """The same from an object store, with its credentials given as options."""
    url = f"{s3.bucket('lake')}/{uuid.uuid4().hex}"
    options = s3.options
    keys = {
        "s3.endpoint": options["endpoint"],
        "s3.region": options["region"],
        "s3.access.key.id": options["access_key_id"],
        "s3.secret.access.key": options["secret_access_key"],
        "s3.allow.http": "true",
    }
    settings = settings_of(
        url,
        wal_dir=str(tmp_path / "wal"),
        s3_endpoint=options["endpoint"],
        s3_region=options["region"],
        s3_access_key_id=options["access_key_id"],
        s3_secret_access_key=options["secret_access_key"],
        s3_allow_http=True,
        merge_enable=False,
    )
    with LogStore.open(settings) as log:
        log.create_topic("t", partitions=3)
        for partition in range(3):
            append_one_by_one(log, "t", map(str, range(10)), partition)
        frame = stream(spark, url, maxOffsetsPerTrigger=12, **keys)
        first = to_the_end(frame, tmp_path / "checkpoint")
        assert sorted(first.offsets) == [(p, n) for p in range(3) for n in range(10)]
        files = list(log.partition("t", 0).state.files)
        log.apply_plan("t", 0, rewrite(log, "t", PlanKind.MERGE, files))
        append(log, "t", 1, batch("more"))
        assert to_the_end(frame, tmp_path / "checkpoint").offsets == [(1, 10)]
    assert spark.read.format("sluice").options(subscribe="t", **keys).load(url).count() == 31
