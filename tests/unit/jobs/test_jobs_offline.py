"""Each job on a root that nobody serves: what it plans, what it does, and that a second run finds nothing to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.jobs.cluster import OfflineCluster, StoredCluster, open_cluster
from sluice.jobs.merge_plan import TAG
from sluice.jobs.work import DONE, FAILED, NOTHING
from sluice.log_store.clock import WallGuard
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import (
    InvalidRequest,
    NotLeader,
    PlanRefused,
    ResourceNotFound,
    SluiceError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sluice.log_store.job_reports import last_report, newest_reports
from sluice.log_store.pending import Acks
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.store import open_store
from tests.support.jobs import planned, ran
from tests.support.logs import Cluster, append, append_one_by_one, batch, folder_cluster, rows, timed, values

HOUR = 3_600_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_path / "root") as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def filled(cluster: Cluster, hours: int = 6) -> None:
    """A segment an hour up to now, then nobody serves the root any more."""
    log, now = cluster.open(), cluster.clock.wall_ms()
    log.create_topic("t", partitions=2, configs={"segment.ms": HOUR - 1, "retention.ms": 3 * HOUR})
    for hour in range(hours):
        append(log, "t", 0, timed(now - (hours - 1 - hour) * HOUR))
    append(log, "t", 1, batch("fresh", ms=now))
    log.close()


def reopened(cluster: Cluster) -> LogStore:
    return cluster.open()


def test_retention_plans_with_a_reason_acts_and_has_nothing_left_to_do(cluster: Cluster, root: Path) -> None:
    filled(cluster)
    lines = planned("retention", root, clock=cluster.clock)
    assert [line["reason"] for line in lines] == [
        "segment 0..0, retention.ms: newest record 18000000 ms old, over 10800000",
        "segment 1..1, retention.ms: newest record 14400000 ms old, over 10800000",
    ]
    assert {(line["topic"], line["partition"], line["records"]) for line in lines} == {("t", 0, 1)}
    assert not (root / "_sluice" / "jobs").exists()  # a dry run leaves nothing behind

    first = ran("retention", root, clock=cluster.clock).report
    second = ran("retention", root, clock=cluster.clock).report

    assert (first.outcome, first.mode, first.records, first.files_removed) == (DONE, "offline", 2, 2)
    assert second.outcome == NOTHING
    log = reopened(cluster)
    assert [offset for offset, _ in rows(log, "t")] == [2, 3, 4, 5]
    assert values(log, "t", 1) == [b"fresh"]
    log.close()


def test_the_reports_are_kept(cluster: Cluster, root: Path) -> None:
    filled(cluster)
    ran("retention", root, clock=cluster.clock)
    ran("retention", root, clock=cluster.clock)

    store = open_store(root)
    last = last_report(store, "retention")

    assert last is not None
    assert last["outcome"] == NOTHING
    assert {report["outcome"] for report in newest_reports(store, "retention", 50)} == {NOTHING, DONE}
    assert not (root / "_sluice/jobs/retention/running.json").exists()


def test_only_the_chosen_partitions(cluster: Cluster, root: Path) -> None:
    filled(cluster)
    assert planned("retention", root, "--topic", "t", "--partition", "1", clock=cluster.clock) == []
    with pytest.raises(ResourceNotFound, match="no topic matches nope"):
        planned("retention", root, "--topic", "nope")
    with pytest.raises(ResourceNotFound, match="no topic has partition 7"):
        planned("retention", root, "--partition", "7")


def test_a_live_leader_that_cannot_be_reached_refuses_and_is_named(cluster: Cluster, root: Path) -> None:
    """R-1: its claim names an address at which nothing listens."""
    log = cluster.open()
    with pytest.raises(NotLeader, match="holds the lock of this root"):
        ran("retention", root)
    log.close()


def test_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(ResourceNotFound, match="there is no folder"):
        ran("retention", tmp_path / "nope")
    assert not (tmp_path / "nope").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResourceNotFound, match="there is no cluster"):
        ran("retention", tmp_path / "empty")


def test_what_was_acknowledged_and_not_committed_is_replayed_first(tmp_path: Path) -> None:
    """R-2: an offline job between a crash and the restart."""
    root = tmp_path / "root"
    with folder_cluster(root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"))
        cluster.store.fail_before("put_if_absent", "*/_delta_log/*", times=None)
        append(log, "t", 0, batch("b"), acks=Acks.LEADER)
        log.close(drain=False)
        cluster.store.clear()

        assert ran("retention", root, settings=cluster.settings, clock=cluster.clock).report.mode == "offline"

        log = reopened(cluster)
        assert values(log, "t") == [b"a", b"b"]
        log.close()


def merged(cluster: Cluster, count: int = 12) -> None:
    log = cluster.open()
    log.create_topic("t", configs={"segment.bytes": 4_000, "file.delete.delay.ms": 60_000})
    append_one_by_one(log, "t", [f"value {n}" for n in range(count)])
    log.close()


def test_deep_merge_keeps_every_row_and_tags_what_it_wrote(cluster: Cluster, root: Path) -> None:
    merged(cluster)
    before = planned("merge", root)
    assert before
    assert "files of a closed segment fit into one" in before[0]["reason"]

    first = ran("merge", root, clock=cluster.clock).report
    second = ran("merge", root, clock=cluster.clock).report

    assert first.outcome == DONE
    assert first.files_removed > first.files_added > 0
    assert second.outcome == NOTHING
    log = reopened(cluster)
    led = log.partition("t", 0)
    closed = [file for file in led.shape().files if TAG in file.tags]
    assert {file.tags[TAG] for file in closed} == {"zstd-6"}
    assert values(log, "t") == [b"value %d" % n for n in range(12)]
    log.close()


def test_a_merge_that_comes_too_late_leaves_no_file(
    cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged(cluster)

    def moved(_self: object, ref: object, plan: Plan) -> int:
        assert plan.kind is PlanKind.MERGE
        raise PlanRefused("it moved on")

    monkeypatch.setattr(OfflineCluster, "apply_plan", moved)
    files = {path.name for path in (root / "topics/t/0").glob("*.parquet")}
    report = ran("merge", root, clock=cluster.clock).report

    assert report.refused == report.planned > 0
    assert {path.name for path in (root / "topics/t/0").glob("*.parquet")} == files


def test_vacuum_waits_for_the_delay_and_then_deletes(cluster: Cluster, root: Path) -> None:
    """I-9, R-6."""
    merged(cluster)
    report = ran("merge", root, clock=cluster.clock).report
    files = {path.name for path in (root / "topics/t/0").glob("*.parquet")}

    early = ran("vacuum", root, settings=cluster.settings, clock=cluster.clock)
    assert early.report.outcome == NOTHING
    assert f"note: {report.files_removed} files left the log too lately" in early.text

    cluster.clock.advance(cluster.settings.log.file_delete_delay_ms / 1000 + 1)
    assert len(planned("vacuum", root, settings=cluster.settings, clock=cluster.clock)) == report.files_removed
    late = ran("vacuum", root, settings=cluster.settings, clock=cluster.clock).report
    assert late.files_removed == report.files_removed
    left = {path.name for path in (root / "topics/t/0").glob("*.parquet")}
    assert len(left) == len(files) - report.files_removed
    log = reopened(cluster)
    assert values(log, "t") == [b"value %d" % n for n in range(12)]
    log.close()


def test_orphans_go_when_they_are_old_and_a_removed_file_is_not_taken_for_one(cluster: Cluster, root: Path) -> None:
    """R-6: also where a checkpoint has forgotten the removal, which the commits still tell."""
    merged(cluster)
    folder = root / "topics/t/0"
    now_s = cluster.clock.wall_ms() / 1000
    old, young = folder / f"{0:020d}-1-old.parquet", folder / f"{0:020d}-1-young.parquet"
    for path, age_s in ((old, 86_400 + 1), (young, 3_600)):
        path.write_bytes(b"never named")
        os.utime(path, (now_s - age_s, now_s - age_s))
    removed = ran("merge", root, clock=cluster.clock).report.files_removed
    for path in folder.glob("*.parquet"):
        if path not in (old, young):
            os.utime(path, (now_s - 2 * 86_400, now_s - 2 * 86_400))

    assert [line["subject"] for line in planned("orphans", root, clock=cluster.clock)] == [old.name]
    report = ran("orphans", root, clock=cluster.clock).report

    assert (report.files_removed, report.outcome) == (1, DONE)
    assert not old.exists()
    assert young.exists()
    assert removed > 0
    log = reopened(cluster)
    assert values(log, "t") == [b"value %d" % n for n in range(12)]
    log.close()


def test_one_partition_that_fails_does_not_keep_the_others(
    cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, now = cluster.open(), cluster.clock.wall_ms()
    log.create_topic("t", partitions=2, configs={"retention.ms": HOUR})
    for partition in (0, 1):
        append(log, "t", partition, timed(now - 2 * HOUR))
    log.close()
    apply = OfflineCluster.apply_plan

    def broken(self: OfflineCluster, ref: object, plan: Plan) -> int:
        if getattr(ref, "partition", None) == 0:
            raise InvalidRequest("not this one")
        return apply(self, ref, plan)  # type: ignore[arg-type]

    monkeypatch.setattr(OfflineCluster, "apply_plan", broken)
    report = ran("retention", root, clock=cluster.clock).report

    assert (report.outcome, report.done) == (FAILED, 1)
    assert report.error.startswith("t-0: not this one")


def test_a_plan_that_came_too_late_is_made_anew(cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(cluster)
    apply, refusals = OfflineCluster.apply_plan, []

    def late_at_first(self: OfflineCluster, ref: object, plan: Plan) -> int:
        if not refusals:
            refusals.append(plan.plan_id)
            raise PlanRefused("it moved on")
        assert plan.plan_id not in refusals
        return apply(self, ref, plan)  # type: ignore[arg-type]

    monkeypatch.setattr(OfflineCluster, "apply_plan", late_at_first)
    report = ran("retention", root, clock=cluster.clock).report

    assert (report.outcome, report.refused, report.done) == (DONE, 1, 1)


@pytest.mark.parametrize("job", ["retention", "merge"])
@pytest.mark.parametrize("gone", [UnknownTopicId, UnknownTopicOrPartition])
def test_a_topic_that_is_deleted_under_a_job_is_no_failure(
    cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch, job: str, gone: type[SluiceError]
) -> None:
    filled(cluster) if job == "retention" else merged(cluster)

    def deleted(_self: OfflineCluster, _ref: object, _plan: Plan) -> int:
        raise gone("topic 't' is another one")

    monkeypatch.setattr(OfflineCluster, "apply_plan", deleted)
    files = set((root / "topics/t/0").glob("*.parquet"))
    report = ran(job, root, clock=cluster.clock).report

    assert (report.outcome, report.done, report.error) == (DONE, 0, "")
    assert "t-0: topic 't' is another one; the next run goes on" in report.notes
    assert set((root / "topics/t/0").glob("*.parquet")) == files


def test_nothing_goes_by_age_when_the_clock_jumped(cluster: Cluster, root: Path) -> None:
    """R-13: a process that lives longer than the run has seen the jump."""
    filled(cluster)
    wall = WallGuard(cluster.clock)
    cluster.clock.jump(30 * 86_400)

    report = ran("retention", root, settings=cluster.settings, clock=cluster.clock, wall=wall).report

    assert report.outcome == NOTHING
    assert "R-13" in report.notes[0]


def test_the_catalog_itself_can_be_maintained(cluster: Cluster, root: Path) -> None:
    """`__cluster_metadata` is no topic that clients see, but jobs merge it all the same."""
    filled(cluster)
    with open_cluster(str(root), clock=cluster.clock, settings=cluster.settings) as opened:
        target = opened.targets(["__cluster_metadata"])[0]
        state = opened.load(target.ref)
        plan = Plan(plan_id="p", kind=PlanKind.RETENTION, reason="a test", base_version=state.version)
        assert opened.apply_plan(target.ref, plan) == state.version + 1  # it was claimed before it was read


def test_read_only_changes_nothing(cluster: Cluster, root: Path) -> None:
    filled(cluster)
    opened = open_cluster(str(root), read_only=True)
    target = opened.targets(["t"])[0]
    assert type(opened) is StoredCluster
    with pytest.raises(InvalidRequest, match="reading only"):
        opened.apply_plan(target.ref, Plan(plan_id="p", kind=PlanKind.MERGE, reason="", base_version=0))
    with pytest.raises(InvalidRequest, match="reading only"):
        opened.sweep(target.ref, orphans=True)
    with pytest.raises(InvalidRequest, match="reading only"):
        opened.expire_offsets()


def test_json_is_the_whole_report(cluster: Cluster, root: Path) -> None:
    filled(cluster)
    shown = json.loads(ran("retention", root, "--json", clock=cluster.clock).text)
    assert shown["rows"][0]["log_start"] == 2
    assert shown["facts"] == {}
