"""The SQL of a whole topic. What Spark makes of it is in tests/spark/test_topic_view.py."""

from __future__ import annotations

import pytest

from sluice.log_store.errors import InvalidRequest
from sluice.streaming.spark.views import PartitionTable, TopicTables, literal, location, select_sql, view_sql

COLUMNS = "`offset`, `timestamp`, `key`, `value`, `headers`"


def test_one_branch_for_each_partition_with_the_log_start_r11():
    found = TopicTables("orders", (PartitionTable(0, "/r/topics/orders/0", 0), PartitionTable(1, "/r/o/1", 7)))
    assert view_sql(found, "lake.orders") == (
        "CREATE OR REPLACE VIEW `lake`.`orders` AS\n"
        f"SELECT 'orders' AS `topic`, 0 AS `partition`, {COLUMNS} FROM delta.`/r/topics/orders/0`\n"
        "UNION ALL\n"
        f"SELECT 'orders' AS `topic`, 1 AS `partition`, {COLUMNS} FROM delta.`/r/o/1` WHERE `offset` >= 7"
    )


def test_a_view_is_called_as_its_topic_dots_and_all():
    assert view_sql(TopicTables("a.b", ()), temporary=True).startswith("CREATE OR REPLACE TEMPORARY VIEW `a.b` AS\n")


def test_a_topic_without_tables_is_empty_but_has_columns():
    assert select_sql(TopicTables("t", ())).endswith(
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS `headers` WHERE false"
    )


def test_quotes_in_names_stay_inside():
    text = select_sql(TopicTables("t", (PartitionTable(0, "/odd`folder", 0),)))
    assert "delta.`/odd``folder`" in text
    assert literal("it's \\n") == "'it\\'s \\\\n'"


@pytest.mark.parametrize(
    ("root", "place"),
    [
        ("file:///data/with%20space", "/data/with space/topics/t/0"),
        ("s3://bucket/prefix", "s3a://bucket/prefix/topics/t/0"),
        ("gs://bucket/", "gs://bucket/topics/t/0"),
    ],
)
def test_where_spark_finds_a_table(root: str, place: str):
    assert location(root, "topics/t/0") == place


def test_memory_is_out_of_reach():
    with pytest.raises(InvalidRequest, match="only the service itself can read memory://"):
        location("memory://", "topics/t/0")
