"""Every reason to refuse a plan, one by one (R-7). The state is small: files 0-9, 10-19, 20-29, 30-39, a roll at 20."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import Plan, PlanKind, check_plan
from tests.support.logs import other, plan


def data_file(base: int, end: int, records: int | None = None, name: str = "a") -> DataFile:
    return DataFile(f"{base:020d}-1-{name}.parquet", 10, base, end, end - base if records is None else records, 1, 2, 3)


F0, F1, F2, F3 = (data_file(base, base + 10, name="live") for base in (0, 10, 20, 30))


def state(**changes: Any) -> PartitionState:
    return PartitionState(**{"version": 8, "end": 40, "epoch": 1, "files": [F0, F1, F2, F3], "rolls": [20]} | changes)


def paths(*files: DataFile) -> tuple[str, ...]:
    return tuple(file.path for file in files)


def merge(*files: DataFile, adds: tuple[DataFile, ...], **changes: Any) -> Plan:
    return plan(PlanKind.MERGE, changes.pop("base_version", 8), removes=paths(*files), adds=adds, **changes)


def refused(wanted: Plan, match: str, of: PartitionState | None = None) -> None:
    with pytest.raises(PlanRefused, match=match) as caught:
        check_plan(of or state(), wanted)
    assert caught.value.error == "INVALID_UPDATE_VERSION"


MERGED = data_file(0, 20, name="m")


def test_a_merge_that_fits() -> None:
    """R-7: the answer is what to remove."""
    assert check_plan(state(), merge(F0, F1, adds=(MERGED,))) == [F0, F1]


def test_two_runs_in_one_plan() -> None:
    wanted = merge(F0, F1, F3, adds=(MERGED, data_file(30, 40, name="m")))
    assert check_plan(state(), wanted) == [F0, F1, F3]


def test_from_the_future() -> None:
    """R-7: a plan made from a version that this log never had."""
    refused(merge(F0, F1, adds=(MERGED,), base_version=9), "starts from version 9, the log is at 8")


def test_a_removed_file_must_be_live() -> None:
    """R-7, I-8: what another plan removed meanwhile cannot be removed again."""
    refused(merge(F0, F1, adds=(MERGED,)), "not live any more", state(files=[F0, F2, F3]))


def test_a_file_is_removed_once() -> None:
    """R-7."""
    refused(merge(F0, F0, F1, adds=(MERGED,)), "removes a file twice")


@pytest.mark.parametrize(
    "name",
    [
        "../00000000000000000000-1-a.parquet",
        "sub/00000000000000000000-1-a.parquet",
        "/etc/00000000000000000000-1-a.parquet",
        "0-1-a.parquet",
        "00000000000000000000-1-a.txt",
        "00000000000000000000-1-A.parquet",
        "00000000000000000000-1-a.parquet\n",
        "",
    ],
)
def test_only_plain_names(name: str) -> None:
    """R-7, I-4: a plan cannot point outside the partition's folder."""
    refused(merge(F0, F1, adds=(other(MERGED, path=name),)), "not a plain data file name")


def test_names_are_used_once() -> None:
    """I-4: not that of a live file, of one that was removed, or of another file of the plan."""
    refused(merge(F0, F1, adds=(other(MERGED, path=F0.path),)), "used before")
    refused(merge(F0, F1, adds=(MERGED,)), "used before", state(removed={MERGED.path: 1}))
    refused(merge(F0, F1, adds=(other(F0, path="0" * 20 + "-1-x.parquet"),) * 2), "used before")


def test_the_log_start_only_rises() -> None:
    """R-7."""
    moved = state(log_start=15)
    refused(plan(PlanKind.RETENTION, 8, log_start=14), "may only rise from 15 to at most 40", moved)
    refused(plan(PlanKind.RETENTION, 8, log_start=41), "at most 40", moved)
    assert check_plan(moved, plan(PlanKind.RETENTION, 8, log_start=40)) == []


def test_added_rows_must_be_possible() -> None:
    """R-7: no empty file, and not more rows than offsets."""
    refused(merge(F0, F1, adds=(data_file(0, 20, 0),)), "says 0 rows")
    refused(merge(F0, F1, adds=(data_file(0, 19, 20),)), "says 20 rows in 0..18")


def test_added_ranges_must_not_overlap() -> None:
    """R-7."""
    refused(merge(F0, F1, adds=(data_file(0, 11, 10), data_file(10, 20, 10, "b"))), "overlap at 10")


