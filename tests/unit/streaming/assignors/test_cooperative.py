"""Cooperative-sticky: what changes hands is given up in one round and given out in the next."""

from __future__ import annotations

from sluice.streaming.assignors import Strategy
from tests.support.assignors import Text, assigned


def cooperative(counts: dict[str, int], subscriptions: Text, previous: Text, **more) -> dict[str, str]:
    return assigned(Strategy.COOPERATIVE_STICKY, counts, subscriptions, previous, **more)


def test_a_new_member_waits_for_what_others_must_give_up():
    group = {"consumer1": "t", "consumer2": "t"}
    first = cooperative({"t": 3}, group, {"consumer1": "t-0 t-1 t-2"})
    assert first == {"consumer1": "t-0 t-1", "consumer2": ""}
    assert cooperative({"t": 3}, group, first) == {"consumer1": "t-0 t-1", "consumer2": "t-2"}


def test_what_nobody_reads_is_given_at_once():
    group = {"consumer1": "t", "consumer2": "t"}
    assert cooperative({"t": 4}, group, {"consumer1": "t-0", "left": "t-1 t-2 t-3"}) == {
        "consumer1": "t-0 t-1",
        "consumer2": "t-2 t-3",
    }


def test_a_member_that_gets_its_own_back_keeps_it():
    """c1 is cut to the quota first and then gets one more, which may be the one it had."""
    group = {"c1": "t", "c2": "t"}
    assert cooperative({"t": 3}, group, {"c1": "t-0 t-1", "c2": "t-2"}) == {"c1": "t-0 t-1", "c2": "t-2"}


def test_a_partition_claimed_by_two_is_withheld_until_both_gave_it_up():
    group = {"consumer1": "t", "consumer2": "t", "consumer3": "t"}
    one_generation = dict.fromkeys(group, 1)
    claims = {"consumer1": "t-0 t-1", "consumer2": "t-0 t-2"}
    first = cooperative({"t": 3}, group, claims, generations=one_generation)
    assert first == {"consumer1": "t-1", "consumer2": "t-2", "consumer3": ""}
    assert cooperative({"t": 3}, group, first)["consumer3"] == "t-0"
    assert cooperative({"t": 4}, group, claims, generations=one_generation) == {
        "consumer1": "t-1 t-3",
        "consumer2": "t-2",
        "consumer3": "",
    }


def test_a_partition_claimed_by_two_is_withheld_with_unequal_subscriptions_too():
    group = {"a": "t", "b": "t", "c": "t u"}
    first = cooperative({"t": 3, "u": 1}, group, {"a": "t-0", "b": "t-0"}, generations=dict.fromkeys(group, 1))
    assert "t-0" not in " ".join(first.values()).split()


def test_what_a_member_unsubscribed_from_is_withheld_for_a_round():
    group = {"a": "u", "b": "t"}
    first = cooperative({"t": 2, "u": 1}, group, {"a": "t-0 u-0", "b": "t-1"})
    assert first == {"a": "u-0", "b": "t-1"}
    assert cooperative({"t": 2, "u": 1}, group, first) == {"a": "u-0", "b": "t-0 t-1"}


def test_a_stale_claim_does_not_hand_over_what_its_owner_still_reads():
    """b once had t-0 and would get it back; a has it now and must let go first."""
    group = {"a": "t", "b": "t", "c": "u"}
    first = cooperative(
        {"t": 4, "u": 1},
        group,
        {"a": "t-0 t-1 t-2 t-3", "b": "t-0 t-1", "c": "u-0"},
        generations={"a": 2, "b": 1, "c": 2},
    )
    assert first == {"a": "t-2 t-3", "b": "", "c": "u-0"}
