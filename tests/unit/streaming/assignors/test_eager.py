"""Range and round robin, on the cases of Kafka's own tests."""

from __future__ import annotations

import pytest

from sluice.streaming.assignors import Strategy
from tests.support.assignors import assigned

RANGE, ROUND_ROBIN = Strategy.RANGE, Strategy.ROUND_ROBIN
BOTH = {"c1": "t1 t2", "c2": "t1 t2"}


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize(
    ("counts", "subscriptions", "expected"),
    [
        ({}, {}, {}),
        ({"t": 3}, {}, {}),
        ({}, {"c": ""}, {"c": ""}),
        ({}, {"c": "t"}, {"c": ""}),
        ({"t": 0}, {"c": "t"}, {"c": ""}),
        ({"t": 3}, {"c": "t"}, {"c": "t-0 t-1 t-2"}),
        ({"t": 3, "other": 3}, {"c": "t"}, {"c": "t-0 t-1 t-2"}),
        ({"t1": 1, "t2": 2}, {"c": "t1 t2"}, {"c": "t1-0 t2-0 t2-1"}),
        ({"t": 1}, {"c1": "t", "c2": "t"}, {"c1": "t-0", "c2": ""}),
        ({"t": 2}, {"c1": "t", "c2": "t"}, {"c1": "t-0", "c2": "t-1"}),
        ({"t": 2}, {"c1": "", "c2": "t"}, {"c1": "", "c2": "t-0 t-1"}),
    ],
)
def test_what_every_strategy_does(strategy: Strategy, counts: dict[str, int], subscriptions, expected):
    assert assigned(strategy, counts, subscriptions) == expected


def test_range_cuts_each_topic_by_itself():
    assert assigned(RANGE, {"t1": 3, "t2": 3}, BOTH) == {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"}


def test_range_gives_members_the_same_partitions_of_topics_cut_alike():
    three = {"c1": "a b", "c2": "a b", "c3": "a b"}
    assert assigned(RANGE, {"a": 7, "b": 7}, three) == {
        "c1": "a-0 a-1 a-2 b-0 b-1 b-2",
        "c2": "a-3 a-4 b-3 b-4",
        "c3": "a-5 a-6 b-5 b-6",
    }


def test_range_looks_at_the_subscribers_of_a_topic_only():
    mixed = {"c1": "t1", "c2": "t1 t2", "c3": "t1"}
    assert assigned(RANGE, {"t1": 3, "t2": 2}, mixed) == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_range_leaves_the_last_members_without_when_there_are_too_few():
    many = {f"c{n}": "t" for n in range(4)}
    assert assigned(RANGE, {"t": 2}, many) == {"c0": "t-0", "c1": "t-1", "c2": "", "c3": ""}


def test_round_robin_goes_on_from_topic_to_topic():
    assert assigned(ROUND_ROBIN, {"t1": 3, "t2": 3}, BOTH) == {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}


def test_round_robin_passes_over_who_does_not_subscribe():
    mixed = {"c1": "t1", "c2": "t1 t2", "c3": "t1"}
    assert assigned(ROUND_ROBIN, {"t1": 3, "t2": 2}, mixed) == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_round_robin_with_unequal_subscriptions_may_be_poor():
    everything, some = "t1 t2 t3 t4 t5", "t1 t3 t5"
    counts = {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2}
    group = {"c1": everything, "c2": some, "c3": some, "c4": everything}
    assert assigned(ROUND_ROBIN, counts, group) == {
        "c1": "t1-0 t3-0 t5-0",
        "c2": "t1-1 t3-1 t5-1",
        "c3": "",
        "c4": "t2-0 t4-0",
    }


@pytest.mark.parametrize(
    ("strategy", "first", "second"),
    [
        (RANGE, "t1-0 t1-1 t2-0 t2-1", "t1-2 t2-2"),
        (ROUND_ROBIN, "t1-0 t1-2 t2-1", "t1-1 t2-0 t2-2"),
    ],
)
@pytest.mark.parametrize("instances", [{"b": "instance1", "a": "instance2"}, {"b": "instance1"}])
def test_static_members_come_first_in_the_order_of_their_instances(strategy, first, second, instances):
    found = assigned(strategy, {"t1": 3, "t2": 3}, {"a": "t1 t2", "b": "t1 t2"}, instances=instances)
    assert found == {"b": first, "a": second}


@pytest.mark.parametrize("strategy", [RANGE, ROUND_ROBIN])
def test_static_members_keep_theirs_when_their_member_ids_change(strategy: Strategy):
    counts, all_topics = {"t1": 5, "t2": 4}, "t1 t2"
    before = assigned(
        strategy, counts, {"c1": all_topics, "c2": all_topics, "c3": all_topics}, instances={"c1": "i1", "c2": "i2"}
    )
    after = assigned(
        strategy, counts, {"c9": all_topics, "c0": all_topics, "c3": all_topics}, instances={"c9": "i1", "c0": "i2"}
    )
    assert (after["c9"], after["c0"], after["c3"]) == (before["c1"], before["c2"], before["c3"])


def test_an_instance_id_given_twice_still_has_one_order():
    twice = {"b": "same", "a": "same"}
    assert assigned(RANGE, {"t": 3}, {"b": "t", "a": "t"}, instances=twice) == {"a": "t-0 t-1", "b": "t-2"}


def test_strings_are_ordered_as_java_orders_them():
    """By UTF-16 unit: a character beyond U+FFFF begins with a surrogate, which is less than U+FF5E."""
    assert assigned(RANGE, {"t": 1}, {"\uff5e": "t", "\U0001f600": "t"}) == {"\U0001f600": "t-0", "\uff5e": ""}
