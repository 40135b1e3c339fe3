"""A mirror by Structured Streaming: killed and run again it adds every row once, with offsets, times and gaps."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.conf.settings import Settings
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
from tests.support.stock_readers import our_rows


class Killed(Exception):
    pass


def mirror(spark: SparkSession, source: Path, copy: Path, **changes: Any) -> Report:
    options: dict[str, Any] = {
        "root": str(copy), "server": None, "token": None, "ca_file": None, "dry_run": False, "topic": [],
        "partition": [], "source": str(source), "source_config": None, "continuous": False, "max_records": None,
    }  # fmt: skip
    given = argparse.Namespace(**(options | changes))
    return run_job(Mirror(), given, Settings(), output=Output(as_json=True), spark=lambda: spark)


def rows_of(root: Path, topic: str, partition: int = 0) -> list[Any]:
    with damage.open_root(root) as log:
        return our_rows(log, topic, partition)


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
