"""What is still needed of the files of a WAL."""

from __future__ import annotations

from sluice.log_store.values import PartitionRef
from sluice.log_store.wal import SyncPoint
from sluice.log_store.wal_ledger import Ledger, LiveFile
from sluice.log_store.wal_values import NO_LIMIT, Release, key_of
from tests.support.wal import REF, ref

KEY = key_of(REF)


def ledger_with(*seqs: int) -> Ledger:
    ledger = Ledger()
    for seq in seqs:
        ledger.files[seq] = LiveFile(seq, f"{seq}", 10)
    return ledger


def release(start: int = 0, end: int = NO_LIMIT, *, seq: int = 1, of: PartitionRef = REF) -> Release:
    return Release(of, start, end, False, seq, 100)


def test_a_file_is_covered_when_all_its_partitions_are() -> None:
    ledger = ledger_with(1)
    file = ledger.files[1]
    file.add(KEY, 0, 5)
    file.add(key_of(ref(1)), 7, 9)
    ledger.synced({REF: SyncPoint(1, 5)})
    assert not ledger.covered(file)
    ledger.synced({ref(1): SyncPoint(1, 8)})
    assert not ledger.covered(file)
    ledger.synced({ref(1): SyncPoint(2, 9)})
    assert ledger.covered(file)


def test_a_later_epoch_that_went_back_is_a_run_of_its_own() -> None:
    ledger = ledger_with(1)
    for base, end in ((0, 5), (5, 9), (3, 4)):
        ledger.files[1].add(KEY, base, end)
    assert ledger.files[1].runs[KEY] == [(0, 9), (3, 4)]


def test_a_release_takes_offsets_out_of_all_files() -> None:
    ledger = ledger_with(1, 2)
    ledger.files[1].add(KEY, 0, 10)
    ledger.files[2].add(KEY, 10, 20)
    ledger.released(release(5, 15))
    assert [file.runs[KEY] for file in ledger.files.values()] == [[(0, 5)], [(15, 20)]]
    ledger.released(release())
    assert [file.runs for file in ledger.files.values()] == [{}, {}]


def test_a_wider_release_replaces_a_narrower_one_and_not_the_other_way_round() -> None:
    ledger = ledger_with(1)
    ledger.remember(release(5, 15))
    ledger.remember(release(0, 20))
    ledger.remember(release(0, 10))
    assert ledger.needed_releases(()) == [release(0, 20), release(0, 10)]


def test_a_release_is_stated_as_long_as_a_file_that_it_hides_may_come_back() -> None:
    """A crash can undo an unlink: what was released would be replayed."""
    ledger = ledger_with(5)
    ledger.remember(release(seq=3))
    assert ledger.needed_releases(leaving={2}) == [release(seq=3)]
    assert ledger.needed_releases(leaving=()) == []
    assert ledger.releases == {}
