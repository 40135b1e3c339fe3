"""delete_records and the log start (R-11)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice.log_store.checkpoints import clean_log
from sluice.log_store.clock import ManualClock
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import OffsetOutOfRange, PolicyViolation
from sluice.log_store.partition import PartitionLog
from sluice.log_store.plans import Plan, PlanKind
from tests.support.logs import (
    Cluster,
    append,
    append_one_by_one,
    batch,
    commits,
    folder_cluster,
    memory_cluster,
    rewrite,
    rows,
    settled,
    stamp,
)

FOLDER = "topics/t/0"


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_root, clock=ManualClock(time.time_ns() // 1_000_000)) as made:
        yield made


def filled(cluster: Cluster, **configs: object) -> LogStore:
    """Offsets 0..8 in three files of three."""
    log = cluster.open()
    log.create_topic("t", configs=configs)
    for texts in ("abc", "def", "ghi"):
        append(log, "t", 0, batch(*texts))
    return log


def stock(cluster: Cluster) -> list[int]:
    """Offsets that a stock Delta reader sees."""
    return sorted(DeltaTable(f"{cluster.store.delta_uri}/{FOLDER}").to_pyarrow_table().column("offset").to_pylist())


def test_the_log_start_moves_at_once_and_whole_files_go(cluster: Cluster) -> None:
    """R-11: stock readers see the rows from the log start on, and at most those of one boundary file."""
    log = filled(cluster)
    assert log.delete_records("t", 0, 4) == 4
    assert [offset for offset, _ in rows(log, "t")] == [4, 5, 6, 7, 8]
    assert stock(cluster) == [3, 4, 5, 6, 7, 8]
    assert log.reads("t", 0).fetch(4).log_start == 4
    assert append(log, "t", 0, batch("j")).log_start == 4
    assert commits(cluster.store, FOLDER)[-1].txns["sluice.start"] == 4


def test_a_boundary_at_a_file_leaves_nothing_below(cluster: Cluster) -> None:
    """R-11."""
    log = filled(cluster)
    log.delete_records("t", 0, 6)
    assert stock(cluster) == [6, 7, 8]


def test_a_trim_rewrites_the_boundary_file(cluster: Cluster) -> None:
    """R-11: after the next merge the stock readers agree to the row."""
    log = filled(cluster)
    log.delete_records("t", 0, 4)
    boundary = log.partition("t", 0).state.files[0]
    log.apply_plan("t", 0, rewrite(log, "t", PlanKind.TRIM, [boundary], keep=lambda offset: offset >= 4))
    assert stock(cluster) == [4, 5, 6, 7, 8] == [offset for offset, _ in rows(log, "t")]


@pytest.mark.parametrize("between", ["merge", "retention"])
def test_a_plan_that_comes_between_is_no_reason_to_refuse(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """Who deletes records names an offset. Which files are live when, and where the log start is, is not his affair."""
    log, apply, began = filled(cluster), PartitionLog.apply_plan, list[str]()

    def late(partition: PartitionLog, plan: Plan) -> int:
        began.append(plan.plan_id)
        if len(began) == 1 and between == "merge":
            apply(partition, rewrite(log, "t", PlanKind.MERGE, partition.state.files[:2]))
        elif len(began) == 1:
            assert log.delete_records("t", 0, 6) == 6
        return apply(partition, plan)

    monkeypatch.setattr(PartitionLog, "apply_plan", late)
    start = log.delete_records("t", 0, 4)
    assert start == (4 if between == "merge" else 6)
    assert len(began) == 2
    assert [offset for offset, _ in rows(log, "t")] == list(range(start, 9))


def test_what_may_be_asked_for(cluster: Cluster) -> None:
    """Kafka's rule: -1 is the high watermark, above it or below -1 is out of range, below the start is no change."""
    log = filled(cluster)
    for wrong in (10, -2, 2**62):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records("t", 0, wrong)
    assert log.delete_records("t", 0, 0) == 0
    assert log.delete_records("t", 0, 5) == 5
    versions = len(commits(cluster.store, FOLDER))
    assert log.delete_records("t", 0, 3) == 5
    assert len(commits(cluster.store, FOLDER)) == versions
    assert log.delete_records("t", 0, -1) == 9
    assert rows(log, "t") == []


def test_what_is_not_committed_cannot_be_deleted() -> None:
    """Kafka's rule: o > HW."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "ab")
        with cluster.store.gate("put", f"{FOLDER}/*") as gate:
            waiting = log.append("t", 0, batch("c"))
            gate.wait()
            with pytest.raises(OffsetOutOfRange):
                log.delete_records("t", 0, 3)
        settled([waiting])
        assert log.delete_records("t", 0, 3) == 3


@pytest.mark.parametrize(("policy", "allowed"), [("compact", False), ("compact,delete", True), ("delete", True)])
def test_the_policy_must_allow_it(cluster: Cluster, policy: str, allowed: bool) -> None:
    """Kafka's rule: POLICY_VIOLATION without `delete`."""
    log = filled(cluster, **{"cleanup.policy": policy})
    if allowed:
        assert log.delete_records("t", 0, 1) == 1
        return
    with pytest.raises(PolicyViolation):
        log.delete_records("t", 0, 1)


def test_an_emptied_partition_remembers_where_it_was(cluster: Cluster) -> None:
    """R-11, I-6: log start, log end and producer windows survive without a single row: reopen, checkpoint, clean-up."""
    log = filled(cluster)
    append(log, "t", 0, batch("j"), stamp=stamp(2, 0))
    assert log.delete_records("t", 0, -1) == 10
    assert stock(cluster) == []

    log = cluster.reopen()
    assert (log.partition("t", 0).log_start, log.partition("t", 0).high_watermark) == (10, 10)
    partition = log.partition("t", 0)
    partition.prepare()
    partition.checkpoint()
    append(log, "t", 0, batch("k"))
    log.delete_records("t", 0, -1)
    partition.checkpoint()
    cleaned = clean_log(cluster.store, FOLDER, older_than_ms=2**62, synced_version=2**62)
    assert cleaned.versions > 0

    log = cluster.reopen()
    assert (log.partition("t", 0).log_start, log.partition("t", 0).high_watermark) == (11, 11)
    assert append(log, "t", 0, batch("j"), stamp=stamp(2, 0)).base_offset == 9
    assert append(log, "t", 0, batch("l")).base_offset == 11
    assert rows(log, "t") == [(11, b"l")]
    with pytest.raises(OffsetOutOfRange):
        log.reads("t", 0).fetch(10)


def test_the_log_start_is_durable_when_it_is_answered(tmp_root: Path) -> None:
    """R-11: with fsync the version that moves it is synced before the answer."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = filled(cluster)
        log.delete_records("t", 0, 4)
        version = log.partition("t", 0).state.version
        wal = log.runtime.wal
        assert wal is not None
        log.close(drain=False)
        log = cluster.open()
        assert log.runtime.wal is not None
        points = log.runtime.wal.recovered.sync_points
        assert points[log.topic("t").topic_id, 0].version == version
