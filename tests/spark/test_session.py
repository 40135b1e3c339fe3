from __future__ import annotations

import sys
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from sluice.conf import SparkSettings
from sluice.conf.spark import delta_jars


def test_a_delta_table_is_written_and_read(spark: SparkSession, tmp_root: Path):
    path = str(tmp_root / "table")
    spark.range(10).write.format("delta").save(path)
    spark.range(10, 15).write.format("delta").mode("append").save(path)
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == list(range(15))
    assert DeltaTable(path).version() == 1


def test_delta_statements_work_with_the_two_jars_alone(spark: SparkSession, tmp_root: Path):
    path = tmp_root / "table"
    spark.range(10).write.format("delta").save(str(path))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id < 5")
    assert spark.read.format("delta").load(str(path)).count() == 5
    assert len(spark.conf.get("spark.jars").split(",")) == 2


def test_workers_run_the_interpreter_of_the_tests(spark: SparkSession):
    interpreter = udf(lambda _: sys.executable)
    assert {row[0] for row in spark.range(4).select(interpreter("id")).collect()} == {sys.executable}


def test_times_are_utc(spark: SparkSession):
    assert spark.sql("SELECT current_timezone()").first()[0] == "UTC"


def test_the_jars_are_cached(spark: SparkSession, capsys):
    assert all(jar.is_file() for jar in delta_jars(SparkSettings()))
    assert capsys.readouterr().err == "", "a second look must not fetch anything"
