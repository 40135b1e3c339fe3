"""Checkpoints and the clean-up behind them (R-5, R-6)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice.log_store.checkpoints import CleanUp, clean_log
from sluice.log_store.clock import ManualClock
from sluice.log_store.delta_log import commit_path
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import StorageError
from sluice.log_store.plans import PlanKind
from sluice.log_store.snapshot import checkpoint_path, last_checkpoint, load, state_path
from tests.support.logs import Cluster, append_one_by_one, eventually, folder_cluster, memory_cluster, values
from tests.support.stock_readers import delta_rs_rows, our_rows, rewrite

FOLDER = "topics/t/0"
ALL_OLD = 2**62


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    # Files carry real times, so the clock starts at the real one.
    with folder_cluster(tmp_root, clock=ManualClock(time.time_ns() // 1_000_000)) as made:
        yield made


def checkpointed(cluster: Cluster, times: int) -> tuple[LogStore, list[int]]:
    """So many checkpoints, two versions apart; an untrusted clock keeps the service from cleaning up by itself."""
    log = cluster.open()
    cluster.clock.jump(3600)
    log.create_topic("t")
    made = []
    for _ in range(times):
        append_one_by_one(log, "t", "ab")
        made.append(log.partition("t", 0).checkpoint())
    cluster.clock.jump(-3600)
    log.runtime.wall.confirm()
    return log, made


def numbers(cluster: Cluster, suffix: str) -> list[int]:
    return [int(i.name[:20]) for i in cluster.store.list(f"{FOLDER}/_delta_log") if i.name[20:] == suffix]


def states(cluster: Cluster) -> list[int]:
    return [int(item.name[6:26]) for item in cluster.store.list(f"{FOLDER}/_sluice")]


def test_snapshot_before_checkpoint_before_anything_goes(cluster: Cluster) -> None:
    """R-5, R-6: the order on disk."""
    log, _ = checkpointed(cluster, 1)
    append_one_by_one(log, "t", "c")
    cluster.store.calls.clear()
    version = log.partition("t", 0).checkpoint()
    order = [call for call in cluster.store.calls if call[0] != "get"]

    assert ("sync", commit_path(FOLDER, version)) in order
    state = order.index(("put_if_absent", state_path(FOLDER, version)))
    written = order.index(("replace", checkpoint_path(FOLDER, version)))
    reopened = order.index(("open_input", checkpoint_path(FOLDER, version)))
    hinted = order.index(("replace", f"{FOLDER}/_delta_log/_last_checkpoint"))
    assert state < written < reopened < hinted
    assert order.index(("sync", commit_path(FOLDER, version))) < state


def test_a_snapshot_that_cannot_be_written_stops_the_checkpoint(cluster: Cluster) -> None:
    """R-5: written durably before each Delta checkpoint."""
    log, made = checkpointed(cluster, 1)
    append_one_by_one(log, "t", "c")
    cluster.store.fail_before("put_if_absent", "*/_sluice/state-*")
    with pytest.raises(StorageError):
        log.partition("t", 0).checkpoint()

    assert numbers(cluster, ".checkpoint.parquet") == made
    assert log.partition("t", 0).checkpoint() == made[0] + 1


def test_a_checkpoint_written_twice(cluster: Cluster) -> None:
    """A crash between snapshot and checkpoint leaves a snapshot that is written again."""
    log, made = checkpointed(cluster, 1)
    assert log.partition("t", 0).checkpoint() == made[0]
    assert load(cluster.store, FOLDER).checkpoint == made[0]


def test_memory_has_no_checkpoints() -> None:
    """Stock Delta cannot follow there."""
    with memory_cluster(checkpoint_interval_versions=2) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abcdef")
        assert values(log, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_two_good_checkpoints_are_kept(cluster: Cluster) -> None:
    """R-6."""
    log, made = checkpointed(cluster, 4)
    newest = log.partition("t", 0).state.version
    clean_log(cluster.store, FOLDER, older_than_ms=ALL_OLD, synced_version=newest)

    assert numbers(cluster, ".checkpoint.parquet") == made[-2:]
    assert states(cluster) == made[-2:]
    assert numbers(cluster, ".json") == list(range(made[-2], newest + 1))
    assert load(cluster.store, FOLDER).checkpoint == made[-1]
    cluster.store.replace(state_path(FOLDER, made[-1]), b"")
    assert load(cluster.store, FOLDER).state.version == newest
    assert DeltaTable(f"{cluster.store.delta_uri}/{FOLDER}").version() == newest


def test_only_good_checkpoints_count(cluster: Cluster) -> None:
    """R-5, R-6: clean-up never passes what recovery would need if the newest pair were lost."""
    _, made = checkpointed(cluster, 3)
    middle = checkpoint_path(FOLDER, made[1])
    cluster.store.replace(middle, cluster.store.get(middle)[:-50])
    clean_log(cluster.store, FOLDER, older_than_ms=ALL_OLD, synced_version=ALL_OLD)
    cluster.store.replace(state_path(FOLDER, made[2]), b"")

    loaded = load(cluster.store, FOLDER)
    assert (loaded.checkpoint, loaded.state.version) == (made[0], made[2])


def test_one_checkpoint_is_not_enough_to_clean(cluster: Cluster) -> None:
    """R-6."""
    _, made = checkpointed(cluster, 1)
    assert clean_log(cluster.store, FOLDER, older_than_ms=ALL_OLD, synced_version=ALL_OLD) == CleanUp()
    assert numbers(cluster, ".json") == list(range(made[0] + 1))


def test_nothing_above_the_synced_version_goes(cluster: Cluster) -> None:
    """R-6: the WAL still refers to it, whatever its age."""
    _, made = checkpointed(cluster, 3)
    clean_log(cluster.store, FOLDER, older_than_ms=ALL_OLD, synced_version=1)

    assert numbers(cluster, ".json") == list(range(1, made[-1] + 1))
    assert numbers(cluster, ".checkpoint.parquet") == made


def test_young_versions_stay(cluster: Cluster) -> None:
    """R-3, R-6: JSON retention."""
    _, made = checkpointed(cluster, 3)
    clean_log(cluster.store, FOLDER, older_than_ms=0, synced_version=ALL_OLD)
    assert numbers(cluster, ".json") == list(range(made[-1] + 1))


def test_the_service_cleans_after_the_retention_time(cluster: Cluster) -> None:
    """R-3: six hours by default; R-6: behind two checkpoints."""
    log, _ = checkpointed(cluster, 2)
    cluster.clock.advance(5 * 3600)
    append_one_by_one(log, "t", "x")
    log.partition("t", 0).checkpoint()
    assert numbers(cluster, ".json")[0] == 0
    cluster.clock.advance(2 * 3600)
    append_one_by_one(log, "t", "y")
    log.partition("t", 0).checkpoint()

    kept = numbers(cluster, ".checkpoint.parquet")
    assert len(kept) == 2
    assert numbers(cluster, ".json")[0] == kept[0]
    log = cluster.reopen()
    assert len(values(log, "t")) == 6


def test_nothing_is_cleaned_while_wall_time_is_not_trusted(cluster: Cluster) -> None:
    """R-13: a jump of the wall clock deletes nothing."""
    log, _ = checkpointed(cluster, 2)
    cluster.clock.jump(24 * 3600)
    append_one_by_one(log, "t", "x")
    log.partition("t", 0).checkpoint()
    assert numbers(cluster, ".json")[0] == 0
    log.runtime.wall.confirm()
    append_one_by_one(log, "t", "y")
    log.partition("t", 0).checkpoint()
    assert numbers(cluster, ".json")[0] > 0


def test_checkpoints_come_by_themselves(tmp_root: Path) -> None:
    """Every so many versions, off the ack path; a failed one is tried again."""
    with folder_cluster(tmp_root, checkpoint_interval_versions=5) as cluster:
        log = cluster.open()
        log.create_topic("t")
        cluster.store.fail_before("put_if_absent", "topics/t/0/_sluice/*")
        append_one_by_one(log, "t", "abcdef")
        eventually(lambda: not log.partition("t", 0).durability._checkpointing)
        append_one_by_one(log, "t", "g")
        eventually(lambda: last_checkpoint(cluster.store, FOLDER) >= 5)
        append_one_by_one(log, "t", "hijklm")
        eventually(lambda: last_checkpoint(cluster.store, FOLDER) >= 10)
        log = cluster.reopen()
        assert b"".join(values(log, "t")) == b"abcdefghijklm"  # type: ignore[arg-type]


def test_a_checkpoint_counts_only_once_it_was_read_back(cluster: Cluster) -> None:
    """R-6: nobody is pointed to one that cannot be read."""
    log, made = checkpointed(cluster, 1)
    append_one_by_one(log, "t", "c")
    cluster.store.fail_before("open_input", "*.checkpoint.parquet")
    with pytest.raises(StorageError):
        log.partition("t", 0).checkpoint()
    assert last_checkpoint(cluster.store, FOLDER) == made[0]


def test_a_damaged_checkpoint_does_not_hinder_the_next(cluster: Cluster) -> None:
    """I-6, I-11: it is written from what the leader knows, not from its predecessor."""
    log, made = checkpointed(cluster, 2)
    path = checkpoint_path(FOLDER, made[1])
    cluster.store.replace(path, cluster.store.get(path)[:-100])
    log = cluster.reopen()
    append_one_by_one(log, "t", "x")
    version = log.partition("t", 0).checkpoint()

    assert delta_rs_rows(f"{cluster.store.delta_uri}/{FOLDER}") == our_rows(log, "t", 0)
    assert load(cluster.store, FOLDER).checkpoint == version
    clean_log(cluster.store, FOLDER, older_than_ms=ALL_OLD, synced_version=ALL_OLD)
    assert made[0] in numbers(cluster, ".checkpoint.parquet"), "clean-up never passes the second good one"


def test_tombstones_of_files_that_are_gone_are_forgotten(cluster: Cluster) -> None:
    """They are for those who look for files to delete: a busy partition removes a thousand times what it keeps."""
    log, _ = checkpointed(cluster, 1)
    partition = log.partition("t", 0)
    rewrite(log, "t", PlanKind.MERGE, 0, 1)
    version = partition.checkpoint()
    removed = partition.known_files()[1]
    assert removed
    assert load(cluster.store, FOLDER).state.removed == removed
    partition.files_deleted(list(removed))
    append_one_by_one(log, "t", "x")
    assert partition.checkpoint() > version
    assert load(cluster.store, FOLDER).state.removed == {}
    assert delta_rs_rows(f"{cluster.store.delta_uri}/{FOLDER}") == our_rows(log, "t", 0)


def test_a_checkpoint_repeats_the_metadata_of_version_0(cluster: Cluster) -> None:
    """I-5: also what another version of Sluice wrote there."""
    log, _ = checkpointed(cluster, 1)
    first = json.loads(cluster.store.get(commit_path(FOLDER, 0)).splitlines()[2])["metaData"]
    for _ in range(2):
        found = DeltaTable(f"{cluster.store.delta_uri}/{FOLDER}").metadata()
        assert (str(found.id), found.name, found.created_time) == (first["id"], first["name"], first["createdTime"])
        assert found.configuration == first["configuration"]
        log = cluster.reopen()  # from the checkpoint
        append_one_by_one(log, "t", "x")
        log.partition("t", 0).checkpoint()
        clean_log(cluster.store, FOLDER, older_than_ms=ALL_OLD, synced_version=ALL_OLD)
