"""Edges of storage: nothing that is needed is deleted, nothing unsynced is called synced, nobody waits for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.log_store import housekeeping, tail_cache
from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.errors import NotLeader, StorageError
from sluice.log_store.merger import merge_once
from sluice.log_store.partition import PartitionLog
from tests.support.logs import (
    LEADER,
    WAIT_S,
    Cluster,
    append,
    append_one_by_one,
    batch,
    commit_path,
    eventually,
    fetched,
    folder_cluster,
    folder_of,
    memory_cluster,
    rows,
    values,
)

DAY_S = 86_400


@pytest.fixture
def now() -> ManualClock:
    """The store gives files the time of the real clock: whoever looks at their age lives in the present."""
    return ManualClock(SystemClock().wall_ms())


@pytest.fixture
def synced(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, set[str]]]:
    """A folder with fsync, and every path that was synced in it."""
    with folder_cluster(tmp_root, fsync=True, wal={"sync_interval_ms": 60_000}) as cluster:
        paths: set[str] = set()
        real = cluster.store.inner.sync

        def sync(wanted: list[str]) -> None:
            real(wanted)
            paths.update(wanted)

        monkeypatch.setattr(cluster.store.inner, "sync", sync)
        yield cluster, paths


def test_a_fetch_from_many_cached_versions_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next offset is never beyond a row that was not returned, however many versions are cached."""
    monkeypatch.setattr(tail_cache, "MOST_TAILS", 4)
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abcdefghij")
        offset, found = 0, []
        while offset < 10:
            found += fetched(log, "t", offset)
            offset = log.reads("t", 0).fetch(offset).rows.next_offset

        assert found == rows(log, "t")


@pytest.mark.parametrize("knows", [False, True])
def test_a_leader_that_was_replaced_sweeps_nothing(now: ManualClock, knows: bool) -> None:
    """R-1, R-6: its successor's files look like orphans to it, whether or not it knows that it was replaced."""
    with memory_cluster(clock=now) as cluster:
        old = cluster.open()
        old.create_topic("t")
        append(old, "t", 0, batch("a"))
        new = cluster.open(force=True)
        append(new, "t", 0, batch("b"))
        if knows:
            old.runtime.leadership.fence("a test")
        cluster.clock.advance(2 * DAY_S)

        with pytest.raises(NotLeader):
            old.background.housekeeping.sweep(old.partition("t", 0))

        assert values(new, "t") == [b"a", b"b"]


