"""The front door: opening, leading, closing; what an idle partition costs (R-1, R-14)."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from sluice.log_store.cluster_file import CLUSTER_FILE
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import (
    CorruptCommit,
    CorruptData,
    NotLeader,
    RequestTimedOut,
    StorageError,
    UnsupportedFormat,
)
from sluice.log_store.wal import Wal
from tests import counts
from tests.support.logs import (
    LEADER,
    WAIT_S,
    append,
    append_one_by_one,
    batch,
    eventually,
    folder_cluster,
    memory_cluster,
    rows,
    small_settings,
    values,
)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_cluster_has_one_id() -> None:
    with memory_cluster() as cluster:
        first = cluster.open().cluster_id
        assert len(first) == 32
        assert cluster.reopen().cluster_id == first


def test_a_newer_cluster_is_refused() -> None:
    """R-14: before anything is claimed."""
    with memory_cluster() as cluster:
        cluster.open().close()
        claims = cluster.store.list("_sluice/claims")
        newer = msgspec.json.encode({"cluster_id": "x", "format": 2, "created_ms": 1})
        cluster.store.replace(CLUSTER_FILE, newer)
        with pytest.raises(UnsupportedFormat, match="format 2"):
            cluster.open()
        assert cluster.store.list("_sluice/claims") == claims


@pytest.mark.parametrize("content", [b"", b'{"cluster_id"', b"[]", b'{"cluster_id": 1, "format": 1}'])
def test_a_damaged_cluster_file_is_named(content: bytes) -> None:
    """As a crash leaves it without fsync: refused by name, before anything is claimed."""
    with memory_cluster() as cluster:
        cluster.open().close()
        claims = cluster.store.list("_sluice/claims")
        cluster.store.replace(CLUSTER_FILE, content)
        with pytest.raises(CorruptData, match=r"cluster\.json is damaged"):
            cluster.open()
        assert cluster.store.list("_sluice/claims") == claims


def test_two_services_on_one_folder(tmp_root: Path) -> None:
    """R-1: the second is told at once, and takes nothing with it."""
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        threads = threading.active_count()
        with pytest.raises(NotLeader):
            cluster.open()
        assert threading.active_count() == threads
        append_one_by_one(log, "t", "a")


def test_closing_commits_what_was_accepted() -> None:
    """A close in order loses nothing, not even acks=0."""
    with memory_cluster(commit_interval_ms=0) as cluster:
        log = cluster.open()
        log.create_topic("t")
        for text in "abc":
            append(log, "t", 0, batch(text), acks=0)
        log = cluster.reopen()
        assert values(log, "t") == [b"a", b"b", b"c"]
        log.close()
        log.close()
        with pytest.raises((NotLeader, RequestTimedOut)):
            append(log, "t", 0, batch("x"))


def test_closing_leaves_no_thread_and_no_file(tmp_root: Path) -> None:
    threads, files = threading.active_count(), open_files()
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        rows(log, "t")
        log.close()
        eventually(lambda: threading.active_count() <= threads)
    del cluster, log
    eventually(lambda: open_files() <= files + 1)  # the root's own descriptor is closed with the store


def test_many_partitions_cost_nothing_until_they_are_used(tmp_root: Path) -> None:
    """Opening is lazy: no thread, no timer and no file handle for an idle partition."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        append(log, "warm", 0, batch("x"))
        threads, files, timers = threading.active_count(), open_files(), len(log.runtime.scheduler._heap)
        cluster.store.calls.clear()
        log.create_topic("many", partitions=counts.MANY_PARTITIONS - 10)
        assert len(cluster.store.calls) < 10  # one record of the catalog, however many partitions
        assert (threading.active_count(), open_files()) <= (threads + 2, files + 2)
        assert len(log.runtime.scheduler._heap) <= timers + 1
        assert len(log._partitions) <= 3
        assert cluster.store.list_folders("topics") == ["__cluster_metadata", "warm"]

        for number in (0, 7, counts.MANY_PARTITIONS - 11):
            append(log, "many", number, batch("a"))
        assert len(cluster.store.list_folders("topics/many")) == 3
        assert threading.active_count() <= threads + 4
        assert open_files() <= files + 4

        log = cluster.reopen()
        assert log.topic("many").partitions == counts.MANY_PARTITIONS - 10
        assert len(log._partitions) <= 5
        assert values(log, "many", 7) == [b"a"]


