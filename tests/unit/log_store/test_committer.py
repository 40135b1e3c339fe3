"""Who may create a version, and what happens when somebody else does (I-2, I-3, R-1, R-3, R-4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.log_store.committer import NEWEST_KNOWN_S
from sluice.log_store.delta_log import commit_path
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import ForeignCommit, NotLeader, RequestTimedOut
from tests.support.logs import (
    WAIT_S,
    Cluster,
    actions,
    append,
    append_one_by_one,
    batch,
    commits,
    eventually,
    folder_cluster,
    foreign_commit,
    memory_cluster,
    rows,
    stamp,
    values,
)

FOLDER = "topics/t/0"
ADD = {"add": {"path": "f.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
REMOVE = {"remove": {"path": "f.parquet", "dataChange": True, "deletionTimestamp": 1}}
PROTOCOL = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}
METADATA = {"metaData": {"id": "x", "format": {"provider": "parquet"}, "schemaString": "{}", "configuration": {}}}
TXN = {"txn": {"appId": "somebody", "version": 3}}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as made:
        yield made


def opened(cluster: Cluster, texts: str = "ab") -> LogStore:
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", texts)
    return log


def test_every_commit_carries_the_txn_actions(cluster: Cluster) -> None:
    """I-3: epoch and log end offset, in creation, append, claim and plan alike."""
    log = opened(cluster)
    log = cluster.reopen()
    append(log, "t", 0, batch("c", "d"))
    log.delete_records("t", 0, 1)

    made = commits(cluster.store, FOLDER)
    assert [commit.details["kind"] for commit in made] == ["create", "append", "append", "claim", "append", "plan"]
    assert [commit.txns["sluice.epoch"] for commit in made] == [1, 1, 1, 2, 2, 2]
    assert [commit.txns["sluice.end"] for commit in made] == [0, 1, 2, 2, 4, 4]
    assert [commit.txns["sluice.start"] for commit in made] == [0, 0, 0, 0, 0, 1]
    assert all(commit.ours for commit in made)
    assert len({commit.commit_id for commit in made}) == len(made)


@pytest.mark.parametrize("action", [ADD, REMOVE, PROTOCOL, METADATA], ids=lambda action: next(iter(action)))
def test_a_foreign_commit_stops_produce(cluster: Cluster, action: dict[str, object]) -> None:
    """I-3: by hand, right where the next version goes. Reads of what is ours go on."""
    log = opened(cluster)
    foreign_commit(cluster.store, FOLDER, 3, action)
    with pytest.raises(RequestTimedOut, match="other-engine"):
        append(log, "t", 0, batch("c"))
    with pytest.raises(ForeignCommit, match="only Sluice may write"):
        append(log, "t", 0, batch("d"))

    assert rows(log, "t") == [(0, b"a"), (1, b"b")]
    assert any("version 3" in trouble for trouble in log.troubles())
    log = cluster.crash()
    with pytest.raises(ForeignCommit, match="version 3 was written by other-engine"):
        append(log, "t", 0, batch("e"))
    assert len(cluster.store.list(f"{FOLDER}/_delta_log")) == 4


def test_a_stopped_partition_does_not_hold_up_the_end(cluster: Cluster) -> None:
    """Nothing of it will ever be committed, so a close does not wait for it."""
    log = opened(cluster)
    foreign_commit(cluster.store, FOLDER, 3, ADD)
    with pytest.raises(RequestTimedOut):
        append(log, "t", 0, batch("c"))
    log.close()


def test_delta_rs_appends_are_detected(tmp_root: Path) -> None:
    """I-3: a real foreign writer."""
    with folder_cluster(tmp_root) as cluster:
        log = opened(cluster)
        table = DeltaTable(tmp_root / FOLDER).to_pyarrow_table()
        write_deltalake(tmp_root / FOLDER, table.slice(0, 1), mode="append")
        with pytest.raises(RequestTimedOut, match="delta-rs"):
            append(log, "t", 0, batch("c"))
        with pytest.raises(ForeignCommit, match="data files"):
            append(log, "t", 0, batch("d"))
        log = cluster.crash()
        assert rows(log, "t") == [(0, b"a"), (1, b"b")]
        with pytest.raises(ForeignCommit):
            append(log, "t", 0, batch("d"))


def test_delta_rs_changing_the_schema_is_detected(tmp_root: Path) -> None:
    """I-3: `metaData` of a real foreign writer."""
    with folder_cluster(tmp_root) as cluster:
        log = opened(cluster)
        widened = DeltaTable(tmp_root / FOLDER).to_pyarrow_table().slice(0, 1).append_column("x", pa.array([1]))
        write_deltalake(tmp_root / FOLDER, widened, mode="append", schema_mode="merge")
        with pytest.raises(RequestTimedOut, match="protocol or metaData"):
            append(log, "t", 0, batch("c"))


def test_a_foreign_commit_without_files_is_stepped_over(cluster: Cluster) -> None:
    """I-3: also two in a row, also at the claim of the next leader, also for a plan."""
    log = opened(cluster)
    foreign_commit(cluster.store, FOLDER, 3, TXN)
    foreign_commit(cluster.store, FOLDER, 4)
    assert append(log, "t", 0, batch("c")).base_offset == 2
    assert append(log, "t", 0, batch("d")).base_offset == 3
    log.close()
    foreign_commit(cluster.store, FOLDER, 7, TXN)
    log = cluster.open()
    assert append(log, "t", 0, batch("e")).base_offset == 4
    assert values(log, "t") == [b"a", b"b", b"c", b"d", b"e"]
    assert [commit.ours for commit in commits(cluster.store, FOLDER)] == [1, 1, 1, 0, 0, 1, 1, 0, 1, 1]


def test_a_lost_answer_is_no_second_append(cluster: Cluster) -> None:
    """I-2, R-4: the put was applied, its answer lost; the read-back finds our id."""
    log = opened(cluster)
    cluster.store.fail_after("put_if_absent", f"{FOLDER}/*")
    assert append(log, "t", 0, batch("c")).base_offset == 2
    assert values(log, "t") == [b"a", b"b", b"c"]


def test_doubt_is_retried_with_identical_bytes(cluster: Cluster) -> None:
    """R-4: nothing else is put at or above the version until a winner shows."""
    log = opened(cluster)
    path, seen = commit_path(FOLDER, 3), []
    inner_put = cluster.store.inner.put_if_absent

    def spy(where: str, data: bytes, *, sync: bool = False) -> None:
        if where.startswith(f"{FOLDER}/_delta_log"):
            seen.append((where, bytes(data)))
        inner_put(where, data, sync=sync)

    cluster.store.inner.put_if_absent = spy  # type: ignore[method-assign]
    cluster.store.fail_after("put_if_absent", path)
    cluster.store.fail_before("get", path, times=3)
    cluster.store.fail_before("put_if_absent", path, times=2)
    with cluster.store.gate("put", f"{FOLDER}/*") as gate:
        first = log.append("t", 0, batch("c"))
        gate.wait()
        second = log.append("t", 0, batch("d"))
    cluster.settled(first, second, step=0.1)

    assert (first.result().base_offset, second.result().base_offset) == (2, 3)
    tries = [data for where, data in seen if where == path]
    assert len(tries) >= 2
    assert len(set(tries)) == 1
    assert [where for where, _ in seen].index(commit_path(FOLDER, 4)) == len(tries)
    assert rows(log, "t") == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_a_read_that_refreshes_while_a_version_is_in_doubt(cluster: Cluster) -> None:
    """R-4, I-9: the leader's own version is taken over once, by the leader."""
    log = opened(cluster)
    path = commit_path(FOLDER, 3)
    cluster.store.fail_after("put_if_absent", path)
    blind = cluster.store.fail_before("get", path, times=1)
    future = log.append("t", 0, batch("c"))
    eventually(lambda: blind.hits)
    log.partition("t", 0).refresh()
    cluster.settled(future, step=0.1)

    assert future.result(WAIT_S).base_offset == 2
    assert append(log, "t", 0, batch("d")).base_offset == 3
    assert values(log, "t") == [b"a", b"b", b"c", b"d"]


