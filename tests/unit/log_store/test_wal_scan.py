"""Damage is found, told apart and never accepted in silence (I-10)."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Literal

import pytest

from sluice.log_store.errors import UnsupportedFormat
from sluice.log_store.wal import CorruptWal, WalEntryRef
from sluice.log_store.wal_format import FileEncoder, FileHeader, Kind
from tests.support.wal import (
    FILE_BYTES,
    append,
    append_group,
    bases,
    batch,
    entries,
    files,
    flip,
    numbered,
    open_wal,
    overwrite,
    read_all,
    ref,
    sync,
)


@pytest.fixture
def three(tmp_path: Path) -> tuple[Path, list[WalEntryRef]]:
    """A WAL of three batches in one file, each in a group of its own, and where they lie."""
    home = tmp_path / "wal"
    with open_wal(home) as wal:
        append(wal, *numbered(3))
    shutil.copytree(home, tmp_path / "copy")
    with open_wal(tmp_path / "copy") as wal:
        found = entries(wal)
    assert len({entry.file for entry in found}) == 1
    return home, found


@pytest.mark.parametrize("how", ["truncate", "zero", "garbage"])
def test_a_torn_last_entry_costs_only_itself(
    tmp_path: Path, three: tuple[Path, list[WalEntryRef]], how: Literal["truncate", "zero", "garbage"]
) -> None:
    home, found = three
    last = found[-1]
    for position in range(last.position, last.position + last.length):
        hurt = tmp_path / f"{how}-{position}"
        shutil.copytree(home, hurt)
        path = hurt / last.file
        kept = path.read_bytes()[:position]
        if how == "truncate":
            path.write_bytes(kept)
        elif how == "zero":
            path.write_bytes(kept.ljust(FILE_BYTES, b"\0"))
        else:
            path.write_bytes(kept.ljust(FILE_BYTES, b"\xa5"))
        with open_wal(hurt) as wal:
            assert read_all(wal) == list(numbered(2)), position
            findings = wal.recovered.findings
            if position == last.position and how != "garbage":
                assert findings == []  # as if it had never been written
                continue
            assert [(f.severity, f.position, f.before) for f in findings] == [("tail", last.position, found[1])], (
                position
            )
        shutil.rmtree(hurt)


def test_a_flipped_bit_anywhere_in_an_entry_is_found(tmp_path: Path, three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    middle = found[1]
    for position in range(middle.position, middle.position + middle.length):
        hurt = tmp_path / str(position)
        shutil.copytree(home, hurt)
        flip(hurt / middle.file, position)
        with open_wal(hurt) as wal:
            assert read_all(wal) == [batch(0), batch(2)], position
            (finding,) = wal.recovered.findings
            assert (finding.severity, finding.position) == ("middle", middle.position)
            assert (finding.before, finding.after) == (found[0], found[2])
            assert "offsets 0..0" in str(finding)
        shutil.rmtree(hurt)


def test_an_entry_is_valid_in_its_own_place_only(three: tuple[Path, list[WalEntryRef]]) -> None:
    """A write that the disk led astray, or a copy: the bytes are good and the place is not."""
    home, found = three
    path = home / found[0].file
    first = path.read_bytes()[found[0].position : found[0].position + found[0].length]
    overwrite(path, found[1].position, first)
    with open_wal(home) as wal:
        assert bases(wal) == [0, 2]
        assert [(f.severity, f.position) for f in wal.recovered.findings] == [("middle", found[1].position)]


def test_a_lost_page_in_the_middle_is_no_end(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    overwrite(home / found[1].file, found[1].position, bytes(found[1].length))
    with open_wal(home) as wal:
        assert bases(wal) == [0, 2]
        assert [f.severity for f in wal.recovered.findings] == ["middle"]


@pytest.mark.parametrize("sparse", [True, False])
def test_entries_behind_many_lost_pages_are_found(tmp_path: Path, sparse: bool) -> None:
    """Whether the file system knows of the zeros, and skips them, or not."""
    large = {"file_bytes": 16 << 20, "max_bytes": 1 << 30}
    with open_wal(tmp_path / "wal", **large) as wal:
        append(wal, batch(0), batch(1, size=3_000_001), batch(2))
    shutil.copytree(tmp_path / "wal", tmp_path / "copy")
    with open_wal(tmp_path / "copy", **large) as wal:
        lost = entries(wal)[1]
    path = tmp_path / "wal" / lost.file
    content = path.read_bytes()
    first, last = content[: lost.position], content[lost.position + lost.length :]
    with path.open("wb") as file:
        file.write(first)
        if sparse:
            file.seek(lost.length, os.SEEK_CUR)
        else:
            file.write(bytes(lost.length))
        file.write(last)
    with open_wal(tmp_path / "wal", **large) as wal:
        assert bases(wal) == [0, 2]
        assert [(f.severity, f.position) for f in wal.recovered.findings] == [("middle", lost.position)]


def test_a_hole_in_the_last_group_is_not_called_lost_data(tmp_path: Path) -> None:
    """A power loss may write the pages of one group in any order: nobody was told of it."""
    with open_wal(tmp_path) as wal:
        append_group(wal, [batch(1), batch(2), batch(3)], batch(0))
    with open_wal(tmp_path) as wal:
        hole = entries(wal)[2]
    overwrite(tmp_path / hole.file, hole.position, bytes(hole.length))
    with open_wal(tmp_path) as wal:
        assert bases(wal) == [0, 1, 3]
        (finding,) = wal.recovered.findings
        assert finding.severity == "group"
        assert finding.after is not None
        assert finding.after.base_offset == 3
        append(wal, batch(4))
    with open_wal(tmp_path) as wal:  # nor later, when a new file states where this one ended
        assert wal.recovered.findings == [finding]


def test_the_next_file_proves_that_the_last_group_was_acknowledged(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(100))
    first = files(tmp_path)[0]
    with open_wal(tmp_path) as wal:
        inside = [entry for entry in entries(wal) if entry.file == first.name]
    flip(first, inside[-1].position + 20)
    with open_wal(tmp_path) as wal:
        assert [(f.file, f.severity) for f in wal.recovered.findings] == [(first.name, "middle")]
        assert len(bases(wal)) == 99


@pytest.mark.parametrize("keep", ["half", "nothing"])
def test_a_file_that_lost_its_end_is_reported(tmp_path: Path, keep: str) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(100))
    first = files(tmp_path)[0]
    with open_wal(tmp_path) as wal:
        inside = [entry for entry in entries(wal) if entry.file == first.name]
    cut = inside[3].position if keep == "half" else 0
    first.write_bytes(first.read_bytes()[:cut].ljust(FILE_BYTES, b"\0"))
    with open_wal(tmp_path) as wal:
        assert [(f.file, f.position, f.severity) for f in wal.recovered.findings] == [(first.name, cut, "middle")]
        assert bases(wal) == [*range(3 if keep == "half" else 0), *range(len(inside), 100)]


def test_a_torn_tail_stays_a_tail_after_later_runs(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    flip(home / found[2].file, found[2].position + 20)
    for base in (2, 3):
        with open_wal(home) as wal:
            assert [f.severity for f in wal.recovered.findings] == ["tail"]
            append(wal, batch(base))
    with open_wal(home) as wal:
        assert read_all(wal) == list(numbered(4))


def test_entries_outlive_the_header_of_their_file(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    overwrite(home / found[0].file, 0, b"\xee" * 64)
    with open_wal(home) as wal:
        assert read_all(wal) == list(numbered(3))
        assert [f.severity for f in wal.recovered.findings] == ["middle"]


def test_a_lost_definition_is_replaced_by_that_of_another_file(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(60))
    first = files(tmp_path)[0]
    flip(first, 64 + 20)  # the first entry defines the partition
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == list(numbered(60))
        assert [f.position for f in wal.recovered.findings] == [64]


def test_a_borrowed_definition_outlives_the_file_that_lent_it(tmp_path: Path) -> None:
    """Found by property/test_wal.py: the lender was cut, and what had been found by its help was lost."""
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(30))
    lender, borrower = files(tmp_path)
    flip(borrower, 64 + 20)
    with open_wal(tmp_path) as wal:
        assert bases(wal) == list(range(30))
        kept = [entry for entry in entries(wal) if entry.file == borrower.name]
        sync(wal, kept[0].base_offset)
    for _start in range(2):  # the file that states it now may be cut in its turn
        assert lender not in files(tmp_path)
        with open_wal(tmp_path) as wal:
            assert bases(wal) == [entry.base_offset for entry in kept]
            sync(wal, kept[0].base_offset, version=2)
            append(wal, batch(0, ref(5)))
            wal.release(ref(5))


def test_batches_without_any_definition_are_reported(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    flip(home / found[0].file, 64 + 20)
    with open_wal(home) as wal:
        assert bases(wal) == []
        told = " ".join(f.what for f in wal.recovered.findings)
        assert all(f"offsets {base}..{base}" in told for base in range(3))
        append(wal, batch(0, ref(5)))
    with open_wal(home) as wal:  # the unknown number was not given away
        assert bases(wal, ref(5)) == [0]
        assert bases(wal) == []


def test_read_checks_again(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    with open_wal(home) as wal:
        flip(home / found[1].file, found[1].position + found[1].length - 1)
        with pytest.raises(CorruptWal, match="at byte"):
            wal.read(entries(wal)[1])
        assert wal.read(entries(wal)[2]) == batch(2)


def test_reading_a_cut_entry_is_refused(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, *numbered(100))
    with open_wal(tmp_path) as wal:
        gone = entries(wal)[0]
        sync(wal, 100)
        append(wal, *numbered(100, start=100))
        wal.close()
    with open_wal(tmp_path) as wal, pytest.raises(Exception, match=gone.file):
        wal.read(gone)


def test_a_later_leader_may_go_back(tmp_path: Path) -> None:
    """Epoch 2 recovered at offset 1: everything is shown, in order, and not judged."""
    with open_wal(tmp_path) as wal:
        append(wal, batch(0), batch(1), batch(2), batch(1, epoch=2), batch(2, epoch=2))
    with open_wal(tmp_path) as wal:
        assert [(e.epoch, e.base_offset) for e in entries(wal)] == [(1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
        assert wal.recovered.findings == []


def test_an_equal_repeat_is_one_entry_and_an_unequal_one_is_reported(tmp_path: Path) -> None:
    with open_wal(tmp_path) as wal:
        append(wal, batch(0), batch(1), batch(2), batch(1), batch(2), batch(2, size=7))
    with open_wal(tmp_path) as wal:
        assert read_all(wal) == [batch(0), batch(1), batch(2), batch(2, size=7)]
        assert ["same offsets" in f.what for f in wal.recovered.findings] == [True]


def test_an_entry_of_a_newer_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = FileEncoder.entry

    def newer(self: FileEncoder, kind: int, body: bytes, payload: memoryview | None = None) -> None:
        real(self, 99 if kind == Kind.BATCH else kind, body, payload)  # type: ignore[arg-type]

    monkeypatch.setattr(FileEncoder, "entry", newer)
    with open_wal(tmp_path) as wal:
        append(wal, batch(0))
    for _ in range(2):  # and the lock is let go
        with pytest.raises(UnsupportedFormat, match="kind 99"):
            open_wal(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_wal(tmp_path).close()
    meta = tmp_path / "meta.json"
    fields = json.loads(meta.read_text())
    assert fields["format"] == 1
    meta.write_text(json.dumps(fields | {"format": 2}))
    with pytest.raises(UnsupportedFormat, match="format 2"):
        open_wal(tmp_path)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"uuid": "zz", "format": 1}'])
def test_files_whose_owner_is_unknown_are_refused(three: tuple[Path, list[WalEntryRef]], content: bytes | None) -> None:
    home, _found = three
    if content is None:
        (home / "meta.json").unlink()
    else:
        (home / "meta.json").write_bytes(content)
    with pytest.raises(CorruptWal, match=r"meta\.json"):
        open_wal(home)


def test_a_file_of_another_wal_is_refused(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, _found = three
    header = FileHeader(bytes(16), 50, 0, 0).encode()
    (home / f"wal-{50:020}.log").write_bytes(header + bytes(100))
    with pytest.raises(CorruptWal, match="another WAL"):
        open_wal(home)


def test_an_impossible_length_does_not_lead_the_scan_astray(three: tuple[Path, list[WalEntryRef]]) -> None:
    home, found = three
    for length in (1, 15, FILE_BYTES, 2**32 - 1):
        overwrite(home / found[1].file, found[1].position, struct.pack("<I", length))
        with open_wal(home) as wal:
            assert bases(wal) == [0, 2]


def test_a_scan_keeps_no_payload_and_reads_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_wal(tmp_path, file_bytes=8 << 20, max_bytes=1 << 30) as wal:
        append(wal, *(batch(base, size=3_000_000) for base in range(4)))
    real, largest = os.pread, []
    monkeypatch.setattr(os, "pread", lambda fd, n, at: (largest.append(n), real(fd, n, at))[1])
    with open_wal(tmp_path, file_bytes=8 << 20, max_bytes=1 << 30) as wal:
        assert bases(wal) == [0, 1, 2, 3]
    assert max(largest) <= 1 << 20


def test_a_wal_that_was_only_prepared_is_clean(tmp_path: Path) -> None:
    for _ in range(3):
        with open_wal(tmp_path) as wal:
            assert wal.recovered.findings == []
            assert wal.size_bytes == 0