def test_a_fenced_service_answers_with_the_leaders_address() -> None:
    """R-1: produce is refused, reads go on, `troubles` says why."""
    with memory_cluster() as cluster:
        old = cluster.open()
        old.create_topic("t")
        append_one_by_one(old, "t", "a")
        other = small_settings("memory://", cluster_advertised_address="new:8082")
        new = cluster.open(settings=other, force=True)
        append(new, "t", 0, batch("b"))
        cluster.clock.advance(2)
        with pytest.raises(NotLeader) as caught:
            append(old, "t", 0, batch("x"))
        assert caught.value.fields["leader"] == "new:8082"
        assert old.fenced
        assert old.troubles() == ["this process was fenced: another one leads"]
        assert values(old, "t") == [b"a", b"b"]


def test_a_failed_start_gives_everything_back(tmp_root: Path) -> None:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        log.close()
        threads = threading.active_count()
        cluster.store.fail_before("list", "topics/__cluster_metadata/0/_sluice", times=None)
        with pytest.raises(StorageError):
            cluster.open()
        cluster.store.clear()
        eventually(lambda: threading.active_count() <= threads)
        assert [meta.name for meta in cluster.open().topics()] == ["t"]


def test_a_damaged_partition_hurts_no_other(tmp_root: Path) -> None:
    """I-10: one table cannot be repaired; it is named, the rest serves."""
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=2)
        for number in (0, 1):
            append_one_by_one(log, "t", "ab", partition=number)
        log.close()
        version = tmp_root / "topics/t/0/_delta_log/00000000000000000001.json"
        version.write_bytes(version.read_bytes()[:-5])
        log = cluster.open()
        with pytest.raises(CorruptCommit):
            append(log, "t", 0, batch("x"))
        assert append(log, "t", 1, batch("c")).base_offset == 2
        assert any("t-0" in trouble for trouble in log.troubles())


def test_deleting_a_topic_with_appends_under_way(tmp_root: Path) -> None:
    """R-8: those who wait are answered; the WAL forgets the topic, and a restart does not bring it back."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "a")
        with cluster.store.gate("put", "topics/t/0/*") as gate:
            waiting = log.append("t", 0, batch("b"))
            logged = log.append("t", 0, batch("c"), acks=LEADER)
            gate.wait()
            logged.result(WAIT_S)
            log.delete_topic("t")
            with pytest.raises(RequestTimedOut):
                waiting.result(WAIT_S)
        log = cluster.crash()
        assert log.topics() == []
        assert log.report.replayed == {}


def test_the_default_settings_open(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_root)
    with LogStore.open() as log:
        append(log, "t", 0, batch("a"))
        assert values(log, "t") == [b"a"]
    assert (tmp_root / "sluice-data/topics/t/0/_delta_log").is_dir()


def test_the_wal_is_cut_by_the_bulk_sync(tmp_root: Path) -> None:
    """Section 2: files are synced later, in bulk, then the WAL needs their entries no more."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        cluster.store.calls.clear()
        cluster.tick(3)
        eventually(lambda: [call for call in cluster.store.calls if call[0] == "sync"])
        log.background.sync_all()
        log = cluster.crash()
        assert log.report.replayed == {}
        assert values(log, "t") == [b"a", b"b", b"c"]


def test_a_filling_wal_is_synced_without_delay(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 2: so that it can be cut before it is full; no time passes here."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        monkeypatch.setattr(Wal, "fill", property(lambda _: 0.3))
        cluster.store.calls.clear()
        append_one_by_one(log, "t", "a")
        eventually(lambda: [call for call in cluster.store.calls if call[0] == "sync"])


def test_a_sync_that_fails_is_final(tmp_root: Path) -> None:
    """Section 2: the kernel forgets what it could not write, so nothing is stated and the WAL is kept."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        cluster.store.fail_before("sync")
        for _ in range(2):
            with pytest.raises(StorageError):
                log.background.sync_all()
        assert any("restart needed" in trouble for trouble in log.troubles())
        assert log.report.findings
        log = cluster.crash()
        assert log.troubles() == []
        assert values(log, "t") == [b"a", b"b", b"c"]
