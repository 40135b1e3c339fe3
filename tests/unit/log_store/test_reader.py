"""Bounded reads over files: which files, which row groups, which rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.log_store import file_rows, parquet, reader
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import CorruptData
from sluice.log_store.records import stored_table
from sluice.log_store.store import open_store
from tests.support.faulty_store import FaultyStore
from tests.support.logs import batch, other

FOLDER = "t/0"


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(open_store("memory://"))


def put(store: FaultyStore, base: int, count: int, size: int = 5) -> DataFile:
    encoded = parquet.encode(
        stored_table([batch(*[b"%05d" % n + b"x" * size for n in range(base, base + count)])], base)
    )
    name = f"{base:020d}-1-a.parquet"
    store.put(f"{FOLDER}/{name}", encoded.data)
    return DataFile.of(name, encoded, 1)


def offsets(batches: Iterator[object]) -> list[int]:
    return [o for piece in batches for o in piece.column(0).to_pylist()]  # type: ignore[attr-defined]


def test_files_are_found_by_bisection(store: FaultyStore) -> None:
    files = [put(store, base, 10) for base in (0, 10, 30)]
    names = lambda start, end, count=3: [f.base_offset for f in reader.files_between(files, count, start, end)]  # noqa: E731
    assert names(0, 40) == [0, 10, 30]
    assert names(9, 10) == [0]
    assert names(10, 11) == [10]
    assert names(20, 30) == []
    assert names(25, 31) == [30]
    assert names(40, 50) == []
    assert names(0, 40, count=2) == [0, 10]


def test_rows_are_cut_exactly(store: FaultyStore) -> None:
    files = [put(store, base, 10) for base in (0, 10)]
    for readahead in (0, 3):
        assert offsets(reader.scan(store, FOLDER, files, 8, 12, readahead=readahead)) == [8, 9, 10, 11]
    assert offsets(reader.scan(store, FOLDER, files, 12, 12)) == []


@pytest.mark.parametrize("run_bytes", [10, 1_000, file_rows.RUN_BYTES])
def test_of_a_large_file_only_the_needed_groups_are_decoded(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 2_000)
    monkeypatch.setattr(file_rows, "RUN_BYTES", run_bytes)
    file = put(store, 100, 200, size=40)
    decoded: list[int] = []
    real = parquet.read_groups

    def spy(opened: object, groups: list[int], *more: object) -> object:
        decoded.extend(groups)
        return real(opened, groups, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(parquet, "read_groups", spy)
    assert offsets(reader.scan(store, FOLDER, [file], 150, 153)) == [150, 151, 152]
    assert len(decoded) == 1
    assert offsets(reader.scan(store, FOLDER, [file], 0, 999, readahead=2)) == list(range(100, 300))
    decoded.clear()
    bounded = reader.take(reader.scan(store, FOLDER, [file], 100, 300), 100, 300, max_records=3, max_bytes=1 << 20)
    assert (bounded.count, bounded.next_offset, decoded) == (3, 103, [0])


def test_a_file_with_other_rows_than_its_add_is_refused(store: FaultyStore) -> None:
    """I-10: rows and offsets of a file are known beforehand."""
    file = put(store, 0, 10)
    for wrong in (other(file, records=9), other(file, end_offset=11), other(file, base_offset=1)):
        with pytest.raises(CorruptData):
            offsets(reader.scan(store, FOLDER, [wrong], 0, 20))


def test_another_file_under_the_name_is_refused(store: FaultyStore) -> None:
    """I-10: its footer has another checksum."""
    file = put(store, 0, 10)
    store.replace(f"{FOLDER}/{file.path}", parquet.encode(stored_table([batch(*"0123456789")], 0)).data)
    with pytest.raises(CorruptData, match="checksum"):
        offsets(reader.scan(store, FOLDER, [file], 0, 20))


def test_a_missing_file_is_named(store: FaultyStore) -> None:
    """I-9."""
    file = put(store, 0, 10)
    store.delete(f"{FOLDER}/{file.path}")
    for readahead in (0, 2):
        with pytest.raises(file_rows.FileVanished) as caught:
            offsets(reader.scan(store, FOLDER, [file], 0, 20, readahead=readahead))
        assert caught.value.file == file


def test_a_search_by_time_opens_only_files_that_can_hold_it(store: FaultyStore) -> None:
    """I-12: the statistics are the time index."""
    files = [other(put(store, base, 1), max_ms=ms, min_ms=ms) for base, ms in ((0, 1), (1, 2))]
    assert reader.first_at_or_after(store, FOLDER, files, 0, 2, 3) is None
    assert not [call for call in store.calls if call[0] in ("open_input", "get", "get_range")]