# --- two leaders -------------------------------------------------------------------------------


def test_a_higher_epoch_stops_the_old_leader(cluster: Cluster) -> None:
    """I-3, R-1: fenced at its next write; its reads go on and see the new leader's rows."""
    old = opened(cluster)
    new = cluster.open(force=True)
    append(new, "t", 0, batch("c"))
    with pytest.raises(NotLeader):
        append(old, "t", 0, batch("x"))
    with pytest.raises(NotLeader):
        append(old, "t", 0, batch("y"))

    assert old.fenced
    assert values(old, "t") == values(new, "t") == [b"a", b"b", b"c"]
    assert [c.details["epoch"] for c in commits(cluster.store, FOLDER)] == [1, 1, 1, 2, 2]


def test_what_a_zombie_committed_before_the_claim_is_known_to_the_new_leader(cluster: Cluster) -> None:
    """R-1, I-6: also its producers: the retry of a batch that the old leader committed is a repeat."""
    old = opened(cluster)
    append(old, "t", 0, batch("c"), stamp=stamp(2, 0))
    new = cluster.open(force=True)
    assert values(new, "t") == [b"a", b"b", b"c"]
    append(old, "t", 0, batch("d"), stamp=stamp(2, 1))

    again = append(new, "t", 0, batch("d"), stamp=stamp(2, 1))
    assert (again.base_offset, again.duplicate) == (3, True)
    assert append(new, "t", 0, batch("e"), stamp=stamp(2, 2)).base_offset == 4
    assert values(new, "t") == [b"a", b"b", b"c", b"d", b"e"]


