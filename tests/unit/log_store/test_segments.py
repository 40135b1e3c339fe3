from __future__ import annotations

import json

import pytest

from sluice.log_store.errors import CorruptData
from sluice.log_store.segments import NO_TIMESTAMP, ActiveSegment, RollReason, segment_bounds, should_roll
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import OffsetRange

CONFIG = TopicConfig.parse({"segment.bytes": 1000, "segment.ms": 500})
ACTIVE = ActiveSegment(base_offset=100).after(batch_bytes=400, batch_max_ts_ms=10_000, now_ms=77)


def roll(
    active: ActiveSegment = ACTIVE,
    size: int = 1,
    ts: int = 10_000,
    end: int = 200,
    config: TopicConfig = CONFIG,
    now_ms: int = 10**9,
) -> RollReason | None:
    return should_roll(active, size, ts, end, config, now_ms)


def test_size_counts_the_batch_and_may_be_met_exactly() -> None:
    assert roll(size=600) is None
    assert roll(size=601) is RollReason.BYTES


def test_time_is_the_batchs_against_the_first_batchs_and_strict() -> None:
    assert roll(ts=10_500) is None
    assert roll(ts=10_501) is RollReason.TIME


def test_time_does_not_look_at_the_largest_timestamp_nor_at_the_clock() -> None:
    grown = ACTIVE.after(1, 10_400, now_ms=80)
    assert roll(grown, ts=10_501) is RollReason.TIME
    assert roll(grown, ts=10_450, now_ms=10**12) is None


def test_old_record_in_a_new_segment_does_not_roll() -> None:
    assert roll(ts=5) is None


def test_clock_counts_only_when_the_first_batch_has_no_timestamp() -> None:
    active = ActiveSegment(0).after(400, NO_TIMESTAMP, now_ms=2000)
    assert roll(active, ts=10**9, now_ms=2500) is None
    assert roll(active, ts=NO_TIMESTAMP, now_ms=2501) is RollReason.TIME


def test_offsets_stay_within_int32_of_the_base() -> None:
    assert roll(end=100 + 2**31) is None
    assert roll(end=101 + 2**31) is RollReason.OFFSETS


def test_empty_segment_never_rolls() -> None:
    assert roll(ActiveSegment(100), size=10**9, ts=10**12, end=2**40) is None


@pytest.mark.parametrize(("policy", "reason"), [("delete", None), ("compact", RollReason.TIME)])
def test_compaction_lag_caps_the_time_of_a_segment(policy: str, reason: RollReason | None) -> None:
    config = TopicConfig.parse({"segment.ms": 500, "max.compaction.lag.ms": 100, "cleanup.policy": policy})
    assert roll(ts=10_101, config=config) is reason


def test_after_keeps_the_first_and_the_largest_timestamp() -> None:
    active = ACTIVE.after(10, 9000, now_ms=99).after(10, 12_000, now_ms=101)
    assert active == ActiveSegment(100, 420, first_timestamp_ms=10_000, max_timestamp_ms=12_000, created_ms=77)


def test_json_round_trip() -> None:
    assert ActiveSegment.from_json(json.loads(json.dumps(ACTIVE.to_json()))) == ACTIVE


@pytest.mark.parametrize("data", [[], [1, 2, 3, 4], [1, 2, 3, 4, "5"], [1, 2, 3, 4, None], [1, 2, 3, 4, True]])
def test_damaged_json_is_reported(data: list[object]) -> None:
    with pytest.raises(CorruptData):
        ActiveSegment.from_json(data)


@pytest.mark.parametrize(
    ("rolls", "log_start", "end", "bounds"),
    [
        ([], 0, 0, [(0, 0)]),
        ([], 3, 9, [(3, 9)]),
        ([0, 4, 8], 0, 10, [(0, 4), (4, 8), (8, 10)]),
        ([0, 4, 8], 5, 10, [(5, 8), (8, 10)]),
        ([0, 4, 8], 8, 10, [(8, 10)]),
        ([4, 10], 0, 10, [(0, 4), (4, 10), (10, 10)]),
        ([10], 10, 10, [(10, 10)]),
        ([8, 4, 4, 99], 0, 10, [(0, 4), (4, 8), (8, 10)]),
    ],
)
def test_segment_bounds(rolls: list[int], log_start: int, end: int, bounds: list[tuple[int, int]]) -> None:
    assert segment_bounds(rolls, log_start, end) == [OffsetRange(*pair) for pair in bounds]
