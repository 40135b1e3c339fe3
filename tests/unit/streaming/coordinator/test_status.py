"""The status of a partition and of a group, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.streaming.coordinator.status import (
    SAMPLES,
    Sample,
    Status,
    Window,
    group_status,
    partition_status,
)

WINDOW = 60_000


def judged(*commits: tuple[int, int | None], lag: int = 5, ago_ms: int = 1_000) -> Status:
    """Commits of (offset, lag), one per second, the last one `ago_ms` ago."""
    samples = [Sample(at * 1_000, offset, behind) for at, (offset, behind) in enumerate(commits)]
    return partition_status(samples, lag, samples[-1].ms + ago_ms, WINDOW)


def test_no_lag_is_always_well() -> None:
    assert judged((1, 9), (1, 9), (1, 9), lag=0, ago_ms=10 * WINDOW) is Status.OK


def test_who_commits_nothing_for_the_window_has_stopped_even_if_it_had_no_lag() -> None:
    assert judged((1, 0), (2, 0), ago_ms=WINDOW + 1) is Status.STOP
    assert judged((1, 0), (2, 0), ago_ms=WINDOW) is Status.OK


def test_a_slow_committer_is_given_as_long_as_its_samples_span() -> None:
    samples = [Sample(at * WINDOW, at, 5) for at in range(3)]
    assert partition_status(samples, 5, samples[-1].ms + 2 * WINDOW, WINDOW) is not Status.STOP
    assert partition_status(samples, 5, samples[-1].ms + 2 * WINDOW + 1, WINDOW) is Status.STOP


def test_no_lag_at_any_time_is_well() -> None:
    assert judged((1, 9), (2, 0), (3, 9)) is Status.OK


def test_offsets_that_do_not_move_are_stalled() -> None:
    assert judged((4, 5), (4, 6), (4, 7)) is Status.STALL


def test_offsets_that_go_back_are_an_error() -> None:
    assert judged((4, 5), (2, 7), (5, 4)) is Status.ERR


def test_lag_that_never_shrinks_is_a_warning() -> None:
    assert judged((1, 5), (2, 5), (3, 6)) is Status.WARN
    assert judged((1, 5), (2, 4), (3, 6)) is Status.OK


def test_too_few_samples_say_nothing() -> None:
    assert judged((4, 5), (4, 6)) is Status.OK
    assert partition_status([], 5, 0, WINDOW) is Status.OK


@pytest.mark.parametrize(
    ("partitions", "group"),
    [
        ([], "OK"),
        (["OK", "OK"], "OK"),
        (["OK", "WARN"], "WARN"),
        (["WARN", "STALL"], "ERR"),
        (["STOP"], "ERR"),
        (["ERR"], "ERR"),
    ],
)
def test_a_group_is_as_well_as_its_worst_partition(partitions: list[str], group: str) -> None:
    assert group_status(Status(one) for one in partitions) == group


def test_a_window_keeps_the_last_samples_apart() -> None:
    window = Window()
    for ms in range(0, 30_000, 100):
        if window.wants(ms, 1_000):
            window.add(Sample(ms, ms, 1))
    assert [sample.ms for sample in window.samples()] == list(range(20_000, 30_000, 1_000))
    assert len(window.samples()) == SAMPLES


def test_a_clock_that_was_set_back_begins_a_new_window() -> None:
    window = Window()
    window.add(Sample(10_000, 1, 1))
    assert window.wants(5_000, 1_000)
    window.add(Sample(5_000, 2, 1))
    assert [sample.ms for sample in window.samples()] == [5_000]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=10),
    st.integers(0, 9),
    st.integers(0, 10**6),
)
def test_every_history_has_a_status(commits: list[tuple[int, int | None]], lag: int, ago_ms: int) -> None:
    samples = [Sample(at * 1_000, *one) for at, one in enumerate(commits)]
    found = partition_status(samples, lag, 10_000 + ago_ms, WINDOW)
    assert (found is Status.OK) or lag > 0