def test_a_claim_commit_shuts_the_door(cluster: Cluster) -> None:
    """R-1: the old leader loses the version to the claim, whatever it believes about the cluster."""
    old = opened(cluster)
    new = cluster.open(force=True)
    new.partition("t", 0).prepare()
    future = old.append("t", 0, batch("x"))
    with pytest.raises(NotLeader):
        future.result(WAIT_S)
    assert old.fenced


# --- frozen leaders -----------------------------------------------------------------------


def hint(cluster: Cluster, version: int) -> None:
    cluster.store.replace(f"{FOLDER}/_delta_log/_last_checkpoint", msgspec.json.encode({"version": version}))


def test_before_a_late_put_the_predecessor_is_looked_at(cluster: Cluster) -> None:
    """R-3: after 10 s without a commit the leader looks whether v-1 is there, and at the hint."""
    log = opened(cluster)
    stats = lambda: [path for what, path in cluster.store.calls if what == "stat" and FOLDER in path]  # noqa: E731
    append(log, "t", 0, batch("c"))
    assert stats() == []
    cluster.clock.advance(NEWEST_KNOWN_S + 1)
    append(log, "t", 0, batch("d"))
    assert stats() == [commit_path(FOLDER, 3)]


@pytest.mark.parametrize("how", ["cleaned", "checkpointed"])
def test_a_frozen_leader_puts_nothing_below_a_cleaned_log(cluster: Cluster, how: str) -> None:
    """R-3: woken after a long time, it finds its predecessor gone or a newer checkpoint, and is fenced."""
    log = opened(cluster)
    cluster.clock.advance(NEWEST_KNOWN_S + 1)
    if how == "cleaned":
        cluster.store.delete(commit_path(FOLDER, 2))
    else:
        hint(cluster, 3)
    with pytest.raises(NotLeader):
        append(log, "t", 0, batch("x"))

    assert log.fenced
    assert [item.name for item in cluster.store.list(f"{FOLDER}/_delta_log") if "03.json" in item.name] == []


def test_a_leader_frozen_inside_the_put_acknowledges_nothing(cluster: Cluster) -> None:
    """R-3: stopped between check and put; the put succeeds below a cleaned log, and is void."""
    log = opened(cluster)
    with cluster.store.gate("put_if_absent", commit_path(FOLDER, 3)) as gate:
        future = log.append("t", 0, batch("x"))
        gate.wait()
        cluster.clock.advance(NEWEST_KNOWN_S + 1)
        hint(cluster, 300)
    with pytest.raises(NotLeader):
        future.result(WAIT_S)

    assert log.fenced
    assert log.partition("t", 0).state.end == 2


def test_a_leader_frozen_inside_the_put_sees_the_new_claim(cluster: Cluster) -> None:
    """R-3: after the put, before any answer, the claims are looked at once more."""
    log = opened(cluster)
    with cluster.store.gate("put_if_absent", commit_path(FOLDER, 3), when="after") as gate:
        future = log.append("t", 0, batch("x"))
        gate.wait()
        cluster.clock.advance(2)
        cluster.open(force=True)
    with pytest.raises(NotLeader):
        future.result(WAIT_S)
    assert log.fenced


def test_a_slow_put_without_a_rival_stands(cluster: Cluster) -> None:
    """R-3: slow storage alone fences nobody: no claim, no checkpoint, the version is the newest."""
    log = opened(cluster)
    with cluster.store.gate("put_if_absent", commit_path(FOLDER, 3)) as gate:
        future = log.append("t", 0, batch("c"))
        gate.wait()
        cluster.clock.advance(NEWEST_KNOWN_S + 1)
    assert future.result(WAIT_S).base_offset == 2
    assert not log.fenced


def test_a_freeze_while_the_partition_is_being_opened_counts(cluster: Cluster) -> None:
    """R-3: what is known about the newest version is as old as the beginning of the look, not as its end."""
    opened(cluster)
    log = cluster.reopen()
    # Version 3 is not there: this is the look that finds 2 to be the newest.
    cluster.store.on("get", lambda _: cluster.clock.advance(NEWEST_KNOWN_S + 1), commit_path(FOLDER, 3))
    append(log, "t", 0, batch("c"))
    assert ("stat", commit_path(FOLDER, 2)) in cluster.store.calls


def test_versions_3_and_4_are_actions_of_ours(cluster: Cluster) -> None:
    """I-2: exactly last version + 1, each with one commitInfo first."""
    opened(cluster, "abcd")
    for version in range(5):
        assert next(iter(actions(cluster.store, FOLDER, version)[0])) == "commitInfo"
