"""What keeps a partition fast however old it is: each rule here was a measured way in which it was not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.log_store import local_store
from sluice.log_store.checkpoints import CleanUp, clean_log
from sluice.log_store.clock import ManualClock
from sluice.log_store.errors import CorruptCommit, StorageError
from sluice.log_store.merge import MOST_FILES, choose_merge
from sluice.log_store.merger import merge_once
from sluice.log_store.store import StoreError, SyncNotTried, open_store
from sluice.log_store.tail_cache import TailCache
from sluice.log_store.values import OffsetRange
from tests.support.logs import Cluster, append_one_by_one, commits, eventually, folder_cluster, memory_cluster, values
from tests.unit.log_store.test_merge import TARGET, neighbours

FOLDER = "topics/t/0"


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_root, fsync=True) as made:
        yield made


# --- merging ------------------------------------------------------------------------------------


def test_a_merger_that_is_behind_takes_the_newest_files() -> None:
    """Oldest first, they are no longer in memory: one starved moment and 126,000 live files were never merged."""
    files = neighbours(3 * MOST_FILES)
    choice = choose_merge(files, [OffsetRange(0, len(files))], TARGET, quiet=False)
    assert choice is not None
    assert list(choice.files) == files[-MOST_FILES:]


@pytest.mark.parametrize("evicted", [0, 3, 6])
def test_rows_in_memory_are_not_read_again(evicted: int) -> None:
    """The rows are the same wherever they come from, also when only some are still cached."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abcdef")
        cached = log.runtime.tails.get(FOLDER, 0)
        log.runtime.tails = TailCache(1 << 20)
        for tail in cached[evicted:]:
            log.runtime.tails.add(FOLDER, tail.base_offset, tail.end_offset, tail.rows)
        partition = log.partition("t", 0)
        small = [f"{FOLDER}/{file.path}" for file in partition.state.files]
        cluster.store.calls.clear()

        assert merge_once(partition, partition.config, quiet=True) is not None

        opened = {path for _, path in cluster.store.calls if path in small}
        assert opened == set(small[:evicted])
        log.runtime.tails.drop(FOLDER)
        assert values(log, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_a_starved_merger_does_not_rest_for_it() -> None:
    """`merge.cpu.percent` is a share of a core: waiting for one is not using it."""

    class Starved(ManualClock):
        def boottime(self) -> float:
            self.advance(10.0)  # every look at the clock costs ten seconds in which others had the processor
            return super().boottime()

    with memory_cluster(merge_enable=True, merge_cpu_percent=1, clock=Starved()) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        housekeeping = log.background.housekeeping
        housekeeping._merge(log.partition("t", 0), quiet=True)
        assert housekeeping._rest_until <= cluster.clock.boottime()


def test_a_plan_finds_its_files_among_many_and_refuses_what_is_not_live() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abcdefgh")
        state = log.partition("t", 0).state
        assert [state.position(file.path) for file in state.files] == list(range(8))
        assert state.position("00000000000000000003-1-other.parquet") == -1
        assert state.position("a-foreign-name.parquet") == -1
        files, last = list(state.files), commits(cluster.store, FOLDER)[-1]
        plan = replace(
            last, version=state.version + 1, adds=(), removes=(files[2].path, "00000000000000000099-1-x.parquet")
        )
        with pytest.raises(CorruptCommit, match="not live"):
            state._apply_files(plan)
        state._apply_files(replace(plan, removes=(files[5].path, files[2].path)))
        assert state.files == [file for index, file in enumerate(files) if index not in (2, 5)]


# --- clean-up -----------------------------------------------------------------------------------


def test_cleaning_by_number_leaves_what_cleaning_by_listing_leaves(tmp_path: Path) -> None:
    """Six hours of a busy partition are 400,000 commit files: they are not listed every 150 versions."""
    left: list[list[str]] = []
    for name, oldest in (("listed", None), ("numbered", 0)):
        with folder_cluster(tmp_path / name, clock=ManualClock()) as cluster:
            log = cluster.open()
            cluster.clock.jump(3600)  # not trusted: the service itself cleans nothing
            log.create_topic("t")
            for _ in range(4):
                append_one_by_one(log, "t", "ab")
                log.partition("t", 0).checkpoint()
            newest = log.partition("t", 0).state.version
            for version in (0, 1, newest):
                (tmp_path / name / FOLDER / "_delta_log" / f"{version:020d}.crc").touch()
            cluster.store.calls.clear()
            done = clean_log(cluster.store, FOLDER, older_than_ms=2**62, synced_version=newest, oldest=oldest)
            assert isinstance(done, CleanUp)
            listed = [path for operation, path in cluster.store.calls if operation == "list"]
            assert (f"{FOLDER}/_delta_log" in listed) == (oldest is None)
            folder = tmp_path / name / FOLDER
            left.append(sorted(p.name for place in ("_delta_log", "_sluice") for p in (folder / place).iterdir()))
            first = min(int(n[:20]) for n in left[-1] if n.endswith(".json") and n[:20].isdigit())
            assert done.oldest == first
            # delta-spark's checksums go with their versions and are counted apart.
            assert (done.versions, done.checksums) == (first, 2)
            again = clean_log(cluster.store, FOLDER, older_than_ms=2**62, synced_version=newest, oldest=done.oldest)
            assert (again.versions, again.checksums, again.oldest) == (0, 0, first)
    assert left[0] == left[1]


# --- memory -------------------------------------------------------------------------------------


def test_the_index_of_the_wal_is_let_go_after_recovery(cluster: Cluster) -> None:
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", "abc")
    log.background.sync_all()
    append_one_by_one(log, "t", "de")
    log = cluster.crash()
    assert log.runtime.wal is not None
    assert log.runtime.wal.recovered.entries == {}
    assert log.runtime.wal.recovered.sync_points
    assert values(log, "t") == [b"a", b"b", b"c", b"d", b"e"]


# --- what may be synced again (section 2) --------------------------------------------------------


def test_a_failed_sync_is_final_whoever_called_it(cluster: Cluster) -> None:
    """The kernel forgets what it could not write: a checkpoint's failed sync must not become a bulk sync's success."""
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", "abc")
    assert log.runtime.wal is not None
    cluster.store.fail_before("sync", times=1)
    with pytest.raises(StorageError):
        log.partition("t", 0).durability.sync_now()
    with pytest.raises(StorageError):
        log.background.sync_all()
    assert any("restart needed" in trouble for trouble in log.troubles())
    key = (log.topic("t").topic_id, 0)
    log = cluster.crash()
    assert log.runtime.wal is not None
    assert key not in log._start_up._synced, "a sync point was stated over pages that may be lost"
    assert values(log, "t") == [b"a", b"b", b"c"]


def test_a_sync_that_was_never_begun_is_tried_again(cluster: Cluster) -> None:
    """Too many open files: no page was given up, so the next sync is honest and nobody needs a restart."""
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", "abc")
    cluster.store.fail_before("sync", error=SyncNotTried("too many open files"))
    log.background._sync_quietly()
    assert log.troubles() == []
    cluster.tick(log.background.sync_interval_s)
    eventually(lambda: not log.background._dirty)
    key = (log.topic("t").topic_id, 0)
    log = cluster.crash()
    assert key in log._start_up._synced


def test_the_store_tells_a_failed_sync_from_one_that_was_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "root")
    store.put("a", b"x")

    def refuse(number: int) -> object:
        def call(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse(errno.ENOSPC))
        with pytest.raises(StoreError, match="the disk is full") as caught:
            store.sync(["a"])
        assert not isinstance(caught.value, SyncNotTried)
    with monkeypatch.context() as patched:
        patched.setattr(local_store, "fsync_path", refuse(errno.EMFILE))
        with pytest.raises(SyncNotTried, match="too many open files"):
            store.sync(["a"])
