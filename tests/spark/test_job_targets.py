"""What each target makes of a batch that Spark runs twice, with no service: the storage root is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.log_store.errors import InvalidConfig
from sluice.streaming import register
from sluice.streaming.spark.job_options import parse_options
from sluice.streaming.spark.job_rows import target_schema
from sluice.streaming.spark.job_run import start_query
from sluice.streaming.spark.job_stop import StopGate
from sluice.streaming.spark.schema import COLUMNS, HEADERS_COLUMN, spark_schema
from tests.support import job_functions
from tests.support.stock_readers import numbered, open_log, produce

RECORDS = 6
ENVELOPE = ["__topic", "__partition", "__offset", "__timestamp", "__key", "__headers"]


@pytest.fixture
def root(tmp_root: Path) -> Path:
    with open_log(tmp_root) as log:
        log.create_topic("t", partitions=1)
        produce(log, "t", [*numbered(0, RECORDS - 1), {"value": b"no JSON"}])
    return tmp_root


def _run_twice(spark: SparkSession, root: Path, checkpoint: Path, *arguments: str) -> None:
    """The second time Spark does not know that the batch was finished."""
    register(spark)
    base = ["--topics", "t", "--path", str(root), "--checkpoint", str(checkpoint), "--trigger", "availableNow"]
    options = parse_options([*base, "--starting-offsets", "earliest", *arguments], {})
    for _ in range(2):
        gate = StopGate()
        query = start_query(spark, options, str(checkpoint), gate)
        assert query.awaitTermination(120)
        assert (gate.last_batch, query.exception()) == (0, None)
        for file in (checkpoint / "commits").iterdir():
            file.unlink()


def test_a_batch_that_is_run_twice_is_in_delta_and_parquet_once(spark: SparkSession, root: Path, tmp_path: Path):
    table = tmp_path / "table"
    _run_twice(spark, root, tmp_path / "c1", "--to", f"delta:{table}", "--json-schema", "n INT")
    rows = spark.read.format("delta").load(str(table)).orderBy("__offset").collect()
    assert list(rows[0].asDict()) == [*ENVELOPE, "n", "_corrupt_record"]
    assert [(row["__offset"], row.n, row["_corrupt_record"]) for row in rows] == [
        *((n, n, None) for n in range(RECORDS - 1)),
        (RECORDS - 1, None, "no JSON"),
    ]

    folder = tmp_path / "files"
    _run_twice(spark, root, tmp_path / "c2", "--to", f"parquet:{folder}")
    stored = spark.read.parquet(str(folder))
    assert stored.columns == [*ENVELOPE, "value", "__batch"]
    assert sorted(row["__offset"] for row in stored.collect()) == list(range(RECORDS))


def test_a_function_is_told_the_number_of_the_batch_and_the_console_shows_text(
    spark: SparkSession, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    job_functions.CALLS.clear()
    _run_twice(spark, root, tmp_path / "c1", "--to", "tests.support.job_functions:remember")
    assert [(0, list(range(RECORDS)))] * 2 == job_functions.CALLS
    _run_twice(spark, root, tmp_path / "c2", "--to", "console")
    assert capsys.readouterr().out.count('{"n":3}') == 2


def test_the_columns_of_a_target_are_known_before_the_first_batch(spark: SparkSession):
    source, base = (
        spark_schema((*COLUMNS, HEADERS_COLUMN)),
        ["--topics", "t", "--server", "http://h:1", "--to", "console"],
    )
    for arguments, content in (
        ([], ["value"]),
        (["--json-schema", "id LONG, value STRING"], ["id", "value", "_corrupt_record"]),
        (["--json-schema", "id LONG", "--dead-letter", "d"], ["id"]),
    ):
        assert target_schema(source, parse_options([*base, *arguments], {})).names == ENVELOPE + content
    with pytest.raises(InvalidConfig, match="__offset would be there twice"):
        target_schema(source, parse_options([*base, "--json-schema", "__OFFSET LONG"], {}))
