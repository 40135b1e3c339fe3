"""kill -9 of a maintenance job on Spark, driver and workers, at any point: verify accepts what is left, the next run
completes it, and the run after that has nothing to do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.jobs.work import DONE, NOTHING, Report
from sluice.log_store.engine import LogStore
from tests import counts
from tests.support import compaction_kills, job_kills
from tests.support.jobs import ran
from tests.support.spark_job_kills import data_files, run_and_kill, settings_of
from tests.support.stock_readers import Row, our_rows

MOST_WRITES, MOST_FILES = 30, 6
WITHIN_S = 300 + 240 * counts.SPARK_MAINTENANCE_KILLS


class Killed:
    """A job on a root, killed at points that a die chooses: at a write of the driver, or while workers write files."""

    def __init__(self, job: str, root: Path, *arguments: str, seed: int) -> None:
        self.job, self.root, self._arguments = job, root, arguments
        self._dice = random.Random(seed)
        self.kills = 0

    def kill_once(self) -> None:
        by_driver = self.kills % 2 == 1
        at = self._dice.randint(1, MOST_WRITES) if by_driver else 0
        files = data_files(self.root) + self._dice.randint(1, MOST_FILES)
        spec: dict[str, Any] = {
            "job": self.job,
            "root": str(self.root),
            "arguments": self._arguments,
            "work": str(self.root.parent / "work"),
            "at": at,
            "after": self._dice.random() < 0.5,
        }
        run_and_kill(spec, lambda: not by_driver and data_files(self.root) >= files)
        self.kills += 1
        verified(self.root)

    def run(self, spark: SparkSession) -> Report:
        return ran(self.job, self.root, *self._arguments, settings=settings_of(self.root), spark=lambda: spark).report

    def complete(self, spark: SparkSession) -> None:
        first, second = self.run(spark), self.run(spark)
        assert first.outcome in (DONE, NOTHING), first.error
        assert second.outcome in (DONE, NOTHING), second.error
        assert (second.records, second.files_added, second.files_removed) == (0, 0, 0), second
        verified(self.root)


def verified(root: Path) -> None:
    report = ran("verify", root, "--in-process", settings=settings_of(root)).report
    assert report.outcome == DONE, report.error


def log_of(root: Path) -> tuple[int, dict[int, Row]]:
    """Its end, and its rows by offset."""
    with LogStore.open(settings_of(root)) as log:
        if not log.topics():
            return 0, {}
        return log.partition("t", 0).high_watermark, {row.offset: row for row in our_rows(log, "t")}


def check_copy(source: Path, copy: Path) -> int:
    """Up to its end it has all that the source has, and nothing that never stood there: what the source's compaction
    took after it was copied is still in the copy."""
    (_, theirs), (end, ours) = log_of(source), log_of(copy)
    assert {offset: row for offset, row in theirs.items() if offset < end}.items() <= ours.items()
    assert all((row.key, row.value) == compaction_kills.record(offset) for offset, row in ours.items())
    return end


@pytest.mark.full
@pytest.mark.timeout(WITHIN_S)
def test_compaction_and_a_mirror_of_it(spark: SparkSession, tmp_path: Path) -> None:
    root, copy = tmp_path / "root", tmp_path / "copy"
    compaction = Killed("compaction", root, "--driver-max-bytes", "0", "--force", seed=1)
    mirror = Killed("mirror", copy, "--source", str(root), "--max-records", "40", seed=2)
    LogStore.open(settings_of(copy)).close()
    for _ in range(counts.SPARK_MAINTENANCE_KILLS):
        for _ in range(4):
            compaction_kills.append(str(root))
        compaction.kill_once()
        compaction_kills.check(str(root))
        mirror.kill_once()
        check_copy(root, copy)
    compaction.complete(spark)
    compaction_kills.check(str(root))
    mirror.complete(spark)
    assert check_copy(root, copy) == log_of(root)[0]


@pytest.mark.timeout(WITHIN_S)
def test_deep_merge(spark: SparkSession, tmp_path: Path) -> None:
    merge = Killed("merge", tmp_path / "root", "--workers", "spark", "--include-active", seed=3)
    for step in range(counts.SPARK_MAINTENANCE_KILLS):
        for _ in range(3):
            job_kills.append(str(merge.root), step * 3 + 1)
        merge.kill_once()
        job_kills.check(str(merge.root))
    merge.complete(spark)
    job_kills.check(str(merge.root))
