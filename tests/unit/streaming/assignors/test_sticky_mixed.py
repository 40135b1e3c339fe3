"""Sticky with unequal subscriptions: Kafka's cases, and some whose results were worked out from its algorithm."""

from __future__ import annotations

from itertools import permutations

import pytest

from sluice.streaming.assignors import Strategy, assign, compare
from sluice.streaming.assignors.group import numbered
from sluice.streaming.assignors.moves import Moves
from tests.support.assignors import Text, assigned, members


def sticky(counts: dict[str, int], subscriptions: Text, previous: Text | None = None, **more) -> dict[str, str]:
    return assigned(Strategy.STICKY, counts, subscriptions, previous, **more)


def test_topics_with_few_subscribers_are_given_first():
    mixed = {"consumer1": "topic1", "consumer2": "topic1 topic2", "consumer3": "topic1"}
    assert sticky({"topic1": 3, "topic2": 2}, mixed) == {
        "consumer1": "topic1-0 topic1-2",
        "consumer2": "topic2-0 topic2-1",
        "consumer3": "topic1-1",
    }


def test_it_evens_out_what_round_robin_does_badly():
    everything, some = "t1 t2 t3 t4 t5", "t1 t3 t5"
    counts = {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2}
    found = sticky(counts, {"c1": everything, "c2": some, "c3": some, "c4": everything})
    assert [len(owned.split()) for owned in found.values()] == [2, 2, 2, 2]


THREE = {"consumer0": "t1 t2 t3", "consumer1": "t1 t2 t3", "consumer2": "t1 t3"}
COUNTS = {"t1": 6, "t2": 7, "t3": 2}


def test_a_new_group():
    fresh = {
        "consumer0": "t1-5 t2-0 t2-2 t2-4 t2-6",
        "consumer1": "t1-3 t2-1 t2-3 t2-5 t3-0",
        "consumer2": "t1-0 t1-1 t1-2 t1-4 t3-1",
    }
    assert sticky(COUNTS, THREE) == fresh
    assert sticky(COUNTS, THREE, fresh) == fresh


def test_what_a_member_no_longer_wants_goes_to_others():
    previous = {
        "consumer0": "t1-0 t1-1 t1-2 t1-3 t1-4",
        "consumer1": "t1-5 t2-0 t2-1 t2-2 t2-3",
        "consumer2": "t2-4 t2-5 t2-6 t3-0 t3-1",
    }
    found = assigned(Strategy.COOPERATIVE_STICKY, COUNTS, THREE, previous)
    assert found == {"consumer0": "t1-2 t1-3 t1-4", "consumer1": "t2-0 t2-1 t2-2 t2-3", "consumer2": "t3-0 t3-1"}
    assert assigned(Strategy.COOPERATIVE_STICKY, COUNTS, THREE, found) == {
        "consumer0": "t1-2 t1-3 t1-4 t2-4 t2-5",
        "consumer1": "t2-0 t2-1 t2-2 t2-3 t2-6",
        "consumer2": "t1-0 t1-1 t1-5 t3-0 t3-1",
    }


def test_existing_ones_move_when_that_evens_out():
    counts = {f"t{n}": 1 for n in range(1, 7)}
    found = sticky(
        counts,
        {"consumer1": "t1 t2", "consumer2": "t1 t2 t3 t4", "consumer3": "t2 t3 t4 t5 t6"},
        {"consumer1": "t1-0", "consumer2": "t2-0 t3-0", "consumer3": "t4-0 t5-0 t6-0"},
    )
    assert found == {"consumer1": "t1-0", "consumer2": "t2-0 t3-0", "consumer3": "t4-0 t5-0 t6-0"}


def test_no_two_members_swap_partitions_of_a_topic():
    """m2 must give up one; what came from m0 in this very round goes back there instead of another one."""
    found = sticky(
        {"t0": 2, "t1": 4},
        {"m0": "t1", "m1": "t0", "m2": "t0 t1", "m3": "t0"},
        {"m1": "t1-2", "m2": "t0-0 t0-1 t1-1 t1-3"},
    )
    assert found == {"m0": "t1-0 t1-2", "m1": "t0-0", "m2": "t1-1 t1-3", "m3": "t0-1"}


def test_a_partition_returns_to_its_member_when_the_one_it_was_exchanged_for_moves_on():
    found = sticky(
        {"t0": 10, "t1": 5},
        {"m0": "t0 t1", "m1": "t0", "m2": "t0", "m3": "t1", "m4": "t1"},
        {"m0": "t0-3 t0-5 t1-0 t1-1 t1-2 t1-4", "m1": "t0-0 t0-1 t0-2 t0-4 t0-6 t0-8 t0-9"},
    )
    assert found == {
        "m0": "t0-3 t0-5 t1-4",
        "m1": "t0-4 t0-6 t0-8 t0-9",
        "m2": "t0-0 t0-1 t0-2 t0-7",
        "m3": "t1-1 t1-3",
        "m4": "t1-0 t1-2",
    }


