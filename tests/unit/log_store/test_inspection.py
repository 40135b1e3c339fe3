"""What can be seen of a cluster from its storage alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.delta_log import commit_path
from sluice.log_store.inspection import inspect
from sluice.log_store.store import open_store
from tests.support.logs import append, append_one_by_one, batch, folder_cluster, folder_of


def test_no_cluster_is_none(tmp_root: Path) -> None:
    assert inspect(open_store(tmp_root)) is None


def test_a_look_beside_a_running_leader_counts_what_is_there(tmp_root: Path) -> None:
    # In the present, because delta-rs drops old removals from a checkpoint by its own clock.
    with folder_cluster(tmp_root, clock=ManualClock(SystemClock().wall_ms())) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=5)
        append_one_by_one(log, "t", "abc")
        append(log, "t", 3, batch("x"))
        log.delete_records("t", 0, 2)
        log.partition("t", 0).checkpoint()
        (tmp_root / folder_of(log, "t") / "00000000000000000009-1-abc.parquet").write_bytes(b"never committed")
        folder = tmp_root / folder_of(log, "t")
        for left in (".gone.parquet.crc", "_delta_log/.x-1.tmp", "_sluice/.x-2.tmp"):
            (folder / left).write_bytes(b"left")
        (folder / "_delta_log" / "00000000000000000001.crc").write_bytes(b"delta-spark's")

        look = inspect(open_store(tmp_root))

    assert look is not None
    assert look.cluster_id == log.cluster_id
    assert look.claim is not None
    assert look.claim.epoch == 1
    assert look.problems == []
    found = {(p.topic, p.partition): p for p in look.partitions}
    assert set(found) == {("__cluster_metadata", 0), ("t", 0), ("t", 3)}
    first = found["t", 0]
    assert (first.log_start, first.high_watermark, first.live_files, first.small_files) == (2, 3, 1, 1)
    assert (first.removed_files, first.unnamed_files, first.leftovers) == (2, 1, 3)
    assert (first.checkpoints, first.states, first.commit_files) == (1, 1, first.version + 1)
    assert (first.checksums, found["t", 3].checksums) == (1, 0)
    assert [wal.folder for wal in look.wals] == ["wal"]


def test_a_wal_outside_of_the_root_is_looked_at(tmp_root: Path, tmp_path: Path) -> None:
    """`wal.dir`, which every bucket needs; and those that a take-over by force put beside it."""
    wal = tmp_path / "elsewhere" / "log"
    with folder_cluster(tmp_root) as cluster:
        settings = replace(cluster.settings, wal=replace(cluster.settings.wal, dir=str(wal)))
        log = cluster.open(settings=settings)
        log.create_topic("t")
        (wal / "parked").mkdir(exist_ok=True)
        (wal / "parked" / "t-0.wal").write_bytes(b"waits")
        (wal.with_name("log-1") / "cut").mkdir(parents=True)
        (wal.with_name("log-1") / "cut" / "t-0.wal").write_bytes(b"kept aside")
        (tmp_root / "_sluice" / "wal").mkdir()

        look = inspect(open_store(tmp_root), str(wal))

    assert look is not None
    found = {wal.folder: (wal.bytes > 0, wal.parked, wal.set_aside) for wal in look.wals}
    assert found == {"wal": (False, 0, 0), str(wal): (True, 1, 0), f"{wal}-1": (False, 0, 1)}


def test_damage_is_named(tmp_root: Path) -> None:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=2)
        for number in range(2):
            append(log, "t", number, batch("a"))
        (tmp_root / commit_path(folder_of(log, "t", 0), 1)).write_bytes(b"")
        (tmp_root / folder_of(log, "t", 1) / log.partition("t", 1).state.files[0].path).unlink()

        look = inspect(open_store(tmp_root))

    assert look is not None
    problems = {p.partition: p.problem for p in look.partitions if p.topic == "t"}
    assert "empty" in problems[0]
    assert "missing" in problems[1]
