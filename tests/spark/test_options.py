"""Every option of the source does in a real query what it says; one that has no case here fails the last test.

What is refused, and with which words, is in tests/unit/streaming/spark/test_source_options.py.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sluice.api.client import SluiceClient
from sluice.log_store.engine import LogStore
from sluice.streaming import register
from sluice.streaming.spark.group_options import FINISHED_FILE
from sluice.streaming.spark.options import SOURCE_OPTIONS
from tests.support.certificates import Certificates, make_certificates
from tests.support.harness import settings_of, wait_until
from tests.support.logs import NOW_MS, append, batch, folder_cluster, make_batch
from tests.support.s3_server import S3Server
from tests.support.server import Server, running
from tests.support.spark_buckets import bucket_options, bucket_settings

COVERED: set[str] = set()
Test = TypeVar("Test", bound=Callable[..., None])
SIZES = (10, 5)
EVERYTHING = [(partition, offset) for partition, size in enumerate(SIZES) for offset in range(size)]
WITHIN_S = 120


def covers(*options: str) -> Callable[[Test], Test]:
    COVERED.update(options)
    return lambda test: test


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options") / "root"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def log(root: Path) -> Iterator[LogStore]:
    """Ten and five records, a second apart, with headers; and another topic."""
    with folder_cluster(root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=len(SIZES))
        log.create_topic("other", partitions=1)
        append(log, "other", 0, batch("x", "y"))
        for partition, size in enumerate(SIZES):
            for offset in range(size):
                record = {"value": b"%d" % offset, "headers": [("h", b"1")]}
                append(log, "t", partition, make_batch([record], default_ms=NOW_MS + 1_000 * offset))
        yield log


@pytest.fixture
def read(spark: SparkSession, log: LogStore, root: Path) -> Callable[..., DataFrame]:
    def load(**options: Any) -> DataFrame:
        given = {"path": str(root), "subscribe": "t"} | options
        texts = {name: str(value) for name, value in given.items() if value is not None}
        return spark.read.format("sluice").options(**texts).load()

    return load


def rows(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


@covers("path", "subscribe", "subscribePattern", "assign")
def test_what_is_read(read: Callable[..., DataFrame]) -> None:
    assert rows(read()) == EVERYTHING
    assert read(subscribe="other, t").count() == len(EVERYTHING) + 2
    assert {row.topic for row in read(subscribe=None, subscribePattern="o.*").collect()} == {"other"}
    assert rows(read(subscribe=None, assign='{"t":[1]}')) == [one for one in EVERYTHING if one[0] == 1]


@covers("startingOffsets", "endingOffsets")
def test_from_where_to_where_by_offset(read: Callable[..., DataFrame]) -> None:
    assert rows(read(startingOffsets="earliest", endingOffsets="latest")) == EVERYTHING
    found = read(startingOffsets='{"t":{"0":3,"1":-2}}', endingOffsets='{"t":{"0":7,"1":-1}}')
    assert rows(found) == [(0, n) for n in range(3, 7)] + [(1, n) for n in range(5)]


@covers("startingTimestamp", "endingTimestamp")
def test_from_where_to_where_by_time(read: Callable[..., DataFrame]) -> None:
    found = read(startingTimestamp=NOW_MS + 2_500, endingTimestamp=NOW_MS + 4_000)
    assert rows(found) == [(0, 3), (1, 3)]


@covers("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsetsByTimestamp")
def test_from_where_to_where_by_time_for_each(read: Callable[..., DataFrame]) -> None:
    starts = f'{{"t":{{"0":{NOW_MS + 8_000},"1":{NOW_MS + 9_000}}}}}'
    ends = f'{{"t":{{"0":{NOW_MS + 9_000},"1":{NOW_MS + 9_000}}}}}'
    with pytest.raises(PySparkException, match="t-1 has no record at or after"):
        read(startingOffsetsByTimestamp=starts).collect()
    found = read(
        startingOffsetsByTimestamp=starts,
        endingOffsetsByTimestamp=ends,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert rows(found) == [(0, 8)]


@covers("columns", "includeHeaders")
def test_which_columns(read: Callable[..., DataFrame]) -> None:
    assert read(columns="offset,value").columns == ["value", "offset"]
    assert "headers" not in read().columns
    (header,) = read(includeHeaders="true").first().headers
    assert (header.key, bytes(header.value)) == ("h", b"1")


@covers("minPartitions", "maxRecordsPerPartition")
def test_how_many_tasks(read: Callable[..., DataFrame]) -> None:
    assert read().rdd.getNumPartitions() == 2
    for options in ({"minPartitions": 5}, {"maxRecordsPerPartition": 3}):
        frame = read(**options)
        assert frame.rdd.getNumPartitions() >= 5
        assert rows(frame) == EVERYTHING


@covers("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
def test_how_often_storage_is_asked(read: Callable[..., DataFrame]) -> None:
    """What they do when storage fails: tests/unit/streaming/spark/test_source_planner.py."""
    retries = {"fetchOffset.numRetries": 0, "fetchOffset.retryIntervalMs": 1}
    assert rows(read(**retries)) == EVERYTHING
    for name in retries:
        with pytest.raises(PySparkException, match=f"option '{name}': must be 0 to"):
            read(**{name: -1}).collect()


@covers("failOnDataLoss")
def test_what_retention_took(read: Callable[..., DataFrame], log: LogStore) -> None:
    log.create_topic("short", partitions=1)
    append(log, "short", 0, batch(*"abcd"))
    log.delete_records("short", 0, 2)
    given = {"subscribe": "short", "startingOffsets": '{"short":{"0":1}}'}
    with pytest.raises(PySparkException, match=r"offset 1 of short-0 is outside 2\.\.4"):
        read(**given).collect()
    assert rows(read(**given, failOnDataLoss="false")) == [(0, 2), (0, 3)]


@covers("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
def test_how_much_a_batch_takes(spark: SparkSession, log: LogStore, root: Path, tmp_path: Path) -> None:
    log.create_topic("flow", partitions=1)
    append(log, "flow", 0, batch(*map(str, range(15))))

    def run(trigger: dict[str, Any], more: Callable[[list[int]], None], **options: str) -> list[int]:
        sizes: list[int] = []
        frame = spark.readStream.format("sluice").options(subscribe="flow", startingOffsets="earliest", **options)
        writer = frame.load(str(root)).writeStream.foreachBatch(lambda rows, _: sizes.append(rows.count()))
        query = writer.option("checkpointLocation", str(tmp_path / uuid.uuid4().hex)).trigger(**trigger).start()
        try:
            more(sizes)
            wait_until(lambda: not trigger.get("availableNow") or not query.isActive, "the end", WITHIN_S)
            assert query.exception() is None
        finally:
            query.stop()
        return sizes

    assert run({"availableNow": True}, lambda _: None, maxOffsetsPerTrigger="6") == [6, 6, 3]

    def grow(sizes: list[int]) -> None:
        wait_until(lambda: sizes == [15], "the first batch is not held up", WITHIN_S)
        append(log, "flow", 0, batch(*"ab"))
        append(log, "flow", 0, batch(*"cde"))
        wait_until(lambda: len(sizes) == 2, "there is enough", WITHIN_S)

    often = {"processingTime": "100 milliseconds"}
    # Five together are enough, two are not: whenever the query looks, it takes all five.
    assert run(often, grow, minOffsetsPerTrigger="5", maxTriggerDelay="1h") == [15, 5]

    def wait_for_one(sizes: list[int]) -> None:
        wait_until(lambda: sizes == [20], "the first batch", WITHIN_S)
        append(log, "flow", 0, batch("f"))
        wait_until(lambda: sizes == [20, 1], "it was late", WITHIN_S)

    assert run(often, wait_for_one, minOffsetsPerTrigger="1000", maxTriggerDelay="1s") == [20, 1]


@covers("s3.endpoint", "s3.region", "s3.access.key.id", "s3.secret.access.key", "s3.allow.http")
def test_a_bucket(spark: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    url = f"{s3.bucket('lake')}/{uuid.uuid4().hex}"
    with LogStore.open(settings_of(url, **bucket_settings(s3, tmp_path))) as log:
        log.create_topic("t", partitions=1)
        append(log, "t", 0, batch(*"abc"))
    keys = bucket_options(s3)
    assert spark.read.format("sluice").options(**keys, subscribe="t").load(url).count() == 3
    wrong = keys | {"s3.secret.access.key": "not-this-one", "fetchOffset.numRetries": "0"}
    with pytest.raises(PySparkException, match=r"403|Forbidden|denied|SignatureDoesNotMatch"):
        spark.read.format("sluice").options(**wrong, subscribe="t").load(url).collect()


# --- with a service -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(
        tmp_path_factory.mktemp("secure") / "root",
        verify=ssl.create_default_context(cafile=certificates.authority),
        SLUICE_TLS_CERTIFICATE_FILE=str(certificates.certificate),
        SLUICE_TLS_KEY_FILE=str(certificates.key),
        SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS="100",
        SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS="1000",
    ) as server:
        yield server


@covers(
    *("server", "token", "ca.file", "group.id", "group.instance.id", "partition.assignment.strategy"),
    *("group.rebalance.timeout.ms", "group.session.timeout.ms", "group.heartbeat.interval.ms"),
)
def test_a_member_of_a_group(spark: SparkSession, secure: Server, certificates: Certificates, tmp_path: Path) -> None:
    produced = secure.client.post("/topics/t", json={"records": [{"value": number} for number in range(7)]})
    assert produced.status_code == 200
    with SluiceClient(secure.url, ca_file=str(certificates.authority)) as open_to_all:
        secret = open_to_all.tokens.create("admin", ["admin"]).token
    known = {"server": secure.url, "subscribe": "t", "ca.file": str(certificates.authority), "token": secret}
    assert spark.read.format("sluice").options(**known).load().count() == 7
    for name, message in (("token", "token"), ("ca.file", "certificate")):
        left = {key: value for key, value in known.items() if key != name}
        with pytest.raises(PySparkException, match=f"(?i){message}"):
            spark.read.format("sluice").options(**left, **{"fetchOffset.numRetries": "0"}).load().collect()

    group = {
        "group.id": "g",
        "group.instance.id": "one",
        "partition.assignment.strategy": "range,sticky",
        "group.rebalance.timeout.ms": "20000",
        "group.session.timeout.ms": "3000",
        "group.heartbeat.interval.ms": "200",
    }
    counts: list[int] = []
    stream = spark.readStream.format("sluice").options(**known, **group, startingOffsets="earliest").load()
    writer = stream.writeStream.foreachBatch(lambda rows, _: counts.append(rows.count())).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(WITHIN_S)
    assert (query.exception(), sum(counts)) == (None, 7)
    with SluiceClient(secure.url, ca_file=str(certificates.authority), token=secret) as client:
        assert [lag.lag for lag in client.groups.lags("g")] == [0]
        # A static member does not leave: it is gone when its session is over.
        wait_until(lambda: not client.groups.members("g"), "the session ended", 60)


def test_every_option_has_a_case() -> None:
    # A file between the parts of a consumer job, which the tests of its stop are about.
    assert set(SOURCE_OPTIONS) - {FINISHED_FILE} == COVERED
