"""Admission and splitting: pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.streaming.spark.admission import Patience, at_most, up_to
from sluice.streaming.spark.data_loss import DataLoss, LossJudge
from sluice.streaming.spark.planning import PACKED_ROWS, Pack, Slice, packed
from sluice.streaming.spark.splitting import split

ranges = st.builds(lambda start, count: OffsetRange(start, start + count), st.integers(0, 2**60), st.integers(0, 2**55))
backlogs = st.dictionaries(st.integers(0, 30), ranges, min_size=1)
small = st.builds(lambda start, count: OffsetRange(start, start + count), st.integers(0, 99), st.integers(0, 5_000))


def total(found: dict[int, OffsetRange]) -> int:
    return sum(wanted.count for wanted in found.values())


@given(backlog=backlogs, limit=st.integers(1, 2**50))
def test_a_limit_is_kept_and_starves_nobody(backlog: dict[int, OffsetRange], limit: int):
    found = at_most(limit, backlog)
    waiting = sum(wanted.count > 0 for wanted in backlog.values())
    assert total(found) <= max(limit, min(limit, total(backlog)) + waiting)
    for key, wanted in backlog.items():
        assert found[key].start == wanted.start
        assert found[key].end <= wanted.end
        assert found[key].count > 0 or wanted.count == 0
    if total(backlog) <= limit:
        assert found == backlog


def test_shares_are_in_proportion():
    found = at_most(100, {"a": OffsetRange(0, 900), "b": OffsetRange(50, 150), "c": OffsetRange(7, 8)})
    assert {key: wanted.count for key, wanted in found.items()} == {"a": 89, "b": 9, "c": 1}


@given(backlog=backlogs, limit=st.integers(1, 2**50))
def test_a_limited_backlog_is_read_up(backlog: dict[int, OffsetRange], limit: int):
    """Every batch makes progress, so that AvailableNow ends."""
    before = total(backlog)
    assert total(at_most(limit, backlog)) >= min(1, before)


@given(backlog=backlogs, target=st.dictionaries(st.integers(0, 30), st.integers(0, 2**61)))
def test_a_target_is_never_passed(backlog: dict[int, OffsetRange], target: dict[int, int]):
    found = up_to(target, backlog)
    assert found.keys() == backlog.keys() & target.keys()
    for key, wanted in found.items():
        assert wanted.start == backlog[key].start
        assert wanted.end == max(wanted.start, min(backlog[key].end, target[key]))


def test_patience():
    patience = Patience(at_least=10, longest_s=60.0)
    assert patience.lets_through(1, 0.0), "the first batch does not wait"
    assert not patience.lets_through(9, 59.0)
    assert patience.lets_through(10, 59.5)
    assert not patience.lets_through(9, 119.0), "measured from the last batch"
    assert patience.lets_through(1, 119.5)


@given(
    found=st.dictionaries(st.integers(0, 9), small),
    least=st.none() | st.integers(1, 40),
    most=st.none() | st.integers(1, 900),
)
def test_pieces_are_the_ranges_again(found: dict[int, OffsetRange], least: int | None, most: int | None):
    pieces = split(found, min_partitions=least, max_records=most)
    for key, wanted in found.items():
        own = [piece for name, piece in pieces if name == key]
        assert all(piece.count > 0 for piece in own)
        assert [o for piece in own for o in range(piece.start, piece.end)] == list(range(wanted.start, wanted.end))
    if most is not None:
        assert all(piece.count <= most for _, piece in pieces)
    if least is None and most is None:
        assert len(pieces) == sum(wanted.count > 0 for wanted in found.values())


@pytest.mark.parametrize(
    ("sizes", "least", "expected"),
    [
        ([100], 4, [4]),
        ([100, 100], 2, [1, 1]),
        ([100, 100], 6, [3, 3]),
        ([10, 1000], 4, [1, 3]),
        ([3], 10, [3]),
        ([100, 100, 100], 2, [1, 1, 1]),
    ],
)
def test_large_ranges_are_cut_for_a_least_number_of_tasks(sizes: list[int], least: int, expected: list[int]):
    pieces = split({n: OffsetRange(0, size) for n, size in enumerate(sizes)}, min_partitions=least)
    assert [sum(key == n for key, _ in pieces) for n in range(len(sizes))] == expected


def test_both_limits_together_give_the_larger_number():
    whole = {"a": OffsetRange(0, 100)}
    assert len(split(whole, min_partitions=3, max_records=10)) == 10
    assert len(split(whole, min_partitions=20, max_records=10)) == 20


# --- data loss ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "log_start", "end", "left"),
    [
        (OffsetRange(3, 8), 0, 10, OffsetRange(3, 8)),
        (OffsetRange(3, 8), 3, 8, OffsetRange(3, 8)),
        (OffsetRange(3, 8), 5, 10, OffsetRange(5, 8)),
        (OffsetRange(3, 8), 9, 10, OffsetRange(8, 8)),
        (OffsetRange(3, 8), 0, 6, OffsetRange(3, 6)),
        (OffsetRange(3, 8), 0, 1, OffsetRange(3, 3)),
    ],
)
def test_what_is_left_lies_inside_what_was_wanted(wanted: OffsetRange, log_start: int, end: int, left: OffsetRange):
    assert LossJudge(fail=False).readable("t-0", wanted, log_start, end) == left
    if left == wanted:
        assert LossJudge(fail=True).readable("t-0", wanted, log_start, end) == left
    else:
        with pytest.raises(DataLoss, match="failOnDataLoss"):
            LossJudge(fail=True).readable("t-0", wanted, log_start, end)


# --- packing ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 2 * PACKED_ROWS), max_size=40))
def test_small_slices_share_a_task_and_stay_in_order(counts: list[int]):
    ref = PartitionRef("t", "id", 0, "topics/t/0")
    slices = [Slice("root", ref, OffsetRange(0, count), (), 0) for count in counts]
    tasks = [task.slices if isinstance(task, Pack) else (task,) for task in packed(slices)]
    assert [one for task in tasks for one in task] == slices
    sizes = [sum(one.wanted.count for one in task) for task in tasks]
    assert all(size <= PACKED_ROWS or len(task) == 1 for size, task in zip(sizes, tasks, strict=True))
    begins = [task[0].wanted.count for task in tasks]
    assert all(size + begin > PACKED_ROWS for size, begin in zip(sizes, begins[1:], strict=False)), "it had room"
