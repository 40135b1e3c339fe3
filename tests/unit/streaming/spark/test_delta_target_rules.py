"""Rules of writing to a Delta table that need no Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from sluice.log_store.errors import InvalidConfig
from sluice.log_store.values import OffsetRange, TopicPartition
from sluice.streaming.spark.delta_target import (
    is_conflict,
    is_creation_race,
    may_hold,
    merge_condition,
    misfits,
    new_topic_ids,
    pause_s,
    type_ddl,
)

RANGES = {TopicPartition("t", 1): OffsetRange(5, 9), TopicPartition("t", 0): OffsetRange(100, 200)}


def test_the_condition_names_the_partitions_alone_and_then_both_ends_of_each():
    assert may_hold(RANGES) == (
        "__topic IN ('t') AND __partition IN (0, 1) AND "
        "((__topic = 't' AND __partition = 0 AND __offset >= 100 AND __offset < 200) OR "
        "(__topic = 't' AND __partition = 1 AND __offset >= 5 AND __offset < 9))"
    )
    assert merge_condition(RANGES).startswith(
        "t.__topic = s.__topic AND t.__partition = s.__partition AND t.__offset = s.__offset AND t.__topic IN ('t')"
    )


def test_columns_that_are_missing_or_of_another_type_are_named_with_the_cure():
    rows = StructType([StructField("a", IntegerType()), StructField("b", StringType()), StructField("C", LongType())])
    fits = StructType([*rows.fields, StructField("more", StringType())])
    assert misfits(fits, rows) == []
    target = StructType(
        [
            StructField("a", StringType()),
            StructField("c", LongType()),
            StructField("must", StringType(), nullable=False),
        ]
    )
    assert misfits(target, rows) == [
        "`a` is STRING, the records give `a` INT",
        "it lacks `b` STRING (ALTER TABLE … ADD COLUMNS (`b` STRING))",
        "`must` must not be null, and the records have none",
    ]


PRICE = StructType([StructField("unit-price", DoubleType(), nullable=False), StructField("a`b", DecimalType(10, 2))])


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        (LongType(), "BIGINT"),
        (TimestampNTZType(), "TIMESTAMP_NTZ"),
        (PRICE, "STRUCT<`unit-price`: DOUBLE, `a``b`: DECIMAL(10,2)>"),
        (ArrayType(PRICE), "ARRAY<STRUCT<`unit-price`: DOUBLE, `a``b`: DECIMAL(10,2)>>"),
        (
            MapType(StringType(), StructType([StructField("Of", ArrayType(PRICE))])),
            "MAP<STRING, STRUCT<`Of`: ARRAY<STRUCT<`unit-price`: DOUBLE, `a``b`: DECIMAL(10,2)>>>>",
        ),
        (StructType([]), "STRUCT<>"),
    ],
)
def test_names_are_quoted_however_deep_they_are(kind: DataType, ddl: str):
    assert type_ddl(kind) == ddl


def test_the_cure_for_a_missing_column_can_be_run():
    rows = StructType([StructField("o", StructType([StructField("unit-price", DoubleType())]))])
    wanted = "`o` STRUCT<`unit-price`: DOUBLE>"
    assert misfits(StructType([]), rows) == [f"it lacks {wanted} (ALTER TABLE … ADD COLUMNS ({wanted}))"]


def test_another_incarnation_of_a_topic_is_refused_r8():
    properties = {"sluice.topic_id.t": "id-1", "other": "x"}
    assert new_topic_ids(properties, {"t": "id-1"}, "/out") == {}
    assert new_topic_ids(properties, {"t": "id-1", "u": "id-9"}, "/out") == {"sluice.topic_id.u": "id-9"}
    with pytest.raises(InvalidConfig, match="topic 't' was deleted and made again"):
        new_topic_ids(properties, {"t": "id-2"}, "/out")


def test_pauses_grow_to_a_bound_and_are_spread_out():
    assert [pause_s(n, 0.5) for n in (0, 1, 2, 30)] == [0.1, 0.2, 0.4, 10.0]
    assert (pause_s(30, 0.0), pause_s(30, 1.0)) == (5.0, 15.0)


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        ("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT] …", True),
        ("[DELTA_METADATA_CHANGED] The metadata of the Delta table has been changed", True),
        ("[DELTA_TABLE_NOT_FOUND] nothing there", False),
    ],
)
def test_what_is_worth_another_try(text: str, conflict: bool):
    assert is_conflict(RuntimeError(text)) is conflict


def test_a_table_that_another_member_is_just_making_is_worth_another_try():
    being_made = RuntimeError("[DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION] Cannot create table")
    assert is_creation_race(being_made)
    assert not is_conflict(being_made), "only where a table is made"
    assert not is_creation_race(RuntimeError("[DELTA_TABLE_NOT_FOUND] nothing there"))
