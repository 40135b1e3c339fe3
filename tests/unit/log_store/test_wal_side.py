"""Entries that leave the shared log: released, parked, set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.log_store.wal import SyncPoint, Wal
from sluice.log_store.wal_format import FileEncoder
from sluice.log_store.wal_scan import scan_file
from sluice.log_store.wal_values import key_of
from tests.support.wal import (
    FILE_BYTES,
    REF,
    append,
    bases,
    batch,
    entries,
    files,
    flip,
    numbered,
    open_wal,
    read_all,
    ref,
    sync,
)

OTHER = ref(1)


def churn(wal: Wal, of: PartitionRef, rounds: int = 8) -> None:
    """Write and cover enough of another partition for several files to come and go."""
    for round_ in range(rounds):
        append(wal, *numbered(20, of, start=20 * round_))
        sync(wal, 20 * (round_ + 1), of)


def test_released_entries_are_not_found_and_hold_nothing_up(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(60), batch(0, OTHER))
        assert wal.size_bytes > FILE_BYTES
        wal.release(REF)
        assert wal.size_bytes < FILE_BYTES
        append(wal, batch(60))
    with open_wal(tmp_path) as wal:
        assert bases(wal) == [60]
        assert bases(wal, OTHER) == [0]


def test_a_release_outlives_the_file_that_stated_it(tmp_path: Path) -> None:
    """The released entries stay in a file that another partition holds; the release itself lies in one that is cut."""
    busy = ref(2)
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(3), batch(0, OTHER))
        churn(wal, busy, rounds=2)
        wal.release(REF)
        churn(wal, busy)
    with open_wal(tmp_path) as wal:
        assert bases(wal) == []
        assert bases(wal, OTHER) == [0]
        churn(wal, busy)
    with open_wal(tmp_path) as wal:
        assert bases(wal) == []


def test_a_release_of_some_offsets_leaves_the_others(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(60))
        wal.release(REF, OffsetRange(10, 50))
        wal.release(REF, OffsetRange(20, 30))
    with open_wal(tmp_path) as wal:
        assert bases(wal) == [*range(10), *range(50, 60)]
        sync(wal, 60)
        assert wal.size_bytes <= FILE_BYTES


def test_a_release_does_not_reach_what_comes_after_it(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(5))
        wal.release(REF)
        append(wal, batch(2, epoch=2), batch(3, epoch=2))
    for _ in range(2):
        with open_wal(tmp_path) as wal:
            assert [(e.epoch, e.base_offset) for e in entries(wal)] == [(2, 2), (2, 3)]
            append(wal, batch(0, OTHER))


@pytest.mark.parametrize("forget", [True, False])
def test_only_forgetting_drops_the_sync_point(tmp_path: Path, forget: bool) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, batch(0))
        sync(wal, 1, version=4)
        wal.release(REF, forget=forget)
        churn(wal, OTHER)
    with open_wal(tmp_path) as wal:
        assert wal.recovered.sync_points.get(key_of(REF)) == (None if forget else SyncPoint(4, 1))


def test_a_later_release_does_not_undo_forgetting(tmp_path: Path) -> None:
    """The file with the sync point outlives the one that forgets it: what is stated anew must still forget."""
    with open_wal(tmp_path) as wal:
        append(wal, batch(0, OTHER))  # keeps the first file
        wal.note_synced({REF: SyncPoint(4, 1)})
    with open_wal(tmp_path) as wal:
        wal.release(REF, forget=True)
        wal.release(REF, forget=False)
    for _ in range(3):
        with open_wal(tmp_path) as wal:
            assert wal.recovered.sync_points == {}
            wal.release(REF, forget=False)


def test_a_sync_point_after_forgetting_counts(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, batch(0), batch(0, OTHER))
        wal.release(REF, forget=True)
        sync(wal, 9, version=7)
    for _ in range(2):
        with open_wal(tmp_path) as wal:
            assert wal.recovered.sync_points[key_of(REF)] == SyncPoint(7, 9)
            append(wal, batch(1, OTHER))


def test_parked_entries_are_found_until_they_are_unparked(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(50), batch(0, OTHER))
    with open_wal(tmp_path) as wal:
        path = wal.park(REF, (wal.read(entry) for entry in entries(wal)))
        assert path.parent == tmp_path / "parked"
        assert path.name.startswith(f"orders-0-{0:020}-")
        assert wal.size_bytes < 2 * FILE_BYTES
        (parked,) = wal.parked()
        assert (parked.path, parked.ref) == (path, REF)
    with open_wal(tmp_path) as wal:
        assert bases(wal) == []
        assert bases(wal, OTHER) == [0]
        (parked,) = wal.recovered.parked
        assert [wal.read(entry) for entry in parked.entries] == list(numbered(50))
        assert wal.recovered.findings == []
        wal.unpark(path)
        assert wal.parked() == []
    with open_wal(tmp_path) as wal:
        assert wal.recovered.parked == []


def test_parking_releases_only_what_was_parked(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(10))
        wal.park(REF, numbered(6))
    with open_wal(tmp_path) as wal:
        assert bases(wal) == [6, 7, 8, 9]


def test_a_damaged_parked_file_is_reported_as_loss(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(3))
        path = wal.park(REF, numbered(3))
        (parked,) = wal.parked()
    whole = path.read_bytes()
    flip(path, parked.entries[1].position + 30)
    with open_wal(tmp_path) as wal:
        assert [(f.severity, f.file) for f in wal.recovered.findings] == [("middle", f"parked/{path.name}")]
        assert [entry.base_offset for entry in wal.recovered.parked[0].entries] == [0, 2]
    path.write_bytes(whole[: parked.entries[2].position])
    with open_wal(tmp_path) as wal:
        assert [(f.severity, f.what) for f in wal.recovered.findings] == [("middle", "the end of the file is missing")]


def test_what_is_set_aside_is_kept_and_never_replayed(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(10))
    with open_wal(tmp_path) as wal:
        tail = [wal.read(entry) for entry in entries(wal)[6:]]
        path = wal.set_aside(REF, tail, "rows at 6 came from another WAL")
        append(wal, batch(6, epoch=2))
    assert path.parent == tmp_path / "cut"
    assert b"rows at 6 came from another WAL" in path.read_bytes()
    with open_wal(tmp_path) as wal:
        assert [(e.epoch, e.base_offset) for e in entries(wal)] == [*((1, base) for base in range(6)), (2, 6)]
        assert wal.recovered.parked == []
        kept = scan_file(path, f"cut/{path.name}", bytes.fromhex(wal.uuid), 0, {})
        assert [wal.read(entry) for entry in kept.entries] == tail


def test_a_crash_while_parking_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(3))
        with monkeypatch.context() as patch:
            patch.setattr(FileEncoder, "batch", _die)
            with pytest.raises(RuntimeError, match="died"):
                wal.park(REF, numbered(3))
        (tmp_path / "parked" / "left.tmp").write_bytes(b"half")
        assert wal.parked() == []
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == list(numbered(3))
        assert list((tmp_path / "parked").iterdir()) == []


def _die(*_args: object) -> None:
    raise RuntimeError("died")


def test_parking_nothing_or_somebody_elses_batches_is_refused(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        with pytest.raises(ValueError, match="no entries"):
            wal.park(REF, [])
        with pytest.raises(ValueError, match="orders-1 among those of orders-0"):
            wal.park(REF, [batch(0, OTHER)])
        assert list((tmp_path / "parked").iterdir()) == []


def test_names_of_topics_cannot_leave_the_folder(tmp_path: Path) -> None:
    odd = PartitionRef("../" + "x" * 240, "id", 3, "f")
    with open_wal(tmp_path) as wal:
        path = wal.park(odd, [batch(0, odd)])
        assert path.parent == tmp_path / "parked"
        assert wal.parked()[0].ref == odd
        assert files(tmp_path / "parked") == []
