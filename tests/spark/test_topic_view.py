"""A whole topic as one relation of plain Delta tables, and JSON values as columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from sluice.api.cli import app
from sluice.log_store.errors import InvalidRequest, UnknownTopicOrPartition
from sluice.streaming import decode, topic_view
from tests.support.stock_readers import numbered, open_log, produce


def _offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def test_a_whole_topic_is_one_relation_r8_r11(spark: SparkSession, tmp_root: Path):
    with open_log(tmp_root) as log:
        log.create_topic("my.topic", partitions=1)
        produce(log, "my.topic", numbered(100, 3))
        log.delete_topic("my.topic")
        log.create_topic("my.topic", partitions=3)
        for partition, first in ((0, 0), (0, 4), (1, 0)):
            produce(log, "my.topic", numbered(first, 4), partition)
        # Offset 2 lies in the middle of a file, which a stock reader goes on showing as a whole.
        log.delete_records("my.topic", 0, 2)

        frame = topic_view(spark, str(tmp_root), "my.topic")
        assert frame.columns == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert _offsets(frame) == [(0, n) for n in range(2, 8)] + [(1, n) for n in range(4)]
        assert spark.sql("SELECT DISTINCT topic FROM `my.topic`").collect() == [("my.topic",)]
        only = frame.where("partition = 1")
        assert {Path(file).parent.name for file in only.inputFiles()} == {"1"}
        assert len(frame.where("partition = 0 AND offset >= 4").inputFiles()) == 1

        # The view is of tables, not of a moment.
        produce(log, "my.topic", numbered(4, 1), 1)
        assert _offsets(only) == [(1, n) for n in range(5)]

        sums = decode(frame, "n LONG").groupBy("partition").agg({"n": "sum"}).collect()
        assert sorted(map(tuple, sums)) == [(0, sum(range(2, 8))), (1, sum(range(5)))]

        shown = CliRunner().invoke(app, ["sql-view", "my.topic", "--root", str(tmp_root), "--name", "whole_topic"])
        assert shown.exit_code == 0, shown.output
        spark.sql(shown.stdout.strip().removesuffix(";"))
        try:
            assert _offsets(spark.table("whole_topic")) == _offsets(frame)
        finally:
            spark.sql("DROP VIEW whole_topic")
            spark.catalog.dropTempView("my.topic")
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'other'"):
            topic_view(spark, str(tmp_root), "other")


def test_a_topic_without_records_is_empty(spark: SparkSession, tmp_root: Path):
    with open_log(tmp_root) as log:
        log.create_topic("new", partitions=2)
        assert topic_view(spark, str(tmp_root), "new", name="nothing").count() == 0
        assert spark.table("nothing").schema["headers"].dataType.typeName() == "array"
        spark.catalog.dropTempView("nothing")


TEXTS = ['{"n": 1, "s": "x"}', '{"n": "no"}', "[1]", "{", "", "null", None, '{"s": "y"}']
BAD = ['{"n": "no"}', "[1]", "{", "", "null"]


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    rows = [(number, text) for number, text in enumerate(TEXTS)]
    return spark.createDataFrame(rows, "offset LONG, value STRING").selectExpr("offset", "CAST(value AS BINARY) value")


def test_decode_keeps_malformed_values_drops_them_or_fails(records: DataFrame):
    found = decode(records, "n INT, s STRING").orderBy("offset").collect()
    assert [tuple(row) for row in found if row["_corrupt_record"] is None] == [
        (0, 1, "x", None),
        (6, None, None, None),  # a tombstone is not malformed
        (7, None, "y", None),
    ]
    assert [row["_corrupt_record"] for row in found if row["_corrupt_record"] is not None] == BAD

    dropped = decode(records, "n INT, s STRING", mode="dropmalformed", into="data").orderBy("offset").collect()
    assert [(row.offset, row.data and row.data.asDict()) for row in dropped] == [
        (0, {"n": 1, "s": "x"}),
        (6, None),
        (7, {"n": None, "s": "y"}),
    ]

    whole = decode(records.where("offset IN (0, 6, 7)"), "n INT", mode="FAILFAST")
    assert [row.n for row in whole.orderBy("offset").collect()] == [1, None, None]
    with pytest.raises(Exception, match="does not fit the schema: null"):
        decode(records.where("offset = 5"), "n INT", mode="FAILFAST").collect()


@pytest.mark.parametrize(
    ("schema", "mode", "words"),
    [
        ("offset LONG", "PERMISSIVE", "offset is also a column of the frame"),
        ("n INT", "STRICT", "mode: must be one of PERMISSIVE"),
        ("n NUMBER OF", "PERMISSIVE", "is no list of fields"),
        ("INT", "PERMISSIVE", "is one type, not a list of fields"),
    ],
)
def test_decode_refuses_what_cannot_be(records: DataFrame, schema: str, mode: str, words: str):
    with pytest.raises(InvalidRequest, match=words):
        decode(records, schema, mode=mode)
