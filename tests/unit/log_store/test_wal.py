"""Appending, finding again, cutting."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.log_store.values import PartitionRef, ProducerStamp
from sluice.log_store.wal import SyncPoint, Wal, WalBatch, WalClosed
from sluice.log_store.wal_format import padded
from sluice.log_store.wal_pool import MAX_SPARES
from sluice.log_store.wal_values import key_of
from tests.support.wal import (
    FILE_BYTES,
    REF,
    WAIT_S,
    Acks,
    append,
    append_group,
    bases,
    batch,
    entries,
    eventually,
    files,
    numbered,
    open_wal,
    read_all,
    ref,
    sync,
)

STAMP = ProducerStamp(7, 3, 2**40, partitions=8, crc=0xFFFFFFFF, body_count=1000)


@pytest.mark.parametrize("fsync", [True, False])
def test_batches_are_found_again_as_they_were_written(tmp_path: Path, fsync: bool) -> None:
    written = [batch(0, count=5), batch(5, stamp=STAMP), batch(6, size=0), batch(7, size=33, epoch=9)]
    with open_wal(tmp_path, fsync=fsync) as wal:
        append(wal, *written)
        uuid = wal.uuid
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == written
        assert [entry.end_offset for entry in entries(wal)] == [5, 6, 7, 8]
        assert wal.recovered.findings == []
        assert wal.uuid == uuid


def test_partitions_are_told_apart_by_topic_id_across_files(tmp_path: Path) -> None:
    again = PartitionRef("orders", "another-id", 0, "topics/orders~another-id/0")
    refs = [ref(0), ref(1), ref(0, "clicks"), again]
    with open_wal(tmp_path) as wal:
        for base in range(40):
            append(wal, *(batch(base, of) for of in refs))
    with open_wal(tmp_path) as wal:
        assert len(files(tmp_path)) > 3
        for of in refs:
            assert read_all(wal, of) == list(numbered(40, of))


def test_an_arrow_buffer_is_taken_as_it_is(tmp_path: Path) -> None:
    rows = pa.record_batch({"offset": pa.array([1, 2, 3]), "value": pa.array([b"a", None, b"ccc"])})
    with open_wal(tmp_path) as wal:
        append(wal, WalBatch(REF, 1, 0, 3, 5, None, rows.serialize()))
    with open_wal(tmp_path) as wal:
        payload = read_all(wal)[0].payload
        assert pa.ipc.read_record_batch(pa.py_buffer(payload), rows.schema) == rows


def test_new_entries_go_to_a_new_file(tmp_path: Path) -> None:
    for base in range(3):
        with open_wal(tmp_path) as wal:
            append(wal, batch(base))
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == list(numbered(3))
        assert len({entry.file for entry in entries(wal)}) == 3


def test_an_entry_larger_than_a_file_gets_a_file_of_its_own(tmp_path: Path) -> None:
    written = [batch(0), batch(1, size=5 * FILE_BYTES), batch(2)]
    with open_wal(tmp_path) as wal:
        append(wal, *written)
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == written
        assert [entry.position > FILE_BYTES for entry in entries(wal)] == [False] * 3
        sync(wal, 3)
    assert all(path.stat().st_size == FILE_BYTES for path in tmp_path.glob("spare-*"))


def test_callbacks_come_in_the_order_of_the_appends(tmp_path: Path) -> None:
    acks = Acks()
    with open_wal(tmp_path) as wal:
        for base in range(500):
            wal.append(batch(base, ref(base % 7)), acks.expect(base))
        acks.wait()
    assert acks.order == list(range(500))
    assert set(acks.errors) == {None}


def test_what_is_queued_during_a_sync_shares_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls, entered, go = os.fdatasync, [], threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        calls.append(fd)
        entered.set()
        assert go.wait(WAIT_S)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    acks = Acks()
    with open_wal(tmp_path, fsync=True, file_bytes=64 * 1024, max_bytes=1 << 20) as wal:
        wal.append(batch(0), acks.expect(0))
        assert entered.wait(WAIT_S)
        for base in range(1, 101):
            wal.append(batch(base), acks.expect(base))
        assert acks.order == []
        go.set()
        acks.wait()
    assert len(calls) == 2
    assert acks.order == list(range(101))


def test_an_acknowledged_batch_has_been_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (real(fd), events.append("sync")))
    with open_wal(tmp_path, fsync=True) as wal:
        finished = threading.Event()
        wal.append(batch(0), lambda _error: (events.append("done"), finished.set()))
        assert finished.wait(WAIT_S)
    assert events == ["sync", "done"]


def test_without_fsync_there_is_no_fdatasync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda fd: pytest.fail("fdatasync"))
    with open_wal(tmp_path) as wal:
        append(wal, batch(0))


def test_what_recovery_relies_on_is_synced_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, batch(0))
    real, synced = os.fsync, set()
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.fstat(fd).st_ino), real(fd)))
    inode = files(tmp_path)[0].stat().st_ino
    with open_wal(tmp_path, fsync=True) as wal:
        assert bases(wal) == [0]
        assert inode in synced


def test_a_large_payload_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload, seen, real = bytes(1_300_000), [], os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: (seen.extend(parts), real(fd, parts, at))[1])
    with open_wal(tmp_path) as wal:
        append(wal, WalBatch(REF, 1, 0, 1, 0, None, payload))
    assert any(isinstance(part, memoryview) and part.obj is payload for part in seen)


def test_a_raising_callback_does_not_stop_the_log(tmp_path: Path) -> None:
    heard: list[BaseException] = []

    def raises(_error: BaseException | None) -> None:
        raise ValueError("broken")

    with open_wal(tmp_path, on_failure=heard.append) as wal:
        wal.append(batch(0), raises)
        append(wal, batch(1))
    assert [str(error) for error in heard] == ["broken"]


def test_a_closed_wal_refuses(tmp_path: Path) -> None:
    wal = open_wal(tmp_path)
    acks = Acks()
    wal.append(batch(0), acks.expect(0))
    wal.close()
    wal.close()
    assert acks.errors == [None]
    with pytest.raises(WalClosed):
        wal.append(batch(1), acks.expect(1))
    with pytest.raises(WalClosed):
        sync(wal, 1)


# --- cutting --------------------------------------------------------------------------------------


def fill_files(wal: Wal, count: int, of: PartitionRef = REF, start: int = 0) -> int:
    """Batches until `count` files are full; returns the end offset."""
    end = start
    while wal.size_bytes < count * FILE_BYTES + 500:
        append(wal, batch(end, of, size=400))
        end += 1
    return end


def test_a_sync_point_cuts_what_it_covers_and_no_more(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        end = fill_files(wal, 3)
        before = wal.size_bytes
        sync(wal, end - 1)
        assert wal.size_bytes < before - 2 * FILE_BYTES
    with open_wal(tmp_path) as wal:
        assert bases(wal)[-1] == end - 1
        assert wal.recovered.sync_points == {key_of(REF): SyncPoint(1, end - 1)}
        held = next(entry for entry in entries(wal) if entry.base_offset == end - 1)
        assert {entry.file for entry in entries(wal)} == {held.file}


def test_one_partition_behind_keeps_its_files(tmp_path: Path) -> None:
    slow = ref(1)
    with open_wal(tmp_path) as wal:
        append(wal, batch(0, slow))
        end = fill_files(wal, 3)
        sync(wal, end)
    with open_wal(tmp_path) as wal:
        assert read_all(wal, slow) == [batch(0, slow)]
        sync(wal, 1, slow)
        # Cut as well: the file of the slow one, although files after it went first.
        assert wal.size_bytes <= FILE_BYTES
    with open_wal(tmp_path) as wal:
        assert bases(wal, slow) == []


def test_sync_points_outlive_the_files_that_stated_them(tmp_path: Path) -> None:
    quiet = [ref(partition, "quiet") for partition in range(20)]
    with open_wal(tmp_path) as wal:
        wal.note_synced({of: SyncPoint(9, 70 + of.partition) for of in quiet})
        end = 0
        for _ in range(10):
            end = fill_files(wal, 2, start=end)
            sync(wal, end, version=end)
    with open_wal(tmp_path) as wal:
        points = wal.recovered.sync_points
        assert [points[key_of(of)] for of in quiet] == [SyncPoint(9, 70 + of.partition) for of in quiet]
        assert points[key_of(REF)] == SyncPoint(end, end)


def test_files_are_used_again_and_the_size_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, end, made, real = 0, 0, [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: (made.append(len(data)), real(fd, data, at))[1])
    with open_wal(tmp_path, max_bytes=16 * FILE_BYTES) as wal:
        for _ in range(30):
            end = fill_files(wal, 2, start=end)
            sync(wal, end)
            most = max(most, len([name for name in os.listdir(tmp_path) if name.startswith(("wal-", "spare-"))]))
    assert most <= 7 + MAX_SPARES
    assert made.count(FILE_BYTES) <= 7 + MAX_SPARES
    assert int(files(tmp_path)[-1].stem[4:]) > 50
    assert len(list(tmp_path.glob("spare-*"))) <= MAX_SPARES


def killed(wal: Wal, home: Path, copy: Path) -> None:
    """What a process leaves that dies now; the thread that renames files has come to rest."""
    assert eventually(lambda: wal._pool._ready is not None and not wal._pool._retired)
    shutil.copytree(home, copy)


def test_old_bytes_of_a_recycled_file_are_never_entries(tmp_path: Path) -> None:
    with open_wal(tmp_path / "wal") as wal:
        end = fill_files(wal, 3)
        sync(wal, end)
        end = fill_files(wal, 2, start=end)
        last = end
        append(wal, batch(last))
        killed(wal, tmp_path / "wal", tmp_path / "killed")
    # What follows the last entry in its file is what an earlier life of the file held.
    with open_wal(tmp_path / "killed") as wal:
        entry = entries(wal)[-1]
        rest = (tmp_path / "killed" / entry.file).read_bytes()[entry.position + entry.length + 16 :]
        assert any(rest)
        assert bases(wal) == sorted(set(bases(wal)))
        assert bases(wal)[-1] == last
        assert wal.recovered.findings == []


def test_a_file_may_only_go_after_the_sync_point_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_wal(tmp_path, fsync=True) as wal:
        end = fill_files(wal, 2)
        first = files(tmp_path)[0]
        real, seen = os.fdatasync, []
        monkeypatch.setattr(os, "fdatasync", lambda fd: (seen.append(first.exists()), real(fd)))
        sync(wal, end)
        monkeypatch.undo()
    assert seen == [True]
    assert not first.exists()


def test_the_limit_counts_what_is_queued_and_what_is_held(tmp_path: Path) -> None:
    with open_wal(tmp_path, max_bytes=8 * FILE_BYTES) as wal:
        assert wal.fill == 0
        assert wal.has_room(8 * FILE_BYTES)
        assert not wal.has_room(8 * FILE_BYTES + 1)
        end = fill_files(wal, 4)
        assert 0.5 <= wal.fill < 0.7
        assert not wal.has_room(4 * FILE_BYTES)
        filled, queued, release = wal.fill, threading.Event(), threading.Event()
        wal.append(batch(end), lambda _error: (queued.set(), release.wait(WAIT_S)))
        assert queued.wait(WAIT_S)
        wal.append(batch(end + 1, size=FILE_BYTES), lambda _error: None)
        assert wal.fill >= filled + 1 / 8
        release.set()
        sync(wal, end + 2)
        assert wal.fill < 0.3


def test_a_file_larger_than_the_others_is_cut_as_soon_as_it_is_covered(tmp_path: Path) -> None:
    with open_wal(tmp_path, max_bytes=4 * FILE_BYTES) as wal:
        append(wal, batch(0, size=3 * FILE_BYTES))
        assert wal.fill > 0.7
        sync(wal, 1)
        assert wal.fill < 0.1


def test_a_bounded_number_of_spare_files_is_kept(tmp_path: Path) -> None:
    with open_wal(tmp_path, max_bytes=32 * FILE_BYTES) as wal:
        end = fill_files(wal, MAX_SPARES + 6)
        assert eventually(lambda: wal._pool._ready is not None)  # else it is made of a spare file, later
        sync(wal, end)
    assert len(list(tmp_path.glob("spare-*"))) == MAX_SPARES
    assert len(files(tmp_path)) == 1


def test_a_closed_log_leaves_nothing_to_look_through(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, batch(0))
        assert eventually(lambda: wal._pool._ready is not None)
    (file,) = files(tmp_path)
    with open_wal(tmp_path) as wal:
        (entry,) = entries(wal)
        assert file.stat().st_size == padded(entry.position + entry.length)
    assert len(list(tmp_path.glob("spare-*"))) == 1


@pytest.mark.parametrize("fsync", [True, False])
def test_a_closed_log_keeps_nothing_that_is_on_disk_elsewhere(tmp_path: Path, fsync: bool) -> None:
    with open_wal(tmp_path, fsync=fsync) as wal:
        end = fill_files(wal, 3)
        append(wal, batch(0, ref(1)))
        sync(wal, end)
    with open_wal(tmp_path) as wal:
        # One batch of the last file is needed: the file stays as it is.
        assert read_all(wal, ref(1)) == [batch(0, ref(1))]
        append(wal, batch(end))
        wal.note_synced({REF: SyncPoint(2, end + 1), ref(1): SyncPoint(1, 1)})
    (file,) = files(tmp_path)
    assert file.stat().st_size < 1_000
    with open_wal(tmp_path) as wal:
        assert entries(wal) == entries(wal, ref(1)) == []
        assert wal.recovered.sync_points == {key_of(REF): SyncPoint(2, end + 1), key_of(ref(1)): SyncPoint(1, 1)}
        assert wal.recovered.findings == []


def test_a_spare_file_never_gets_its_old_number_again(tmp_path: Path) -> None:
    """Its entries are sealed to that number: they would be entries once more."""
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(5))
        written = files(tmp_path)[0]
        shutil.copy(written, tmp_path / "old")
    written.unlink()
    for spare in tmp_path.glob("spare-*"):
        spare.unlink()
    (tmp_path / "old").rename(tmp_path / written.name.replace("wal-", "spare-").replace(".log", ".wal"))
    with open_wal(tmp_path) as wal:
        append(wal, batch(7))
        killed(wal, tmp_path, tmp_path.with_name("killed"))
    assert written.name not in {path.name for path in files(tmp_path)}
    with open_wal(tmp_path.with_name("killed")) as wal:
        assert bases(wal) == [7]


def test_the_size_limits_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most half"):
        open_wal(tmp_path, file_bytes=FILE_BYTES, max_bytes=FILE_BYTES)


def test_all_of_a_group_is_found_again(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append_group(wal, [batch(base, ref(base % 3)) for base in range(1, 100)], batch(0))
    with open_wal(tmp_path) as wal:
        assert sum(len(found) for found in wal.recovered.entries.values()) == 100
