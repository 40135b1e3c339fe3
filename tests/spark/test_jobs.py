"""Jobs that use Spark: the assignment table, and a deep merge by executors."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from sluice.jobs.assignment import TABLE
from sluice.jobs.work import DONE
from tests.support.jobs import ran
from tests.support.logs import append_one_by_one, folder_cluster, values
from tests.support.stored_groups import member, metadata, store_group


def test_the_assignment_goes_to_the_table_with_generation_and_strategy(spark: SparkSession, tmp_root: Path) -> None:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=3)
        store_group(log, "g", metadata(member("m1", ["t"], [("t", 0)]), member("m2", ["t"], []), generation=5))
        log.close()
    for strategy in ("range", "sticky"):
        report = ran("assignment", tmp_root, "--group", "g", "--strategy", strategy, spark=lambda: spark).report
        assert (report.outcome, report.records, report.facts["strategy"]) == (DONE, 3, strategy)

    table = spark.read.format("delta").load(str(tmp_root / TABLE))

    rows = {(r.strategy, r.generation, r.topic, r.partition): (r.member_id, r.moved) for r in table.collect()}
    assert len(rows) == 6
    assert rows["range", 5, "t", 0] == ("m1", False)
    assert {partition for (how, _, _, partition) in rows if how == "sticky"} == {0, 1, 2}
    assert table.select("run_id").distinct().count() == 2


def test_executors_rewrite_what_a_deep_merge_chose(spark: SparkSession, tmp_root: Path) -> None:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"segment.bytes": 4_000})
        append_one_by_one(log, "t", [f"value {n}" for n in range(15)])
        log.close()

        report = ran("merge", tmp_root, "--workers", "spark", spark=lambda: spark, clock=cluster.clock).report

        assert (report.outcome, report.done) == (DONE, report.planned)
        assert report.files_added < report.files_removed
        log = cluster.open()
        assert values(log, "t") == [b"value %d" % n for n in range(15)]
        stock = spark.read.format("delta").load(str(tmp_root / "topics/t/0"))
        assert stock.count() == 15
