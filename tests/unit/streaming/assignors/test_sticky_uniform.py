"""Sticky with equal subscriptions, on the cases of Kafka's own tests."""

from __future__ import annotations

import pytest

from sluice.streaming.assignors import Strategy
from tests.support.assignors import Text, assigned

TWO = {"consumer1": "t1 t2", "consumer2": "t1 t2"}
THREE = {**TWO, "consumer3": "t1 t2"}


def sticky(counts: dict[str, int], subscriptions: Text, previous: Text | None = None, **more) -> dict[str, str]:
    return assigned(Strategy.STICKY, counts, subscriptions, previous, **more)


def test_a_new_group_is_dealt_in_turn():
    assert sticky({"t1": 3, "t2": 3}, TWO) == {"consumer1": "t1-0 t1-2 t2-1", "consumer2": "t1-1 t2-0 t2-2"}


def test_a_member_at_the_quota_gets_the_one_left_over():
    found = sticky({"t1": 2, "t2": 3}, TWO, {"consumer1": "t1-0 t2-1", "consumer2": "t1-1 t2-2"})
    assert found == {"consumer1": "t1-0 t2-0 t2-1", "consumer2": "t1-1 t2-2"}


def test_of_two_that_could_keep_one_more_the_first_of_the_hash_table_does():
    """Java's table has consumer2 before consumer1; Kafka's test expects just this."""
    found = sticky({"t1": 2, "t2": 2}, THREE, {"consumer1": "t1-0 t2-0", "consumer2": "t1-1 t2-1"})
    assert found == {"consumer1": "t1-0", "consumer2": "t1-1 t2-1", "consumer3": "t2-0"}


def test_everybody_below_the_quota_is_filled_in_turn():
    found = sticky({"t1": 2, "t2": 3}, THREE, {"consumer1": "t1-0", "consumer2": "t1-1"})
    assert found == {"consumer1": "t1-0 t2-1", "consumer2": "t1-1 t2-2", "consumer3": "t2-0"}


def test_members_come_and_go():
    one = sticky({"t": 3}, {"consumer1": "t"})
    two = sticky({"t": 3}, {"consumer1": "t", "consumer2": "t"}, one)
    assert two == {"consumer1": "t-0 t-1", "consumer2": "t-2"}
    assert sticky({"t": 3}, {"consumer2": "t"}, two) == {"consumer2": "t-0 t-1 t-2"}


def test_two_join_and_two_leave():
    counts = {"t1": 3, "t2": 4}
    two = sticky(counts, TWO)
    assert two == {"consumer1": "t1-0 t1-2 t2-1 t2-3", "consumer2": "t1-1 t2-0 t2-2"}
    four = sticky(counts, {**THREE, "consumer4": "t1 t2"}, two)
    assert four == {
        "consumer1": "t1-0 t2-1",
        "consumer2": "t1-1 t2-0",
        "consumer3": "t1-2 t2-3",
        "consumer4": "t2-2",
    }
    assert sticky(counts, {"consumer3": "t1 t2", "consumer4": "t1 t2"}, four) == {
        "consumer3": "t1-0 t1-2 t2-1 t2-3",
        "consumer4": "t1-1 t2-0 t2-2",
    }


def test_who_gives_up_some_keeps_a_mixture_of_topics():
    found = sticky({"t1": 4, "t2": 4}, TWO, {"consumer1": "t1-0 t1-1 t1-2 t1-3 t2-0 t2-1 t2-2 t2-3"})
    assert found == {"consumer1": "t1-0 t1-1 t2-0 t2-1", "consumer2": "t1-2 t1-3 t2-2 t2-3"}


def test_topics_stay_mixed_while_members_come_and_go():
    counts = {"t1": 12, "t2": 12}
    owned: dict[str, str] = {}
    for numbers, each in (((1,), 12), ((1, 2), 6), ((1, 2, 3, 4), 3), ((3, 4), 6)):
        owned = sticky(counts, {f"consumer{n}": "t1 t2" for n in numbers}, owned)
        assert {(one.count("t1-"), one.count("t2-")) for one in owned.values()} == {(each, each)}


