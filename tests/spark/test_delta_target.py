"""A Delta table that jobs write to: what is skipped, what is repeated, what conflicts, what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.log_store.errors import InvalidConfig
from sluice.log_store.values import OffsetRange, TopicPartition
from sluice.streaming.spark.delta_target import DeltaTarget, may_hold

IDS = {"t": "id-1"}
ROUNDS = 4


def _rows(spark: SparkSession, *parts: tuple[int, int, int]) -> DataFrame:
    frames = [
        spark.range(start, end).selectExpr(
            "'t' AS __topic", f"{partition} AS __partition", "id AS __offset", "CAST(id AS STRING) AS value"
        )
        for partition, start, end in parts
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionAll(frame)
    return whole.coalesce(1)


def _ranges(*parts: tuple[int, int, int]) -> dict[TopicPartition, OffsetRange]:
    return {TopicPartition("t", partition): OffsetRange(start, end) for partition, start, end in parts}


def _stored(spark: SparkSession, table: DeltaTarget) -> list[tuple[int, int]]:
    rows = spark.read.format("delta").load(table.place).select("__partition", "__offset").collect()
    return sorted((row[0], row[1]) for row in rows)


def test_a_merge_adds_only_what_is_missing_and_reads_few_files(spark: SparkSession, tmp_path: Path):
    table = DeltaTarget(str(tmp_path / "out"))
    table.prepare(spark, _rows(spark, (0, 0, 1)).schema)
    table.prepare(spark, _rows(spark, (0, 0, 1)).schema)
    # Partition 0 is far ahead of partition 1.
    for number in range(ROUNDS):
        parts = ((0, 1000 + 10 * number, 1010 + 10 * number), (1, 2 * number, 2 * number + 2))
        table.merge(_rows(spark, *parts), _ranges(*parts), IDS)
    first, second = [(0, n) for n in range(1000, 1000 + 10 * ROUNDS)], [(1, n) for n in range(2 * ROUNDS)]
    assert _stored(spark, table) == first + second

    # Another member read from an older offset and goes further than what is there.
    again = ((0, 995 + 10 * ROUNDS, 1005 + 10 * ROUNDS), (1, 2 * ROUNDS - 1, 2 * ROUNDS + 1))
    frame = spark.read.format("delta").load(table.place)
    assert len(frame.inputFiles()) == 2 * ROUNDS
    assert len(frame.where(may_hold(_ranges(*again))).inputFiles()) <= 3
    table.merge(_rows(spark, *again), _ranges(*again), IDS)
    table.merge(_rows(spark, *again), _ranges(*again), IDS)
    further = [(0, n) for n in range(1000 + 10 * ROUNDS, 1005 + 10 * ROUNDS)]
    assert _stored(spark, table) == first + further + second + [(1, 2 * ROUNDS)]

    with pytest.raises(InvalidConfig, match="topic 't' was deleted and made again"):
        table.merge(_rows(spark, (0, 0, 1)), _ranges((0, 0, 1)), {"t": "id-2"})
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table.place}`").first()
    assert detail.partitionColumns == ["__topic", "__partition"]


def test_an_append_of_the_same_batch_is_skipped(spark: SparkSession, tmp_path: Path):
    table = DeltaTarget(str(tmp_path / "out"))
    table.prepare(spark, _rows(spark, (0, 0, 1)).schema)
    for batch, start in ((0, 0), (1, 5), (1, 5), (0, 0)):
        table.append(_rows(spark, (0, start, start + 5)), "query", batch)
    table.append(_rows(spark, (1, 0, 1)), "another", 0)
    assert _stored(spark, table) == [(0, n) for n in range(10)] + [(1, 0)]


def test_a_table_has_nested_fields_of_any_name(spark: SparkSession, tmp_path: Path):
    table, place = DeltaTarget(str(tmp_path / "out")), str(tmp_path / "out")
    wanted = "struct<`unit-price`: double, `of which`: array<struct<`select`: map<string, struct<`a.b`: int>>>>>"
    mapping = "spark.databricks.delta.properties.defaults.columnMapping.mode"  # Delta wants it for a space
    spark.conf.set(mapping, "name")
    try:
        rows = _rows(spark, (0, 0, 1)).selectExpr("*", f"CAST(NULL AS {wanted}) AS `the-order`")
        table.prepare(spark, rows.schema)
        table.prepare(spark, rows.schema)
    finally:
        spark.conf.unset(mapping)
    table.append(rows, "query", 0)
    found = spark.read.format("delta").load(place)
    assert found.schema["the-order"].dataType.simpleString() == rows.schema["the-order"].dataType.simpleString()
    assert _stored(spark, table) == [(0, 0)]


def test_members_that_write_the_same_records_at_the_same_time(spark: SparkSession, tmp_path: Path):
    place = str(tmp_path / "out")
    DeltaTarget(place).prepare(spark, _rows(spark, (0, 0, 1)).schema)

    def member(number: int) -> None:
        table, session = DeltaTarget(place), spark.newSession()
        for batch in range(3):
            # The first partition belongs to both, as after a pause; the other to one of them.
            parts = ((0, 10 * batch, 10 * batch + 15), (number, 10 * batch, 10 * batch + 10))
            table.merge(_rows(session, *parts), _ranges(*parts), IDS)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(member, (1, 2)))
    own = [(partition, n) for partition in (1, 2) for n in range(30)]
    assert _stored(spark, DeltaTarget(place)) == [(0, n) for n in range(35)] + own


def test_members_that_start_together_make_one_table(spark: SparkSession, tmp_path: Path):
    """One may find the folder of another, which has not committed yet."""
    schema = _rows(spark, (0, 0, 1)).schema

    def start(place: Path) -> None:
        DeltaTarget(str(place)).prepare(spark.newSession(), schema)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(start, [tmp_path / "out"] * 3))
    assert spark.read.format("delta").load(str(tmp_path / "out")).schema.names == schema.names


def test_a_table_that_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path):
    place = str(tmp_path / "theirs")
    spark.range(3).write.format("delta").save(place)
    with pytest.raises(InvalidConfig, match=r"does not fit: it lacks `__topic` STRING"):
        DeltaTarget(place).prepare(spark, _rows(spark, (0, 0, 1)).schema)
    assert spark.read.format("delta").load(place).columns == ["id"]