def test_no_sync_point_passes_over_what_a_dead_process_left_unsynced(
    synced: tuple[Cluster, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I-6: killed between a merge's commit and its sync; the next process syncs that version before its own."""
    cluster, paths = synced
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", "abc")
    log.background.sync_all()
    partition = log.partition("t", 0)
    monkeypatch.setattr(partition.durability, "sync_now", lambda: None)
    assert merge_once(partition, partition.config, quiet=True)
    merge = commit_path(partition.ref.folder, partition.state.version)
    assert merge not in paths

    log = cluster.crash()
    append(log, "t", 0, batch("d"))
    log.background.sync_all()

    assert merge in paths


def test_a_fenced_process_calls_nothing_of_its_successor_synced(synced: tuple[Cluster, set[str]]) -> None:
    """I-6: it follows the log for its readers; its sync point stays at what it committed itself."""
    cluster, paths = synced
    old = cluster.open()
    old.create_topic("t")
    append(old, "t", 0, batch("a"))
    own = old.partition("t", 0).state.version
    new = cluster.open(force=True)
    append(new, "t", 0, batch("b"))
    old.runtime.leadership.fence("a test")
    assert values(old, "t") == [b"a", b"b"]

    old.background.sync_all()

    ref = old.partition("t", 0).ref
    assert commit_path(ref.folder, new.partition("t", 0).state.version) not in paths
    assert old.runtime.wal is not None
    assert old.runtime.wal._writer._ledger.points[ref.topic_id, 0][1].version == own


def test_nothing_is_swept_after_a_sync_failed(tmp_root: Path, now: ManualClock) -> None:
    """R-6: a merge that is not known to be on disk may be lost, and then its inputs are all there is."""
    with folder_cluster(tmp_root, fsync=True, clock=now) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        log.background.sync_all()
        partition = log.partition("t", 0)
        cluster.store.fail_before("sync", "*/t/0/_delta_log/*")
        with pytest.raises(StorageError):
            merge_once(partition, partition.config, quiet=True)
        assert len(partition.state.files) == 1
        cluster.clock.advance(3_600)

        assert log.background.housekeeping.sweep(partition).removed == ()

        log.close(drain=False)
        (tmp_root / commit_path(partition.ref.folder, partition.state.version)).write_bytes(b"")
        assert values(cluster.open(force=True), "t") == [b"a", b"b", b"c"]


def test_a_merge_in_doubt_is_finished_although_nothing_is_appended(now: ManualClock) -> None:
    """R-4: whoever closes an otherwise idle cluster must not wait for it."""
    with memory_cluster(clock=now) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        partition = log.partition("t", 0)
        cluster.store.fail_before("put_if_absent", "*/t/0/_delta_log/*")

        with pytest.raises(StorageError):
            merge_once(partition, partition.config, quiet=True)

        eventually(lambda: partition.idle)
        assert len(partition.state.files) == 1


def test_the_file_of_a_merge_in_doubt_is_no_orphan(now: ManualClock) -> None:
    """R-6: the version may stand already, or will, as soon as storage works again."""
    with memory_cluster(clock=now) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        partition = log.partition("t", 0)
        cluster.store.fail_before("put_if_absent", "*/t/0/_delta_log/*", times=None)
        with pytest.raises(StorageError):
            merge_once(partition, partition.config, quiet=True)
        cluster.clock.advance(2 * DAY_S)

        assert log.background.housekeeping.sweep(partition).orphans == ()

        cluster.store.clear()
        cluster.until(lambda: partition.idle, step=2)
        assert len(partition.state.files) == 1
        assert values(log, "t") == [b"a", b"b", b"c"]


def test_removed_files_are_deleted_also_where_nothing_is_merged(now: ManualClock) -> None:
    """R-6: deleted records and retention leave files behind too."""
    with memory_cluster(clock=now, merge_enable=False) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        log.delete_records("t", 0, -1)
        partition, watched = log.partition("t", 0), log.background.housekeeping._watched
        assert len(partition.known_files()[1]) == 3

        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        eventually(lambda: partition in watched and watched[partition].sweep_timer)
        cluster.tick(cluster.settings.log.file_delete_delay_ms / 1000)

        eventually(lambda: not list(cluster.store.list(partition.ref.folder)))


def test_partitions_that_wait_for_a_rested_merger_share_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets its turn, and none of them wakes all the others."""
    looked: list[PartitionLog] = []
    monkeypatch.setattr(housekeeping, "merge_once", lambda partition, _config, quiet: looked.append(partition))
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=20)
        keeper, scheduler = log.background.housekeeping, log.runtime.scheduler
        for number in range(20):
            append(log, "t", number, batch("x"))
        keeper._rest_until = cluster.clock.boottime() + 1.0
        real, timers = scheduler.after, []
        monkeypatch.setattr(scheduler, "after", lambda delay, work: (timers.append(delay), real(delay, work)))
        waiting = [log.partition("t", number) for number in range(20)]
        for partition in waiting:
            keeper._merge(partition, quiet=True)
        assert len(timers) == 1

        monkeypatch.setattr(scheduler, "after", real)
        cluster.tick(1.0)

        eventually(lambda: looked == waiting)


def test_a_merge_does_not_keep_producers_waiting_for_a_sync(tmp_root: Path) -> None:
    """I-7: while other partitions are synced, a merged one goes on committing."""
    with folder_cluster(tmp_root, fsync=True, wal={"sync_interval_ms": 60_000}) as cluster:
        log = cluster.open()
        for topic in "tu":
            log.create_topic(topic)
        append_one_by_one(log, "t", "abc")
        log.background.sync_all()
        append(log, "u", 0, batch("x"))
        partition = log.partition("t", 0)
        with cluster.store.gate("sync", "*/u/0/*") as gate:
            threads = [
                threading.Thread(target=log.background.sync_all),
                threading.Thread(target=merge_once, args=(partition, partition.config), kwargs={"quiet": True}),
            ]
            threads[0].start()
            gate.wait()
            threads[1].start()
            eventually(lambda: len(partition.state.files) == 1)

            assert log.append("t", 0, batch("d")).result(WAIT_S).base_offset == 3
        for thread in threads:
            thread.join(WAIT_S)


def test_while_storage_is_out_the_claim_is_looked_at_once_a_second(tmp_root: Path) -> None:
    """R-3: every look may take seconds, and the one thread of the WAL asks for each batch."""
    with memory_cluster(wal={"dir": str(tmp_root)}) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"), acks=LEADER)
        cluster.clock.advance(11)
        outage = cluster.store.fail_before("stat", "*claims*", times=None)

        for _ in range(5):
            with pytest.raises(StorageError):
                log.runtime.leadership.confirm(10)
        assert outage.hits == 1
        cluster.clock.advance(1)
        outage.cancel()
        log.runtime.leadership.confirm(10)


def test_a_bulk_sync_does_not_wait_behind_checkpoints(synced: tuple[Cluster, set[str]]) -> None:
    """Else the WAL fills up while many partitions write theirs."""
    cluster, paths = synced
    log = cluster.open()
    log.create_topic("t")
    go_on = threading.Event()
    for _ in range(2):
        log.background.submit(lambda: go_on.wait(WAIT_S) and None)
    append(log, "t", 0, batch("a"))
    newest = commit_path(folder_of(log, "t"), log.partition("t", 0).state.version)
    try:
        cluster.tick(log.background.sync_interval_s)
        eventually(lambda: newest in paths)
    finally:
        go_on.set()
