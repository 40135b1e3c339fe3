"""What a restart opens: only what the WAL may still hold something of."""

from __future__ import annotations

from pathlib import Path

from tests.support.logs import append, batch, folder_cluster

PARTITIONS = 50


def test_after_a_clean_close_no_partition_is_opened(tmp_root: Path) -> None:
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            append(log, "t", number, batch("a"))

        log = cluster.reopen()

        assert not any(log.partition("t", number).opened for number in range(PARTITIONS))
        assert append(log, "t", 7, batch("b")).base_offset == 1


def test_after_a_crash_only_the_partitions_that_were_not_synced_are_opened(tmp_root: Path) -> None:
    """Section 2: the sync point says what is on disk; the rest is replayed or checked before anything is served."""
    with folder_cluster(tmp_root, fsync=True, wal={"sync_interval_ms": 600_000}) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            append(log, "t", number, batch("a"))
        log.background.sync_all()
        append(log, "t", 3, batch("b"))

        log = cluster.crash()

        assert [n for n in range(PARTITIONS) if log.partition("t", n).opened] == [3]
        assert log.partition("t", 3).high_watermark == 2
