"""Retention against a naive model of Kafka's rule, segment by segment (R-10)."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.delta_log import DataFile
from sluice.log_store.log_shape import LogShape
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import check_plan
from sluice.log_store.retention import RetentionReason, decide_retention, next_due_ms
from sluice.log_store.topic import TopicConfig

NOW = 1_000


@dataclass(frozen=True)
class Modelled:
    """A segment as Kafka knows it: its first offset, bytes, and the largest timestamp of its records."""

    base: int
    bytes: int
    newest: int | None


@st.composite
def logs(draw: st.DrawFn) -> tuple[PartitionState, list[Modelled]]:
    """Segments of zero to three files; compaction may have left gaps, or nothing but the offsets of a segment."""
    offset, files, rolls, model = 0, [], [], []
    count = draw(st.integers(1, 6))
    for index in range(count):
        base, last = offset, index == count - 1
        sizes = draw(st.lists(st.integers(1, 40), max_size=3))
        newest, total = None, 0
        for size in sizes:
            stamp = draw(st.integers(0, 2 * NOW))
            offset += draw(st.integers(0, 2))
            name = f"{offset:020d}-1-{len(files):x}.parquet"
            files.append(DataFile(name, size, offset, offset + 2, 2, 0, stamp, 0))
            offset, total, newest = offset + 2, total + size, max(stamp, newest or 0)
        if not sizes and not last:
            offset += 1
        if index:
            rolls.append(base)
        model.append(Modelled(base, total, newest))
    return PartitionState(version=3, end=offset, epoch=1, files=files, rolls=rolls), model


def kafka(model: list[Modelled], end: int, config: TopicConfig, now: int | None) -> list[RetentionReason]:
    """Why each segment goes, oldest first, taken from the description word by word."""
    left, gone = list(model), []

    def takable() -> bool:
        return bool(left) and not (len(left) == 1 and left[0].base == end)

    if config.delete and config.retention_bytes >= 0:
        while takable() and sum(s.bytes for s in left) - left[0].bytes >= config.retention_bytes:
            left.pop(0)
            gone.append(RetentionReason.SIZE)
    if config.delete and config.retention_ms >= 0 and now is not None:
        while takable() and (left[0].newest is None or now - left[0].newest > config.retention_ms):
            left.pop(0)
            gone.append(RetentionReason.TIME)
    return gone


configs = st.builds(
    lambda policy, ms, size: TopicConfig.parse({"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}),
    st.sampled_from(["delete", "compact", "compact,delete"]),
    st.integers(-1, 2 * NOW),
    st.integers(-1, 150),
)


@given(logs(), configs, st.one_of(st.none(), st.integers(0, 3 * NOW)))
def test_the_same_segments_go_for_the_same_reasons(
    log: tuple[PartitionState, list[Modelled]], config: TopicConfig, now: int | None
) -> None:
    state, model = log
    expected = kafka(model, state.end, config, now)

    decided = decide_retention(LogShape.of(state), config, now)

    assert [one.reason for one in decided.expired] == expected if decided else expected == []
    if decided is None:
        return
    everything = len(expected) == len(model)
    assert decided.empties_log == everything
    assert decided.log_start == (state.end if everything else model[len(expected)].base)
    # The leader takes it as it is, and what it removes is exactly what lies below the new start.
    removed = check_plan(state, decided.to_plan(state.version))
    assert removed == [file for file in state.files if file.end_offset <= decided.log_start]


@given(logs(), st.integers(0, 20))
def test_files_below_a_moved_log_start_go_whatever_the_policy(
    log: tuple[PartitionState, list[Modelled]], start: int
) -> None:
    state, _ = log
    state.log_start = min(start, state.end)
    below = [file for file in state.files if file.end_offset <= state.log_start]

    decided = decide_retention(LogShape.of(state), TopicConfig.parse({"cleanup.policy": "compact"}), NOW)

    assert (decided.files if decided else []) == below
    if decided:
        assert decided.log_start == state.log_start
        assert not decided.empties_log
        assert check_plan(state, decided.to_plan(state.version)) == below


@given(logs(), configs)
def test_nothing_goes_by_age_before_the_due_time_and_something_goes_at_it(
    log: tuple[PartitionState, list[Modelled]], config: TopicConfig
) -> None:
    shape = LogShape.of(log[0])
    due = next_due_ms(shape, config)

    def taken_at(now: int) -> int:
        decided = decide_retention(shape, config, now)
        return 0 if decided is None else len(decided.expired)

    by_size = taken_at(-(10**9))
    if due is None:
        assert taken_at(10**9) == by_size
    elif due > 0:
        assert taken_at(due - 1) == by_size or by_size > 0
        assert taken_at(due) > 0
