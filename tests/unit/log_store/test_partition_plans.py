"""Plans applied for real: one plan, one commit, readers agree (I-8, R-6, R-7)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice.log_store.clock import ManualClock
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import NotLeader, PlanRefused
from sluice.log_store.plans import Plan, PlanKind
from tests.support.logs import (
    Cluster,
    actions,
    append,
    append_one_by_one,
    batch,
    commits,
    fetched,
    folder_cluster,
    other,
    plan,
    rewrite,
    rows,
)

FOLDER = "topics/t/0"


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_root, clock=ManualClock(time.time_ns() // 1_000_000)) as made:
        yield made


def filled(cluster: Cluster) -> LogStore:
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", "abcdef")
    return log


def merge(log: LogStore, first: int, last: int) -> Plan:
    return rewrite(log, "t", PlanKind.MERGE, log.partition("t", 0).state.files[first:last])


def agree(log: LogStore, cluster: Cluster, expected: list[tuple[int, bytes]]) -> None:
    """Ours, cached and not, and delta-rs (I-11) see exactly these rows."""
    assert rows(log, "t") == expected
    assert fetched(log, "t", expected[0][0]) == expected
    table = DeltaTable(f"{cluster.store.delta_uri}/{FOLDER}").to_pyarrow_table()
    assert sorted(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected


SIX = [(n, bytes([97 + n])) for n in range(6)]


def test_a_merge(cluster: Cluster) -> None:
    """I-8: handed to the leader, one commit, `dataChange` false so that streams of the table pass over it."""
    log = filled(cluster)
    made = len(commits(cluster.store, FOLDER))
    version = log.apply_plan("t", 0, merge(log, 0, 4))

    assert len(commits(cluster.store, FOLDER)) == made + 1 == version + 1
    parts = actions(cluster.store, FOLDER, version)
    assert [p["add"]["dataChange"] for p in parts if "add" in p] == [False]
    assert [p["remove"]["dataChange"] for p in parts if "remove" in p] == [False] * 4
    agree(log, cluster, SIX)
    assert len(log.partition("t", 0).state.files) == 3
    append(log, "t", 0, batch("g"))
    agree(cluster.reopen(), cluster, [*SIX, (6, b"g")])


def test_a_compaction(cluster: Cluster) -> None:
    """I-1, R-7: fewer rows, offsets unchanged, the log end too; tombstone horizons live in tags (R-5)."""
    log = filled(cluster)
    files = log.partition("t", 0).state.files[:4]
    wanted = rewrite(log, "t", PlanKind.COMPACT, files, keep=lambda offset: offset in (1, 3), first_dirty=4)
    wanted = Plan(
        plan_id=wanted.plan_id,
        kind=wanted.kind,
        reason=wanted.reason,
        base_version=wanted.base_version,
        removes=wanted.removes,
        adds=(other(wanted.adds[0], tags={"sluice.horizon": "99"}),),
        first_dirty=4,
    )
    version = log.apply_plan("t", 0, wanted)

    kept = [SIX[1], SIX[3], SIX[4], SIX[5]]
    assert rows(log, "t") == kept
    assert all(p["add"]["dataChange"] for p in actions(cluster.store, FOLDER, version) if "add" in p)
    log.partition("t", 0).checkpoint()
    log = cluster.reopen()
    state = log.partition("t", 0).state
    assert (state.first_dirty, state.last_cleaning, state.end) == (4, version, 6)
    assert state.files[0].tags == {"sluice.horizon": "99"}
    assert append(log, "t", 0, batch("g")).base_offset == 6
    assert rows(log, "t") == [*kept, (6, b"g")]


def test_retention(cluster: Cluster) -> None:
    """R-7: whole files below a new log start."""
    log = filled(cluster)
    files = log.partition("t", 0).state.files
    gone = tuple(file.path for file in files[:2])
    log.apply_plan("t", 0, plan(PlanKind.RETENTION, log.partition("t", 0).state.version, removes=gone, log_start=2))
    agree(log, cluster, SIX[2:])
    assert log.reads("t", 0).earliest().offset == 2


def test_a_trim(cluster: Cluster) -> None:
    """R-11."""
    log = cluster.open()
    log.create_topic("t")
    append(log, "t", 0, batch(*"abcdef"))
    log.delete_records("t", 0, 2)
    files = log.partition("t", 0).state.files
    log.apply_plan("t", 0, rewrite(log, "t", PlanKind.TRIM, files, keep=lambda offset: offset >= 2))
    agree(log, cluster, SIX[2:])


def test_a_repeat_is_harmless(cluster: Cluster) -> None:
    """R-7: the same id answers its version: at once, after more appends, after a restart, from a checkpoint."""
    log = filled(cluster)
    wanted = merge(log, 0, 4)
    version = log.apply_plan("t", 0, wanted)
    assert log.apply_plan("t", 0, wanted) == version
    append(log, "t", 0, batch("g"))
    assert log.apply_plan("t", 0, wanted) == version
    log = cluster.reopen()
    assert log.apply_plan("t", 0, wanted) == version
    log.partition("t", 0).checkpoint()
    log = cluster.crash()
    assert log.apply_plan("t", 0, wanted) == version
    assert rows(log, "t") == [*SIX, (6, b"g")]


def test_the_second_of_two_plans_over_the_same_files_is_refused(cluster: Cluster) -> None:
    """I-8, R-7: every removed file must still be live."""
    log = filled(cluster)
    first, second = merge(log, 0, 3), merge(log, 2, 5)
    log.apply_plan("t", 0, first)
    with pytest.raises(PlanRefused, match="not live any more"):
        log.apply_plan("t", 0, second)
    agree(log, cluster, SIX)


def test_an_append_in_between_does_no_harm(cluster: Cluster) -> None:
    """I-8: maintenance never races the appender."""
    log = filled(cluster)
    wanted = merge(log, 0, 6)
    append(log, "t", 0, batch("g"))
    log.apply_plan("t", 0, wanted)
    agree(log, cluster, [*SIX, (6, b"g")])


def test_added_files_are_looked_at(cluster: Cluster, tmp_root: Path) -> None:
    """R-6: there, of the right size, younger than half of `orphan.retention.ms`."""
    log = filled(cluster)
    wanted = merge(log, 0, 4)
    path = tmp_root / FOLDER / wanted.adds[0].path
    data = path.read_bytes()

    path.unlink()
    with pytest.raises(PlanRefused, match="not there"):
        log.apply_plan("t", 0, wanted)
    path.write_bytes(data + b"!")
    with pytest.raises(PlanRefused, match=rf"{len(data) + 1} bytes"):
        log.apply_plan("t", 0, wanted)
    path.write_bytes(data)
    old = time.time() - log.runtime.settings.orphan_retention_ms / 2000 - 60
    os.utime(path, (old, old))
    with pytest.raises(PlanRefused, match="too old"):
        log.apply_plan("t", 0, wanted)
    os.utime(path)
    log.apply_plan("t", 0, wanted)
    agree(log, cluster, SIX)


def test_merged_files_are_synced_before_their_inputs_are_removed(tmp_root: Path) -> None:
    """R-6: on a local root."""
    with folder_cluster(tmp_root, fsync=True, clock=ManualClock(time.time_ns() // 1_000_000)) as cluster:
        log = filled(cluster)
        wanted = merge(log, 0, 4)
        cluster.store.calls.clear()
        synced: list[str] = []
        inner = cluster.store.inner.sync
        cluster.store.inner.sync = lambda paths: (synced.extend(paths), inner(paths))[1]  # type: ignore[method-assign,func-returns-value]
        before: list[str] = []
        cluster.store.on("put_if_absent", lambda _: before.extend(synced), f"{FOLDER}/_delta_log/*")
        log.apply_plan("t", 0, wanted)
        assert f"{FOLDER}/{wanted.adds[0].path}" in before


def test_a_plan_in_doubt_is_settled_before_the_answer(cluster: Cluster) -> None:
    """R-4, R-7: a lost answer, then the repeat: one plan, one commit."""
    log = filled(cluster)
    wanted = merge(log, 0, 4)
    cluster.store.fail_after("put_if_absent", f"{FOLDER}/_delta_log/*")
    version = log.apply_plan("t", 0, wanted)
    assert log.apply_plan("t", 0, wanted) == version
    agree(log, cluster, SIX)


def test_a_fenced_leader_commits_no_plan(cluster: Cluster) -> None:
    """I-3, I-8."""
    log = filled(cluster)
    wanted = merge(log, 0, 4)
    log.runtime.leadership.fence("a test")
    with pytest.raises(NotLeader):
        log.apply_plan("t", 0, wanted)


def test_an_offline_job_claims_first(cluster: Cluster) -> None:
    """I-8, R-2: with no service running; its claim appends no rows."""
    filled(cluster).close()
    job = cluster.open(purpose="maintenance")
    version = job.apply_plan("t", 0, merge(job, 0, 6))
    made = commits(cluster.store, FOLDER)
    assert [c.details["kind"] for c in made[version - 1 :]] == ["claim", "plan"]
    assert {c.details["end"] for c in made[version - 1 :]} == {6}
    job.close()
    agree(cluster.open(), cluster, SIX)
