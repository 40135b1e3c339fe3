"""Stock readers agree with ours (I-11), and skip files by our statistics (I-12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import ForeignCommit, RequestTimedOut
from sluice.log_store.plans import PlanKind
from tests.support.stock_readers import (
    START_MS,
    Row,
    checkpoint_and_clean,
    delta_rs_rows,
    numbered,
    open_log,
    our_rows,
    produce,
    rewrite,
    spark_rows,
    table_path,
)

AWKWARD = [
    {"key": b"k", "value": b"v", "timestamp": START_MS},
    {"key": None, "value": b"no key", "timestamp": START_MS - 1},
    {"key": b"no value", "value": None, "timestamp": 0},
    {"key": None, "value": None},
    {"key": b"", "value": b""},
    {"value": bytes(range(256)), "headers": []},
    {"value": b"headers", "headers": [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ключ", b"\xff\x00")]},
    {"value": "Überraschung ✓".encode(), "headers": [("only", None)], "timestamp": 253_402_300_799_999},
]


@pytest.fixture
def log(tmp_root: Path) -> Iterator[LogStore]:
    with open_log(tmp_root) as opened:
        yield opened


def assert_all_agree(spark: SparkSession, log: LogStore, topic: str, partition: int = 0) -> list[Row]:
    ours, path = our_rows(log, topic, partition), table_path(log, topic, partition)
    assert delta_rs_rows(path) == ours
    assert spark_rows(spark, path) == ours
    # Answered from add.stats alone, without opening a file.
    assert spark.read.format("delta").load(path).count() == len(ours)
    return ours


# --- I-11: exactly the committed rows ------------------------------------------------------------


def test_awkward_records_are_read_alike_by_all_i11(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    produce(log, "t", AWKWARD)
    rows = assert_all_agree(spark, log, "t")
    expected = [
        Row(
            offset,
            record.get("timestamp", START_MS) * 1000,
            record.get("key"),
            record.get("value"),
            None if record.get("headers") is None else tuple(record["headers"]),
        )
        for offset, record in enumerate(AWKWARD)
    ]
    assert rows == expected


@pytest.mark.parametrize("codec", ["producer", "zstd", "snappy", "gzip", "lz4", "uncompressed"])
def test_every_codec_is_read_by_all_i11(spark: SparkSession, log: LogStore, codec: str):
    log.create_topic("t", configs={"compression.type": codec})
    for first in (0, 200):
        produce(log, "t", numbered(first, 200))
    assert len(assert_all_agree(spark, log, "t")) == 400


def test_log_append_time_is_read_alike_by_all_i11(spark: SparkSession, log: LogStore):
    log.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    produce(log, "t", numbered(0, 5))
    rows = assert_all_agree(spark, log, "t")
    assert len({row.micros for row in rows}) == 1
    assert rows[0].micros // 1000 > START_MS


def test_an_empty_partition_is_an_empty_table_i11(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    log.partition("t", 0).prepare()
    assert assert_all_agree(spark, log, "t") == []


def test_checkpoint_and_cleaned_log_are_read_alike_by_all_i11_r5(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    for first in range(0, 40, 4):
        produce(log, "t", numbered(first, 4))
    log.partition("t", 0).checkpoint()
    assert len(assert_all_agree(spark, log, "t")) == 40
    for first in range(40, 60, 4):
        produce(log, "t", numbered(first, 4))
    assert checkpoint_and_clean(log, "t") > 0
    assert not (Path(table_path(log, "t")) / "_delta_log" / f"{0:020d}.json").exists()
    produce(log, "t", numbered(60, 4))
    assert [row.offset for row in assert_all_agree(spark, log, "t")] == list(range(64))


def test_a_merge_changes_no_row_for_anybody_i11_r7(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    for first in range(0, 40, 4):
        produce(log, "t", numbered(first, 4))
    before = assert_all_agree(spark, log, "t")
    rewrite(log, "t", PlanKind.MERGE, 2, 6)
    assert len(log.partition("t", 0).state.files) == 6
    assert assert_all_agree(spark, log, "t") == before
    log.partition("t", 0).checkpoint()
    assert assert_all_agree(spark, log, "t") == before


def test_deleted_records_go_for_all_but_one_boundary_file_until_it_is_trimmed_r11(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    for first in range(0, 40, 4):
        produce(log, "t", numbered(first, 4))
    log.delete_records("t", 0, 8)
    assert [row.offset for row in assert_all_agree(spark, log, "t")] == list(range(8, 40))

    log.delete_records("t", 0, 14)
    ours, path = our_rows(log, "t"), table_path(log, "t")
    assert [row.offset for row in ours] == list(range(14, 40))
    stock = spark_rows(spark, path)
    assert stock == delta_rs_rows(path)
    assert [row.offset for row in stock] == list(range(12, 40)), "12 and 13 share a file with the log start"

    rewrite(log, "t", PlanKind.TRIM, 0, 0, start=14)
    assert assert_all_agree(spark, log, "t") == ours


def test_an_emptied_partition_goes_on_at_its_old_end_r11(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    produce(log, "t", numbered(0, 10))
    log.delete_records("t", 0, -1)
    assert assert_all_agree(spark, log, "t") == []
    assert produce(log, "t", numbered(10, 2)) == 10
    assert [row.offset for row in assert_all_agree(spark, log, "t")] == [10, 11]


def test_a_recreated_topic_is_another_table_r8(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    produce(log, "t", numbered(0, 5))
    old = table_path(log, "t")
    log.delete_topic("t")
    log.create_topic("t")
    produce(log, "t", numbered(100, 3))
    assert table_path(log, "t") != old
    assert [row.value for row in assert_all_agree(spark, log, "t")] == [b'{"n":100}', b'{"n":101}', b'{"n":102}']
    assert len(spark_rows(spark, old)) == 5, "the old files stay for file.delete.delay.ms"


def test_tables_survive_a_restart_unchanged_i6(spark: SparkSession, tmp_root: Path):
    with open_log(tmp_root) as log:
        log.create_topic("t", partitions=2)
        produce(log, "t", numbered(0, 7), partition=0)
        produce(log, "t", AWKWARD, partition=1)
        before = [our_rows(log, "t", partition) for partition in (0, 1)]
    with open_log(tmp_root) as log:
        assert [assert_all_agree(spark, log, "t", partition) for partition in (0, 1)] == before


def test_the_catalog_is_json_that_spark_sql_can_read(spark: SparkSession, log: LogStore):
    log.create_topic("orders", partitions=3)
    path = log.runtime.store.local_path / "topics/__cluster_metadata/0"
    query = f"SELECT string(key) AS key, string(value) AS value FROM delta.`{path}`"
    records = {json.loads(row.key)["name"]: json.loads(row.value) for row in spark.sql(query).collect()}
    assert records["orders"]["partitions"] == [3]


# --- I-12: files are skipped ---------------------------------------------------------------------


@pytest.mark.parametrize("checkpointed", [False, True])
def test_spark_reads_one_file_of_many_by_offset_and_by_time_i12(spark: SparkSession, log: LogStore, checkpointed: bool):
    log.create_topic("t")
    for first in range(0, 100, 5):
        produce(log, "t", numbered(first, 5))
    if checkpointed:
        log.partition("t", 0).checkpoint()
    frame = spark.read.format("delta").load(table_path(log, "t"))
    assert len(frame.inputFiles()) == 20
    for condition, files in {
        "offset = 5": 1,
        "offset <= 5": 2,
        "offset >= 93 AND offset < 97": 2,
        f"timestamp = timestamp_millis({START_MS + 42})": 1,
        # Delta widens stored maxima by a millisecond.
        f"timestamp > timestamp_millis({START_MS + 95})": 1,
    }.items():
        assert len(frame.where(condition).inputFiles()) == files, condition
    assert [row.offset for row in frame.where("offset = 5").collect()] == [5]


# --- Delta's own tools ---------------------------------------------------------------------------


def test_history_is_readable_and_the_protocol_stays_i5(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    for first in range(0, 12, 4):
        produce(log, "t", numbered(first, 4))
    rewrite(log, "t", PlanKind.MERGE, 0, 2)
    log.delete_records("t", 0, -1)
    path = table_path(log, "t")
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").orderBy("version").collect()
    assert [row.operation for row in history] == ["CREATE TABLE", *["STREAMING UPDATE"] * 3, "MERGE", "DELETE_RECORDS"]
    assert [row.isBlindAppend for row in history] == [True] * 4 + [False] * 2
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
    assert (detail.minReaderVersion, detail.minWriterVersion) == (1, 2)
    assert detail.properties["delta.isolationLevel"] == "WriteSerializable"
    protocol = DeltaTable(path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features
    assert not protocol.writer_features


def test_older_versions_are_readable_while_their_commits_are_kept(spark: SparkSession, log: LogStore):
    log.create_topic("t")
    for first in range(0, 12, 4):
        produce(log, "t", numbered(first, 4))
    frame = spark.read.format("delta").option("versionAsOf", 2).load(table_path(log, "t"))
    assert frame.count() == 8


def test_a_delta_stream_follows_appends_and_does_not_see_merges_i11(spark: SparkSession, log: LogStore, tmp_path: Path):
    log.create_topic("t")
    for first in (0, 4):
        produce(log, "t", numbered(first, 4))
    source = spark.readStream.format("delta").load(table_path(log, "t"))
    sink = source.writeStream.format("memory").queryName("followed").option("checkpointLocation", str(tmp_path / "c"))
    query = sink.start()
    try:
        query.processAllAvailable()
        assert _offsets(spark) == list(range(8))
        rewrite(log, "t", PlanKind.MERGE, 0, 1)
        produce(log, "t", numbered(8, 4))
        log.partition("t", 0).checkpoint()
        produce(log, "t", numbered(12, 4))
        query.processAllAvailable()
        assert _offsets(spark) == list(range(16))
    finally:
        query.stop()
        spark.catalog.dropTempView("followed")


def test_a_delta_stream_passes_over_deletions_only_when_told_to(spark: SparkSession, log: LogStore, tmp_path: Path):
    log.create_topic("t")
    for first in (0, 4):
        produce(log, "t", numbered(first, 4))
    source = spark.readStream.format("delta").option("skipChangeCommits", "true").load(table_path(log, "t"))
    sink = source.writeStream.format("memory").queryName("followed").option("checkpointLocation", str(tmp_path / "c"))
    query = sink.start()
    try:
        query.processAllAvailable()
        log.delete_records("t", 0, 6)
        rewrite(log, "t", PlanKind.TRIM, 0, 0, start=6)
        produce(log, "t", numbered(8, 4))
        query.processAllAvailable()
        assert _offsets(spark) == list(range(12))
    finally:
        query.stop()
        spark.catalog.dropTempView("followed")


def _offsets(spark: SparkSession) -> list[int]:
    return sorted(row.offset for row in spark.table("followed").collect())


# --- foreign writers -----------------------------------------------------------------------------


def test_a_foreign_insert_stops_produce_and_is_never_merged_i3(spark: SparkSession, tmp_root: Path):
    log = open_log(tmp_root)
    try:
        log.create_topic("t")
        produce(log, "t", numbered(0, 4))
        path = table_path(log, "t")
        spark.sql(
            f"INSERT INTO delta.`{path}` SELECT 4L, current_timestamp(), NULL, binary('stranger'), "
            "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
        )
        # The batch is in the WAL by then: whether it will ever hold is for a person to decide, so it is not refused.
        with pytest.raises(RequestTimedOut, match="written by Apache-Spark"):
            produce(log, "t", numbered(4, 1))
        with pytest.raises(ForeignCommit, match="only Sluice may write to this table") as refused:
            produce(log, "t", numbered(4, 1))
        assert refused.value.fields["version"] == 2
        assert any("t-0" in trouble and "Apache-Spark" in trouble for trouble in log.troubles())
        assert [row.value for row in our_rows(log, "t")] == [record["value"] for record in numbered(0, 4)]
    finally:
        log.close(drain=False)

    with open_log(tmp_root) as log:
        assert any("only Sluice may write" in finding.what for finding in log.report.findings)
        with pytest.raises(ForeignCommit):
            produce(log, "t", numbered(4, 1))
        assert len(our_rows(log, "t")) == 4


def test_a_foreign_table_property_stops_produce_i3(spark: SparkSession, tmp_root: Path):
    log = open_log(tmp_root)
    try:
        log.create_topic("t")
        produce(log, "t", numbered(0, 4))
        spark.sql(f"ALTER TABLE delta.`{table_path(log, 't')}` SET TBLPROPERTIES ('team' = 'somebody')")
        with pytest.raises(RequestTimedOut, match="changes protocol or metaData"):
            produce(log, "t", numbered(4, 1))
        with pytest.raises(ForeignCommit):
            produce(log, "t", numbered(4, 1))
    finally:
        log.close(drain=False)
