"""A mirror by Structured Streaming: killed and run again it adds every row once, with offsets, times and gaps."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.conf.settings import Settings
from sluice.jobs import mirror as mirror_job
from sluice.jobs.framework import run_job
from sluice.jobs.mirror import Mirror, MirrorRun
from sluice.jobs.output import Output
from sluice.jobs.verify_run import Scope, Verification
from sluice.jobs.verify_workers import LocalWorkers
from sluice.jobs.work import Report
from sluice.log_store.records import make_batch
from sluice.log_store.store import open_store
from sluice.log_store.topic import AlterOp, ConfigChange
from tests.support import damage
from tests.support.logs import eventually
from tests.support.server import running
from tests.support.stock_readers import our_rows


class Killed(Exception):
    pass


def mirror(
    spark: SparkSession, source: Path, copy: Path, *, stopping: Callable[[], bool] | None = None, **changes: Any
) -> Report:
    options: dict[str, Any] = {
        "root": str(copy), "server": None, "token": None, "ca_file": None, "dry_run": False, "topic": [],
        "partition": [], "source": str(source), "source_config": None, "continuous": False, "max_records": None,
    }  # fmt: skip
    given = argparse.Namespace(**(options | changes))
    return run_job(Mirror(), given, Settings(), output=Output(as_json=True), spark=lambda: spark, stopping=stopping)


def test_a_mirror_without_end_follows_rows_topics_and_log_starts_into_a_served_cluster(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Records, a topic that is new, partitions that are added, a log start that moves while no rows come."""
    monkeypatch.setattr(mirror_job, "LOOK_S", 0.5)
    source, copy = tmp_path / "source", tmp_path / "copy"
    stop, reports = threading.Event(), list[Report]()
    with damage.open_root(source) as log, running(copy) as server:

        def ends(topic: str, partition: int = 0) -> tuple[int, int]:
            found = server.client.get(f"/topics/{topic}/partitions/{partition}/offsets").json()
            return found.get("beginning_offset", -1), found.get("end_offset", -1)

        def reaches(start: int, end: int, topic: str, partition: int = 0) -> None:
            def there() -> bool:
                assert not reports, reports[0].error
                return ends(topic, partition) == (start, end)

            eventually(there, timeout=180)

        log.create_topic("t")
        damage.append(log, "t", damage.numbered(0, 20))
        options = {"continuous": True, "stopping": stop.is_set}
        thread = threading.Thread(target=lambda: reports.append(mirror(spark, source, copy, **options)))
        thread.start()
        try:
            reaches(0, 20, "t")
            damage.append(log, "t", damage.numbered(20, 30))
            reaches(0, 50, "t")
            log.delete_records("t", 0, 35)
            reaches(35, 50, "t")
            log.create_topic("later")
            log.grow_topic("t", 2)
            damage.append(log, "later", damage.numbered(0, 5))
            damage.append(log, "t", damage.numbered(0, 7), partition=1)
            reaches(0, 5, "later")
            reaches(0, 7, "t", 1)
            refused = server.client.post("/topics/t", json={"records": [{"value": 1}]})
            assert (refused.status_code, refused.json()["error"]) == (400, "POLICY_VIOLATION"), refused.text
        finally:
            stop.set()
            thread.join()
        assert (reports[0].outcome, reports[0].mode, reports[0].records) == ("stopped", "online", 62), reports[0].error
        assert server.terminate() == 0
        expected = {where: our_rows(log, *where) for where in (("t", 0), ("t", 1), ("later", 0))}
    assert {where: rows_of(copy, *where) for where in expected} == expected
    store = open_store(copy, fsync=False)
    verdict = Verification(store, LocalWorkers(store, threads=1), Scope()).run()
    assert [str(one) for one in verdict.violations] == []


def rows_of(root: Path, topic: str, partition: int = 0) -> list[Any]:
    with damage.open_root(root) as log:
        return our_rows(log, topic, partition)


def test_partitions_that_come_while_a_mirror_runs_are_copied_as_well(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, copy = tmp_path / "source", tmp_path / "copy"
    damage.open_root(copy).close()
    real = MirrorRun._copy
    with damage.open_root(source) as log:
        log.create_topic("t")
        damage.append(log, "t", damage.numbered(0, 20))

        def grown(self: MirrorRun, rows: DataFrame) -> None:
            if log.topic("t").partitions == 1:
                log.grow_topic("t", 2)
                damage.append(log, "t", damage.numbered(0, 7), partition=1)
            real(self, rows)

        monkeypatch.setattr(MirrorRun, "_copy", grown)
        report = mirror(spark, source, copy)
        assert (report.outcome, report.records) == ("done", 27), report.error
        expected = {number: our_rows(log, "t", number) for number in range(2)}
    assert {number: rows_of(copy, "t", number) for number in range(2)} == expected


def test_a_mirror_that_is_killed_and_run_again_copies_every_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, copy = tmp_path / "source", tmp_path / "copy"
    damage.healthy_root(source)
    with damage.open_root(source) as log:
        log.create_topic("u", partitions=2)
        awkward = [
            {"key": None, "value": None, "timestamp": 0},
            {"key": b"", "value": b"", "headers": []},
            {"value": b"v", "headers": [("a", b"1"), ("a", None)]},
        ]
        damage.append(log, "u", make_batch(awkward, default_ms=damage.MS), partition=1)
        log.delete_records("t", 0, 10)
    damage.open_root(copy).close()

    # Killed between the commits of two partitions of one batch.
    commit, left = MirrorRun._commit, [2]

    def killed(self: MirrorRun, *arguments: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        commit(self, *arguments)

    monkeypatch.setattr(MirrorRun, "_commit", killed)
    report = mirror(spark, source, copy)
    assert report.outcome == "failed"
    assert report.done == 2
    monkeypatch.undo()
    report = mirror(spark, source, copy)
    assert report.outcome == "done", report.error
    for topic, partition in (("t", 0), ("c", 0), ("u", 0), ("u", 1)):
        assert rows_of(copy, topic, partition) == rows_of(source, topic, partition), (topic, partition)

    with damage.open_root(source) as log:
        damage.append(log, "t", damage.numbered(64, 100))
        log.delete_records("t", 0, 30)
        log.delete_records("u", 1, -1)
    report = mirror(spark, source, copy, topic=["t", "u"], max_records=30)
    assert (report.outcome, report.records) == ("done", 100), report.error
    assert mirror(spark, source, copy).records == 0, "nothing is left"
    with damage.open_root(copy) as log:
        assert [row.offset for row in our_rows(log, "t")] == list(range(30, 164))
        assert (log.partition("u", 1).log_start, log.partition("u", 1).high_watermark) == (3, 3)
        log.alter_topic("t", [ConfigChange("mirror.source", op=AlterOp.DELETE)])
        assert log.append("t", 0, damage.numbered(0, 1)).result(timeout=30).base_offset == 164
    store = open_store(copy, fsync=False)
    verdict = Verification(store, LocalWorkers(store, threads=1), Scope()).run()
    assert [str(one) for one in verdict.violations] == []
    refused = mirror(spark, source, copy, topic=["t"])
    assert refused.outcome == "failed"
    assert "has no mirror.source" in refused.error