def test_added_ranges_lie_inside_the_removed_ones() -> None:
    """R-7: neither beyond them nor over a file that stays."""
    refused(merge(F0, adds=(data_file(0, 11, 10),)), "outside the files")
    refused(merge(F1, adds=(data_file(9, 19),)), "outside the files")
    refused(merge(F0, F2, adds=(data_file(0, 30, 20),), base_version=8), "outside the files", state(rolls=[]))
    assert check_plan(state(files=[F0, F2, F3], rolls=[]), merge(F0, F2, adds=(data_file(0, 30, 20),))) == [F0, F2]


def test_no_file_crosses_a_roll() -> None:
    """R-7, R-10: 20 is where a segment begins."""
    refused(merge(F1, F2, adds=(data_file(10, 30),)), "crosses the segment boundary at 20")
    assert check_plan(state(), merge(F2, F3, adds=(data_file(20, 40),))) == [F2, F3]


def test_a_merge_keeps_the_row_count() -> None:
    """R-7."""
    refused(merge(F0, F1, adds=(data_file(0, 20, 19),)), "turns 20 rows into 19")
    refused(merge(F0, F1, adds=()), "turns 20 rows into 0")
    refused(merge(adds=()), "turns 0 rows into 0")


def trim(*adds: DataFile, removes: tuple[DataFile, ...] = (F0,)) -> Plan:
    return plan(PlanKind.TRIM, 8, removes=paths(*removes), adds=adds)


def test_a_trim_keeps_what_is_at_or_above_the_log_start() -> None:
    """R-7, R-11."""
    moved = state(log_start=4)
    assert check_plan(moved, trim(data_file(4, 10, name="t"))) == [F0]
    refused(trim(data_file(3, 10)), "from the log start 4 on", moved)
    refused(trim(data_file(5, 10)), "drops rows at or above the log start 4", moved)
    refused(trim(data_file(4, 9)), "from the log start 4 on", moved)
    refused(trim(data_file(4, 10, 5)), "drops rows", moved)


def test_a_trim_replaces_one_by_one() -> None:
    """R-7."""
    moved = state(log_start=4)
    refused(trim(), "one file by one", moved)
    refused(trim(data_file(4, 7), data_file(7, 10)), "one file by one", moved)
    refused(trim(data_file(4, 20), removes=(F0, F1)), "one file by one", moved)


def compact(**changes: Any) -> Plan:
    base = changes.pop("base_version", 8)
    merged = {"removes": paths(F0, F1), "adds": (data_file(2, 19, 5, "c"),), "first_dirty": 20} | changes
    return plan(PlanKind.COMPACT, base, **merged)


def test_a_compaction_starts_at_or_after_the_last_cleaning() -> None:
    """R-7: else a tombstone that was dropped could let an older value come back."""
    cleaned = state(last_cleaning=7)
    assert check_plan(cleaned, compact(base_version=7)) == [F0, F1]
    refused(compact(base_version=6), "before the last cleaning at 7", cleaned)


def test_a_compaction_makes_no_rows() -> None:
    """R-7."""
    wanted = compact(adds=(data_file(0, 20, 11),), removes=paths(F0, F1))
    refused(wanted, "turns 10 rows into 11", state(files=[other(F0, records=5), other(F1, records=5), F2, F3]))


def test_a_compaction_says_where_the_dirty_part_begins() -> None:
    """R-7, R-5."""
    refused(compact(first_dirty=None), "where the dirty part begins")
    refused(compact(first_dirty=19), "20 or later", state(first_dirty=20))
    refused(compact(first_dirty=41), "where the dirty part begins")


def test_a_compaction_may_leave_nothing() -> None:
    assert check_plan(state(), compact(adds=())) == [F0, F1]


@pytest.mark.parametrize("kind", [PlanKind.RETENTION, PlanKind.DELETE_RECORDS])
def test_retention_takes_only_what_is_below_its_log_start(kind: PlanKind) -> None:
    """R-7, R-11: whole files, nothing added."""
    assert check_plan(state(), plan(kind, 8, removes=paths(F0), log_start=10)) == [F0]
    assert check_plan(state(log_start=12), plan(kind, 8, removes=paths(F0))) == [F0]
    refused(plan(kind, 8, removes=paths(F0, F1), log_start=19), "rows at or above its log start 19")
    refused(plan(kind, 8, removes=paths(F0)), "rows at or above its log start 0")
    refused(plan(kind, 8, removes=paths(F0), adds=(data_file(5, 10),), log_start=10), "may not add files")
