"""Merging and sweeping in the background: what they do, when, and what idle partitions cost (R-6, R-13)."""

from __future__ import annotations

import threading
from pathlib import Path

from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.housekeeping import LOOK_EVERY_VERSIONS
from sluice.log_store.leftovers import TEMPORARY_AGE_MS, sweep_leftovers
from sluice.log_store.store import Listed, open_store
from sluice.log_store.sweep import choose_sweep
from tests.support.logs import NOW_MS, append_one_by_one, eventually, folder_cluster, memory_cluster, rows, values

DELAY_MS, ORPHAN_MS = 900_000, 86_400_000


def test_a_sweep_takes_removed_files_after_the_delay_and_orphans_after_theirs() -> None:
    """R-6: four files, four fates, and nothing that is live."""
    now = NOW_MS
    listing = [
        Listed("live.parquet", 1, 0),
        Listed("due.parquet", 1, 0),
        Listed("removed.parquet", 1, 0),
        Listed("orphan.parquet", 1, now - ORPHAN_MS),
        Listed("on-its-way.parquet", 1, now - ORPHAN_MS + 1),
        Listed("notes.txt", 1, 0),
    ]
    removed = {"due.parquet": now - DELAY_MS, "removed.parquet": now - DELAY_MS + 1}

    choice = choose_sweep(
        listing, {"live.parquet"}, removed, now_ms=now, delete_delay_ms=DELAY_MS, orphan_retention_ms=ORPHAN_MS
    )

    assert choice.removed == ("due.parquet",)
    assert choice.orphans == ("orphan.parquet",)
    assert choice.next_due_ms == now + 1


def test_a_busy_partition_is_merged_on_the_way() -> None:
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", [str(i) for i in range(LOOK_EVERY_VERSIONS + 10)])

        eventually(lambda: len(log.partition("t", 0).state.files) < LOOK_EVERY_VERSIONS)

        assert values(log, "t") == [str(i).encode() for i in range(LOOK_EVERY_VERSIONS + 10)]
        assert log.background.housekeeping.counters.merges >= 1


def test_a_quiet_partition_ends_with_its_tail_merged() -> None:
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        assert len(log.partition("t", 0).state.files) == 3

        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)

        eventually(lambda: len(log.partition("t", 0).state.files) == 1)
        assert values(log, "t") == [b"a", b"b", b"c"]


def test_merged_files_are_deleted_after_the_delay_and_not_before(tmp_root: Path) -> None:
    """R-6, I-9: a reader that planned before the merge has the delay to finish."""
    with folder_cluster(tmp_root, merge_enable=True, clock=None) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        partition = log.partition("t", 0)
        small = [file.path for file in partition.state.files]
        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        eventually(lambda: len(partition.state.files) == 1)
        housekeeping = log.background.housekeeping

        assert housekeeping.sweep(partition).removed == ()
        cluster.clock.advance(DELAY_MS / 1000)
        assert sorted(housekeeping.sweep(partition).removed) == sorted(small)

        assert [item.name for item in cluster.store.list(partition.ref.folder)] == [partition.state.files[0].path]
        assert values(log, "t") == [b"a", b"b", b"c"]


def test_what_is_to_be_deleted_survives_a_restart(tmp_root: Path) -> None:
    """R-6: the removals are in the log, and in the checkpoint that replaces it."""
    for checkpointed in (False, True):
        # delta-rs drops old removals from a checkpoint by its own clock, so this test lives in the present.
        clock = ManualClock(SystemClock().wall_ms())
        with folder_cluster(tmp_root / str(checkpointed), merge_enable=True, clock=clock) as cluster:
            log = cluster.open()
            log.create_topic("t")
            append_one_by_one(log, "t", "abc")
            cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
            eventually(lambda log=log: len(log.partition("t", 0).state.files) == 1)
            if checkpointed:
                log.partition("t", 0).checkpoint()

            partition = cluster.reopen().partition("t", 0)

            assert len(partition.known_files()[1]) == 3


def test_nothing_is_deleted_while_the_wall_clock_is_not_trusted() -> None:
    """R-13: a clock that jumps an hour ahead deletes nothing early."""
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        partition = log.partition("t", 0)
        eventually(lambda: len(partition.state.files) == 1)

        cluster.clock.jump(3600)
        assert log.background.housekeeping.sweep(partition).removed == ()
        log.runtime.wall.confirm()
        assert len(log.background.housekeeping.sweep(partition).removed) == 3


def test_a_failed_merge_is_tried_again_and_harms_nobody() -> None:
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        partition = log.partition("t", 0)
        cluster.store.fail_before("put", f"{partition.ref.folder}/*.parquet")

        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        eventually(lambda: log.background.housekeeping.counters.failures == 1)
        append_one_by_one(log, "t", "d")
        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)

        eventually(lambda: len(partition.state.files) == 1)
        assert rows(log, "t") == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_an_idle_partition_has_no_timer() -> None:
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=50)
        threads = threading.active_count()
        for number in range(50):
            log.reads("t", number).latest()

        assert threading.active_count() <= threads
        # The catalog's own partition changed: it wrote down the topic. No other may be watched.
        assert {partition.ref.topic for partition in log.background.housekeeping._watched} == {METADATA_REF.topic}


def test_sidecars_and_temporaries_that_nobody_needs_are_removed(tmp_root: Path) -> None:
    """R-6: Hadoop's checksum goes when its file has gone; a temporary when no writer can be behind it."""
    folder = tmp_root / "t" / "0"
    (folder / "_delta_log").mkdir(parents=True)
    kept = [folder / ".here.parquet.crc", folder / "here.parquet", folder / "_delta_log" / ".x-1.tmp"]
    gone = [folder / ".missing.parquet.crc", folder / "_delta_log" / ".00000000000000000003.json.crc"]
    for path in (*kept, *gone):
        path.write_bytes(b"x")
    born = int(kept[-1].stat().st_mtime * 1000)

    assert sweep_leftovers(open_store(tmp_root), "t/0", born) == 2
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in gone)
    assert sweep_leftovers(open_store(tmp_root), "t/0", born + TEMPORARY_AGE_MS + 2_000) == 1


def test_a_removal_that_a_checkpoint_forgot_is_known_from_the_commits() -> None:
    """R-6: a file that left the log a minute ago is no orphan, however old it is and whoever forgot about it."""
    clock = ManualClock(SystemClock().wall_ms())  # the store stamps its files with the real time
    with memory_cluster(clock=clock, merge_enable=True, orphan_retention_ms=60_000) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        partition = log.partition("t", 0)
        eventually(lambda: len(partition.state.files) == 1)
        _, removed = partition.known_files()
        assert len(removed) == 3
        partition.files_deleted(list(removed))
        folder = partition.ref.folder
        cluster.store.put(f"{folder}/{0:020d}-1-0.parquet", b"never named")

        cluster.tick(120.0)
        swept = log.background.housekeeping.sweep(partition)

        assert swept.orphans == (f"{0:020d}-1-0.parquet",)
        assert {item.name for item in cluster.store.list(folder)} >= set(removed)
