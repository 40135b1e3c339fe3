"""The compaction job without Spark: its plan, the driver's own work, and kill -9 before and after every write."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.clock import WallGuard
from sluice.log_store.records import make_batch
from tests import counts
from tests.support.jobs import planned, ran
from tests.support.logs import NOW_MS, Cluster, append, folder_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_path / "root", compaction_in_process_max_bytes=0) as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def fill(cluster: Cluster, *, dirty_ratio: float = 0.5) -> None:
    log = cluster.open()
    for topic, policy in (("keyed", "compact"), ("plain", "delete")):
        configs = {"cleanup.policy": policy, "segment.ms": 1_000, "min.cleanable.dirty.ratio": dirty_ratio}
        log.create_topic(topic, partitions=2, configs=configs)
    for second in range(4):
        for topic, partition in (("keyed", 0), ("plain", 0), *([("keyed", 1)] if second < 2 else [])):
            rows = [{"key": b"a", "value": b"%d" % second}, {"key": b"k%d" % second, "value": b"v"}]
            append(log, topic, partition, make_batch(rows, default_ms=NOW_MS + second * 10_000))
    log.close()


def offsets(cluster: Cluster, topic: str, partition: int) -> list[int]:
    log = cluster.open()
    found = [o for piece in log.reads(topic, partition).scan(readahead=0) for o in piece.column("offset").to_pylist()]
    log.close()
    return found


def test_the_plan_says_why_the_run_does_it_and_a_second_has_nothing_to_do(cluster: Cluster, root: Path) -> None:
    fill(cluster)
    lines = planned("compaction", root, clock=cluster.clock)
    wholes = [line for line in lines if line["action"] == "compact"]
    assert [(line["topic"], line["partition"], line["subject"]) for line in wholes] == [
        ("keyed", 0, "offsets 0..5"),
        ("keyed", 1, "offsets 0..1"),
    ]
    assert "100% of it is dirty" in wholes[0]["reason"]
    assert [line["action"] for line in lines[1:5]] == ["clean", "clean", "clean", "leave"]
    assert offsets(cluster, "keyed", 0) == list(range(8))

    first = ran("compaction", root, clock=cluster.clock).report
    second = ran("compaction", root, clock=cluster.clock).report

    assert (first.outcome, first.done, first.records) == (DONE, 2, 2)
    assert [(row["by"], row["clean_up_to"]) for row in first.rows] == [("driver", 6), ("driver", 2)]
    assert first.facts["driver_peak_mib"] > 0
    assert second.outcome == NOTHING
    assert "keyed-0: nothing new that may be cleaned" in second.notes
    assert offsets(cluster, "keyed", 0) == [1, 3, 4, 5, 6, 7]
    assert offsets(cluster, "plain", 0) == list(range(8))


def test_what_is_not_dirty_enough_is_cleaned_only_by_force(cluster: Cluster, root: Path) -> None:
    fill(cluster, dirty_ratio=1.0)
    report = ran("compaction", root, clock=cluster.clock).report
    assert report.outcome == NOTHING
    assert any("not more than min.cleanable.dirty.ratio = 100%" in note for note in report.notes)
    assert ran("compaction", root, "--force", "--topic", "keyed", clock=cluster.clock).report.records == 2


def test_nothing_is_cleaned_while_wall_time_is_not_to_be_trusted(cluster: Cluster, root: Path) -> None:
    fill(cluster)
    guard = WallGuard(cluster.clock)
    cluster.clock.jump(3_600)
    report = ran("compaction", root, clock=cluster.clock, wall=guard).report
    assert report.outcome == NOTHING
    assert any("R-13" in note for note in report.notes)


def test_kill_9_before_or_after_any_write_leaves_the_last_record_of_each_key(root: Path) -> None:
    spec = {"root": str(root), "seed": 1, "kills": counts.COMPACTION_KILLS}
    command = [sys.executable, "-m", "tests.support.compaction_kills", json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_000, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    killed = json.loads(done.stdout.splitlines()[-1])
    assert killed["killed"] >= counts.COMPACTION_KILLS // 3
    assert killed["cleaned"] >= 1