@pytest.mark.parametrize("generations", list(permutations((1, 2, 3))))
def test_a_partition_claimed_in_three_generations(generations: tuple[int, int, int]):
    subscriptions = {"consumer1": "t", "consumer2": "t", "consumer3": "t", "consumer4": "t1"}
    previous = {"consumer1": "t-0 t-2", "consumer2": "t-1 t-2 t-3", "consumer3": "t-2 t-4 t-5", "consumer4": "t1-0"}
    numbers = {"consumer4": 2, **{f"consumer{n + 1}": generation for n, generation in enumerate(generations)}}
    found = sticky({"t": 6, "t1": 1}, subscriptions, previous, generations=numbers)
    assert sorted(" ".join(found.values()).split()) == [*(f"t-{n}" for n in range(6)), "t1-0"]
    assert [len(owned.split()) for owned in found.values()] == [2, 2, 2, 1]


def test_what_moves_goes_to_a_former_owner_first():
    """a has too many. c is the emptiest, but b had t-3 before and has room."""
    group = {"a": "t", "b": "t", "c": "t", "d": "t u"}
    found = sticky(
        {"t": 8, "u": 1},
        group,
        {"a": "t-0 t-1 t-2 t-3 t-4 t-5", "b": "t-0 t-6", "c": "", "d": "t-7 u-0"},
        generations={"a": 5, "b": 4, "c": 5, "d": 5},
    )
    assert "t-0" in found["b"].split()


def test_a_former_owner_that_unsubscribed_gets_nothing():
    found = sticky(
        {"t": 4, "u": 1},
        {"a": "t", "b": "u", "c": "t"},
        {"a": "t-0 t-1 t-2 t-3", "b": "t-0"},
        generations={"a": 2, "b": 1, "c": 2},
    )
    assert found == {"a": "t-2 t-3", "b": "u-0", "c": "t-0 t-1"}


def test_a_topic_that_does_not_exist_makes_subscriptions_unequal():
    """Kafka compares what members subscribe to, known or not; with unequal ones it keeps the lowest partitions less."""
    previous = {"c1": "t-0 t-1 t-2 t-3"}
    assert sticky({"t": 4}, {"c1": "t", "c2": "t"}, previous) == {"c1": "t-0 t-1", "c2": "t-2 t-3"}
    assert sticky({"t": 4}, {"c1": "t", "c2": "t unknown"}, previous) == {"c1": "t-2 t-3", "c2": "t-0 t-1"}


def test_one_leaves_a_large_uneven_group():
    counts = {f"t{n:02}": n for n in range(1, 20)}
    group = {f"c{n:02}": " ".join(f"t{m:02}" for m in range(1, n + 1)) for n in range(1, 20)}
    before = sticky(counts, group)
    left = {name: topics for name, topics in group.items() if name != "c10"}
    after = sticky(counts, left, before)
    moved = sum(partition not in after[name].split() for name in left for partition in before[name].split())
    assert sorted(" ".join(after.values()).split()) == sorted(
        f"{topic}-{n}" for topic in counts for n in range(counts[topic])
    )
    assert moved <= len(before["c10"].split())


def test_the_work_grows_with_the_partitions_not_with_their_square(monkeypatch: pytest.MonkeyPatch):
    """Two thousand partitions, two hundred members and a bad start: a few passes, each partition moved a few times."""
    records = 0
    record = Moves.record

    def counted(self: Moves, topic: int, partition: int, source: int, target: int) -> None:
        nonlocal records
        records += 1
        record(self, topic, partition, source, target)

    monkeypatch.setattr(Moves, "record", counted)
    topics = [f"t{n:02}" for n in range(40)]
    group = {f"c{n:03}": " ".join(topics[n % 40 : n % 40 + 1 + n % 7]) for n in range(200)}
    previous = {f"c{n:03}": " ".join(f"{topics[n]}-{p}" for p in range(50)) for n in range(40)}
    found = assign(Strategy.STICKY, dict.fromkeys(topics, 50), members(group, previous))
    assert sum(map(len, found.values())) == 2000
    assert 1000 < records < 4000


def test_a_partition_is_offered_back_only_once():
    """Or two members could hand it to and fro for ever."""
    moves = Moves(numbered({"t": 3}, members({"a": "t", "b": "t", "c": "t"})))
    a, b, c = 0, 1, 2
    moves.record(0, 0, a, b)
    moves.record(0, 1, b, c)
    assert moves.better_choice(0, 1, c, a) == 0
    assert moves.better_choice(0, 1, c, a) == 1


def test_moves_cancel_out():
    moves = Moves(numbered({"t": 3}, members({"a": "t", "b": "t", "c": "t"})))
    a, b, c = 0, 1, 2
    moves.record(0, 0, a, b)
    assert moves.better_choice(0, 2, b, a) == 0
    moves.record(0, 0, b, c)
    assert moves.better_choice(0, 2, b, a) == 2
    moves.record(0, 0, c, a)
    assert moves.better_choice(0, 2, c, a) == 2


def test_a_group_that_cannot_be_even_is_as_even_as_it_can_be():
    found = compare({"t": 9, "u": 1}, members({"a": "t", "b": "u"}), [Strategy.STICKY])
    assert found[0].imbalance == 8
