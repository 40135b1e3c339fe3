from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.segments import NO_TIMESTAMP, ActiveSegment, segment_bounds, should_roll
from sluice.log_store.topic import TopicConfig

Batch = tuple[int, int, int]  # count, bytes, largest timestamp

batches = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 300), st.sampled_from([NO_TIMESTAMP, 0, 100, 350, 900, 5000])),
    max_size=60,
)
configs = st.builds(
    lambda size, ms: TopicConfig.parse({"segment.bytes": size, "segment.ms": ms}),
    st.integers(14, 1000),
    st.integers(1, 1000),
)


def append_all(
    log: list[Batch], config: TopicConfig, active: ActiveSegment, end: int
) -> tuple[list[int], ActiveSegment]:
    rolls = []
    for count, size, ts in log:
        now_ms = 10 * end
        if should_roll(active, size, ts, end + count, config, now_ms) is not None:
            active = ActiveSegment(end)
            rolls.append(end)
        active = active.after(size, ts, now_ms)
        end += count
    return rolls, active


@given(batches, configs)
def test_segments_tile_the_log_and_keep_to_the_limits(log: list[Batch], config: TopicConfig) -> None:
    rolls, active = append_all(log, config, ActiveSegment(0), 0)
    end = sum(count for count, _, _ in log)
    segments = segment_bounds(rolls, 0, end)
    assert segments[-1].start == active.base_offset
    assert [s.start for s in segments] == [0, *rolls]
    at, left = 0, list(log)
    for segment in segments:
        inside = []
        while at < segment.end:
            inside.append(left.pop(0))
            at += inside[-1][0]
        assert at == segment.end, "a batch is never split"
        assert len(inside) == 1 or sum(size for _, size, _ in inside) <= config.segment_bytes or not inside
        if inside and inside[0][2] >= 0:
            assert all(ts - inside[0][2] <= config.roll_ms for _, _, ts in inside)
    assert not left


@given(batches, configs, st.integers(0, 60))
def test_restart_anywhere_rolls_the_same(log: list[Batch], config: TopicConfig, at: int) -> None:
    whole = append_all(log, config, ActiveSegment(0), 0)
    rolls, active = append_all(log[:at], config, ActiveSegment(0), 0)
    revived = ActiveSegment.from_json(json.loads(json.dumps(active.to_json())))
    more, last = append_all(log[at:], config, revived, sum(count for count, _, _ in log[:at]))
    assert ([*rolls, *more], last) == whole


@given(st.lists(st.integers(0, 100)), st.integers(0, 100), st.integers(0, 100))
def test_bounds_cover_exactly_what_is_readable(rolls: list[int], a: int, b: int) -> None:
    start, end = min(a, b), max(a, b)
    segments = segment_bounds(rolls, start, end)
    assert (segments[0].start, segments[-1].end) == (start, end)
    assert all(left.end == right.start for left, right in pairwise(segments))
    assert all(segment.count > 0 for segment in segments[:-1])
