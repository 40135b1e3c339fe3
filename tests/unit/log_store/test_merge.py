"""Which files are merged, and that nobody notices (R-10, R-11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.log_store.delta_log import DataFile
from sluice.log_store.merge import MOST_FILES, TIERS, choose_merge, choose_trim
from sluice.log_store.merger import merge_once
from sluice.log_store.values import OffsetRange
from tests.support.logs import append, append_one_by_one, batch, folder_cluster, memory_cluster, rows, values

KIB, MIB = 1024, 1024 * 1024
TARGET = 128 * MIB
FAN_IN = TIERS[0][1]


def file(base: int, end: int, size: int = KIB) -> DataFile:
    return DataFile(
        path=f"{base:020d}-1-x.parquet",
        size=size,
        base_offset=base,
        end_offset=end,
        records=end - base,
        min_ms=0,
        max_ms=0,
        modified_ms=0,
    )


def neighbours(count: int, size: int = KIB, start: int = 0) -> list[DataFile]:
    return [file(start + i, start + i + 1, size) for i in range(count)]


def one_segment(files: list[DataFile]) -> list[OffsetRange]:
    return [OffsetRange(files[0].base_offset, files[-1].end_offset)]


@pytest.mark.parametrize(("limit", "fan_in"), TIERS)
def test_each_tier_waits_for_its_number_of_neighbours(limit: int, fan_in: int) -> None:
    size = min(limit - 1, 17 * MIB)
    few, enough = neighbours(fan_in - 1, size), neighbours(fan_in, size)

    assert choose_merge(few, one_segment(few), TARGET, quiet=False) is None
    choice = choose_merge(enough, one_segment(enough), TARGET, quiet=False)

    assert choice is not None
    assert list(choice.files) == enough[: len(choice.files)]
    assert len(choice.files) >= 2


def test_a_merge_never_crosses_a_roll() -> None:
    """R-10."""
    files = neighbours(FAN_IN + 10)
    roll = FAN_IN - 5

    choice = choose_merge(files, [OffsetRange(0, roll), OffsetRange(roll, len(files))], TARGET, quiet=True)

    assert choice is not None
    assert choice.files[-1].end_offset <= roll


def test_large_files_stay_as_they_are_and_part_the_runs() -> None:
    files = [file(0, 1), file(1, 2), file(2, 3, TARGET // 2), file(3, 4), file(4, 5)]

    choice = choose_merge(files, one_segment(files), TARGET, quiet=True)

    assert choice is not None
    assert [f.base_offset for f in choice.files] == [0, 1]
    rest = [file(0, 2, 2 * KIB), *files[2:]]
    again = choose_merge(rest, one_segment(rest), TARGET, quiet=True)
    assert again is not None
    assert [f.base_offset for f in again.files] == [3, 4]


def test_a_merge_stays_below_the_target_and_below_a_bounded_number_of_files() -> None:
    heavy = neighbours(10, 50 * MIB)
    many = neighbours(MOST_FILES * 2)

    by_size = choose_merge(heavy, one_segment(heavy), TARGET, quiet=True)
    by_count = choose_merge(many, one_segment(many), TARGET, quiet=True)

    assert by_size is not None
    assert sum(f.size for f in by_size.files) <= TARGET
    assert by_count is not None
    assert len(by_count.files) == MOST_FILES


def test_the_tail_of_a_busy_partition_waits_that_of_a_quiet_one_does_not() -> None:
    files = neighbours(3)

    assert choose_merge(files, one_segment(files), TARGET, quiet=False) is None
    assert choose_merge(files, one_segment(files), TARGET, quiet=True) is not None


def test_one_file_is_not_merged_with_itself() -> None:
    for files in ([file(0, 9)], [file(0, 1, TARGET), file(1, 2)]):
        assert choose_merge(files, one_segment(files), TARGET, quiet=True) is None


def test_the_file_at_the_log_start_is_the_one_to_trim() -> None:
    """R-11."""
    files = [file(0, 10), file(10, 20)]

    assert choose_trim(files, 5) == files[0]
    assert choose_trim(files, 15) == files[1]
    for whole in (0, 10, 20):
        assert choose_trim(files, whole) is None


# --- for real ------------------------------------------------------------------------------------


def test_merging_keeps_every_row_and_its_offset() -> None:
    texts = [f"v{i}" for i in range(30)]
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", texts)
        partition = log.partition("t", 0)
        before = rows(log, "t")

        merged = merge_once(partition, partition.config, quiet=True)

        assert merged is not None
        assert (merged.files, merged.records) == (30, 30)
        assert len(partition.state.files) == 1
        assert rows(log, "t") == before == list(enumerate(text.encode() for text in texts))
        assert merge_once(partition, partition.config, quiet=True) is None
        assert rows(cluster.reopen(), "t") == before


def test_a_trim_drops_just_the_rows_below_the_log_start(tmp_root: Path) -> None:
    """R-11: afterwards stock readers see no row below the log start."""
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch(*"abcdef"))
        log.delete_records("t", 0, 4)
        partition = log.partition("t", 0)
        assert partition.state.files[0].base_offset == 0

        merged = merge_once(partition, partition.config, quiet=False)

        assert merged is not None
        assert [(f.base_offset, f.records) for f in partition.state.files] == [(4, 2)]
        assert values(log, "t") == [b"e", b"f"]


def test_records_deleted_while_a_merge_was_reading_make_it_stand_back() -> None:
    """R-7: a plan whose inputs are gone is refused, and the file it wrote is removed again."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abcd")
        partition = log.partition("t", 0)
        folder = partition.ref.folder
        cluster.store.on("put", lambda *_: log.delete_records("t", 0, 2), f"{folder}/*.parquet", when="after")

        assert merge_once(partition, partition.config, quiet=True) is None

        assert values(log, "t") == [b"c", b"d"]
        named = {item.name for item in cluster.store.list(folder)}
        live, removed = partition.known_files()
        assert named == live | removed.keys()
