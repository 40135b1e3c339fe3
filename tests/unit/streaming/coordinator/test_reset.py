"""Where a reset puts a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.errors import InvalidRequest, NonEmptyGroup
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.reset import (
    Position,
    Scenario,
    chosen,
    parse_scope,
    plan,
    refuse_active,
    whole_number,
)
from sluice.streaming.coordinator.reset_texts import datetime_ms, duration_ms, file_offsets
from sluice.streaming.coordinator.resetting import parse_request
from sluice.streaming.groups import Now, Phase, new_group

T0 = TopicPartition("t", 0)


def target(scenario: Scenario, at: Position, number: int = 0) -> int:
    (row,) = plan(scenario, {T0: at}, number)
    assert row.current == at.committed
    return row.new


@pytest.mark.parametrize(
    ("scenario", "number", "expected"),
    [
        (Scenario.TO_EARLIEST, 0, 10),
        (Scenario.TO_LATEST, 0, 50),
        (Scenario.TO_CURRENT, 0, 70),  # not clamped
        (Scenario.TO_OFFSET, 20, 20),
        (Scenario.TO_OFFSET, 5, 10),
        (Scenario.TO_OFFSET, 99, 50),
        (Scenario.SHIFT_BY, -40, 30),
        (Scenario.SHIFT_BY, -99, 10),
        (Scenario.SHIFT_BY, 99, 50),
        (Scenario.TO_DATETIME, 0, 33),
        (Scenario.BY_DURATION, 0, 33),
    ],
)
def test_each_scenario(scenario: Scenario, number: int, expected: int) -> None:
    assert target(scenario, Position(10, 50, 70, at_time=33), number) == expected


def test_without_a_commit_current_means_latest_and_a_shift_fails_the_run() -> None:
    bare = Position(10, 50, None)
    assert target(Scenario.TO_CURRENT, bare) == 50
    with pytest.raises(InvalidRequest, match="t-0"):
        plan(Scenario.SHIFT_BY, {TopicPartition("t", 1): Position(0, 9, 1), T0: bare}, 1)


def test_a_time_after_the_last_record_means_latest() -> None:
    assert target(Scenario.TO_DATETIME, Position(10, 50, 20, at_time=None)) == 50


def test_a_file_says_it_for_each_partition_and_is_clamped() -> None:
    rows = plan(Scenario.FROM_FILE, {T0: Position(10, 50, None)}, offsets={T0: 7})
    assert [row.new for row in rows] == [10]


@given(st.integers(0, 100), st.integers(0, 100), st.integers(-200, 300))
def test_the_target_lies_in_the_log(start: int, length: int, wanted: int) -> None:
    at = Position(start, start + length, start)
    assert at.start <= target(Scenario.TO_OFFSET, at, wanted) <= at.latest
    assert at.start <= target(Scenario.SHIFT_BY, at, wanted) <= at.latest


@pytest.mark.parametrize("phase", list(Phase))
def test_only_a_group_without_members_may_be_moved(phase: Phase) -> None:

    group = new_group("g", Now(0, 0))._replace(phase=phase)
    if phase in (Phase.EMPTY, Phase.DEAD):
        refuse_active(group)
    else:
        with pytest.raises(NonEmptyGroup, match=phase):
            refuse_active(group)
    refuse_active(None)


# --- what is asked -----------------------------------------------------------------------------


def test_exactly_one_scenario() -> None:
    assert chosen({Scenario.TO_OFFSET: 3}) == (Scenario.TO_OFFSET, 3)
    with pytest.raises(InvalidRequest, match="exactly one"):
        chosen({})
    with pytest.raises(InvalidRequest, match="to_earliest, to_latest"):
        chosen({Scenario.TO_EARLIEST: True, Scenario.TO_LATEST: True})


@pytest.mark.parametrize(
    ("given_", "topics", "all_topics"),
    [
        ({Scenario.TO_EARLIEST: True}, [], False),
        ({Scenario.TO_EARLIEST: True}, ["t"], True),
        ({Scenario.FROM_FILE: []}, ["t"], False),
        ({Scenario.TO_EARLIEST: 1}, ["t"], False),
        ({Scenario.TO_OFFSET: "3"}, ["t"], False),
    ],
)
def test_what_makes_no_sense_is_refused(given_: dict[Scenario, object], topics: list[str], all_topics: bool) -> None:
    with pytest.raises(InvalidRequest):
        parse_request(given_, topics, all_topics=all_topics, group_id="g", now_ms=0)


def test_a_duration_counts_back_from_now() -> None:
    asked = parse_request({Scenario.BY_DURATION: "PT1M"}, ["t"], all_topics=False, group_id="g", now_ms=100_000)
    assert asked.time_ms == 40_000


@pytest.mark.parametrize(("text", "expected"), [("t", ("t", None)), ("t:0", ("t", (0,))), ("t:2,0,2", ("t", (2, 0)))])
def test_scopes(text: str, expected: object) -> None:
    assert parse_scope(text) == expected


@pytest.mark.parametrize("text", ["t:", "t:x", "t:-1", ":0", "t:1,,2", "t:²"])
def test_a_scope_that_is_none(text: str) -> None:
    with pytest.raises(InvalidRequest, match="topics"):
        parse_scope(text)


@pytest.mark.parametrize("value", [-1, 2**63, True, 1.5, "1", None])
def test_an_offset_must_be_one(value: object) -> None:
    with pytest.raises(InvalidRequest, match="to_offset"):
        whole_number(Scenario.TO_OFFSET, value)


# --- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.5", 1_500),
        ("1970-01-01T00:00:00.007Z", 7),
        ("1970-01-01T02:00:00.000+02:00", 0),
        ("1970-01-01T00:00:00-0130", 5_400_000),
        ("2024-02-29T12:00:00", 1_709_208_000_000),
    ],
)
def test_datetimes(text: str, ms: int) -> None:
    assert datetime_ms(text) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2024-02-30T00:00:00", "2024-01-01", "2024-01-01 00:00:00", 5, None])
def test_what_is_no_datetime(text: object) -> None:
    with pytest.raises(InvalidRequest, match="to_datetime"):
        datetime_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT12H", 129_600_000),
        ("PT0.5S", 500),
        ("PT45.0019S", 45_001),
        ("PT0S", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1W", "-PT1S", "PT1.S", "pt1s", 60, None])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(InvalidRequest, match="by_duration"):
        duration_ms(text)


def test_files() -> None:
    mine = {T0: 5, TopicPartition('o"x', 1): 6}
    assert file_offsets('t,0,5\n"o""x",1,6\n', "g") == mine
    assert file_offsets('g,t,0,5\nother,t,0,9\n"g","o""x",1, 6\n', "g") == mine
    assert file_offsets([["t", 0, 5], ["g", 'o"x', 1, 6]], "g") == mine
    shown = [{"topic_name": "t", "partition_id": 0, "current_offset": 1, "new_offset": 5}]
    assert file_offsets(shown, "g") == {T0: 5}
    assert file_offsets("", "g") == {}


@pytest.mark.parametrize(
    "content",
    [
        5,
        "t,0",
        "t,x,1",
        "t,0,1\nt,0,2",
        [["t", 0]],
        [["t", 0, 1.5]],
        [[1, 0, 1]],
        [{"topic_name": "t"}],
        [{"topic_name": "t", "partition_id": 0, "offset": 1, "what": 1}],
        ["t"],
    ],
)
def test_what_is_no_file(content: object) -> None:
    with pytest.raises(InvalidRequest, match="from_file"):
        file_offsets(content, "g")
