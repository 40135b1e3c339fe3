from __future__ import annotations

from sluice.streaming.assignors import Comparison, Strategy, compare
from tests.support.assignors import members


def test_every_strategy_is_judged():
    group = members({"a": "t u", "b": "t u", "idle": ""}, {"a": "t-0 t-1 t-2 u-0 u-1 u-2", "left": "t-9"})
    found = compare({"t": 3, "u": 3}, group)
    assert found == [
        Comparison(
            strategy=Strategy.RANGE, assigned=6, withheld=0, moved=2, imbalance=2, imbalance_per_topic={"t": 1, "u": 1}
        ),
        Comparison(
            strategy=Strategy.ROUND_ROBIN,
            assigned=6,
            withheld=0,
            moved=3,
            imbalance=0,
            imbalance_per_topic={"t": 1, "u": 1},
        ),
        Comparison(
            strategy=Strategy.STICKY, assigned=6, withheld=0, moved=3, imbalance=0, imbalance_per_topic={"t": 3, "u": 3}
        ),
        Comparison(
            strategy=Strategy.COOPERATIVE_STICKY,
            assigned=3,
            withheld=3,
            moved=3,
            imbalance=3,
            imbalance_per_topic={"t": 0, "u": 3},
        ),
    ]


def test_what_a_member_left_behind_does_not_count_as_moved():
    (found,) = compare({"t": 2}, members({"a": "t"}, {"a": "t-0", "left": "t-1"}), [Strategy.STICKY])
    assert (found.moved, found.assigned) == (0, 2)


def test_subscribers_alone_decide_how_uneven_a_topic_is():
    (found,) = compare({"t": 4, "u": 1}, members({"a": "t", "b": "t u"}), [Strategy.RANGE])
    assert found.imbalance_per_topic == {"t": 0, "u": 0}
    assert found.imbalance == 1


def test_an_empty_group_is_even():
    (found,) = compare({"t": 4}, [], [Strategy.STICKY])
    assert (found.assigned, found.imbalance, found.imbalance_per_topic) == (0, 0, {})