def test_a_topic_is_added_and_another_deleted():
    before = {"consumer1": "t1-0 t1-2", "consumer2": "t1-1"}
    more = sticky({"t1": 3, "t2": 3}, TWO, before)
    assert more == {"consumer1": "t1-0 t1-2 t2-0", "consumer2": "t1-1 t2-1 t2-2"}
    only_t2 = {"consumer1": "t2", "consumer2": "t2"}
    assert sticky({"t2": 3}, only_t2, more) == {"consumer1": "t2-0", "consumer2": "t2-1 t2-2"}


def test_partitions_that_are_gone_and_members_that_left_are_forgotten():
    found = sticky({"t": 2}, {"c1": "t", "c2": "t"}, {"c1": "t-7 gone-0", "c2": "t-0", "left": "t-1"})
    assert found == {"c1": "t-1", "c2": "t-0"}


def test_members_at_their_quota_are_left_alone():
    one_topic = {"consumer1": "t", "consumer2": "t", "consumer3": "t"}
    found = sticky({"t": 4}, one_topic, {"consumer1": "t-0 t-1", "consumer2": "t-2"})
    assert found == {"consumer1": "t-0 t-1", "consumer2": "t-2", "consumer3": "t-3"}


# --- generations -------------------------------------------------------------------------------


@pytest.mark.parametrize("generations", [{"consumer1": 10, "consumer2": 9}, {"consumer1": 10}])
def test_the_newest_claim_wins(generations: dict[str, int]):
    same = "t-0 t-2 t2-1"
    subscriptions = {"consumer1": "t t2", "consumer2": "t t2"}
    found = sticky({"t": 3, "t2": 3}, subscriptions, {"consumer1": same, "consumer2": same}, generations=generations)
    assert found == {"consumer1": same, "consumer2": "t-1 t2-0 t2-2"}


def test_an_old_claim_that_nobody_contradicts_counts():
    subscriptions = {"consumer1": "t t2", "consumer2": "t t2"}
    found = sticky(
        {"t": 3, "t2": 3},
        subscriptions,
        {"consumer1": "t-0 t-1 t2-1", "consumer2": "t-0 t2-1 t2-2"},
        generations={"consumer1": 10, "consumer2": 8},
    )
    assert found == {"consumer1": "t-0 t-1 t2-1", "consumer2": "t-2 t2-0 t2-2"}


def test_three_generations():
    topics = "t t2 t3"
    found = sticky(
        {"t": 3, "t2": 3, "t3": 3},
        {"consumer1": topics, "consumer2": topics, "consumer3": topics},
        {"consumer1": "t-0 t2-0 t3-0", "consumer2": "t-1 t2-1 t3-1", "consumer3": "t2-1 t3-0 t3-2"},
        generations={"consumer1": 10, "consumer2": 9, "consumer3": 8},
    )
    assert found == {"consumer1": "t-0 t2-0 t3-0", "consumer2": "t-1 t2-1 t3-1", "consumer3": "t-2 t2-2 t3-2"}


def test_who_comes_without_a_generation_gets_what_is_free():
    topics = "t t1 t2 t3"
    found = sticky(
        {"t": 3, "t1": 3, "t2": 3, "t3": 3},
        {f"consumer{n}": topics for n in (1, 2, 3, 4)},
        {"consumer2": "t-0 t2-0 t1-0", "consumer3": "t3-2 t2-2 t1-1", "consumer4": "t3-1 t-1 t-2"},
        generations={"consumer2": 9, "consumer3": 8, "consumer4": 7},
    )
    assert found["consumer1"] == "t1-2 t2-1 t3-0"


def test_a_claim_of_two_in_one_generation_is_of_nobody():
    found = sticky(
        {"t": 3},
        {"consumer1": "t", "consumer2": "t", "consumer3": "t"},
        {"consumer1": "t-0 t-1", "consumer2": "t-0 t-2"},
        generations={"consumer1": 1, "consumer2": 1, "consumer3": 1},
    )
    assert found == {"consumer1": "t-1", "consumer2": "t-2", "consumer3": "t-0"}


def test_a_newer_claim_ends_the_dispute_of_two_older_ones():
    found = sticky(
        {"t": 3},
        {"a": "t", "b": "t", "c": "t"},
        {"a": "t-2", "b": "t-2", "c": "t-2"},
        generations={"a": 1, "b": 1, "c": 2},
    )
    assert found == {"a": "t-0", "b": "t-1", "c": "t-2"}
