"""What holds for every group, however it subscribes and whatever it owned before."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors import Assignment, Member, Strategy, assign, compare
from tests.support.assignors_reference import SlowBalance

NAMES = st.sampled_from([f"c{n}" for n in range(12)] + ["consumer-1", "consumer-2", "é", "\U0001f600", "Aa", "BB"])
TOPICS = ("a", "b", "c", "d", "unknown")
STICKY = (Strategy.STICKY, Strategy.COOPERATIVE_STICKY)


@dataclass(frozen=True)
class Case:
    counts: dict[str, int]
    members: tuple[Member, ...]

    def assign(self, strategy: Strategy) -> Assignment:
        return assign(strategy, self.counts, self.members)

    def after(self, assignment: Assignment) -> Case:
        """The same group one generation later."""
        owned = {member: frozenset(partitions) for member, partitions in assignment.items()}
        later = 1 + max((member.generation for member in self.members), default=0)
        return Case(
            self.counts,
            tuple(replace(m, owned=owned.get(m.member_id, frozenset()), generation=later) for m in self.members),
        )

    @property
    def readable(self) -> set[TopicPartition]:
        wanted = {topic for member in self.members for topic in member.topics}
        return {TopicPartition(t, n) for t, count in self.counts.items() if t in wanted for n in range(count)}


COUNTS = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS[:4]})


@st.composite
def cases(draw: st.DrawFn, *, equal: bool | None = None, claims: str = "none") -> Case:
    counts = draw(COUNTS)
    names = draw(st.lists(NAMES, min_size=1, max_size=10, unique=True))
    topics = st.frozensets(st.sampled_from(TOPICS))
    common = draw(topics) if (draw(st.booleans()) if equal is None else equal) else None
    members = [Member(member_id=name, topics=draw(topics) if common is None else common) for name in names]
    members = [replace(m, instance_id=draw(st.none() | st.sampled_from("xyz"))) for m in members]
    if claims == "any":  # whatever members may say: contradictions, old generations, partitions that are gone
        partition = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 10))
        said = st.frozensets(partition, max_size=12)
        members = [replace(m, owned=draw(said), generation=draw(st.integers(-1, 3))) for m in members]
    case = Case(counts, tuple(members))
    return _spread_out(draw, case) if claims == "possible" else case


def _spread_out(draw: st.DrawFn, case: Case) -> Case:
    """Every partition is owned by one subscriber or by nobody, as after any sequence of rebalances."""
    owned: dict[str, set[TopicPartition]] = {member.member_id: set() for member in case.members}
    for partition in sorted(case.readable, key=str):
        subscribers = [member.member_id for member in case.members if partition.topic in member.topics]
        # Few draws near 0 are the simplest for hypothesis: the first member then owns almost everything.
        choice = draw(st.integers(0, len(subscribers)))
        if choice < len(subscribers):
            owned[subscribers[choice]].add(partition)
    return replace(
        case, members=tuple(replace(m, owned=frozenset(owned[m.member_id]), generation=1) for m in case.members)
    )


def owners(assignment: Assignment) -> dict[TopicPartition, str]:
    return {partition: member for member, partitions in assignment.items() for partition in partitions}


def loads(case: Case, assignment: Assignment) -> dict[str, int]:
    return {member.member_id: len(assignment[member.member_id]) for member in case.members}


def improvable(case: Case, assignment: Assignment) -> list[tuple[TopicPartition, str, str]]:
    """The moves of one partition that would make two members more even."""
    sizes = loads(case, assignment)
    return [
        (partition, owner, member.member_id)
        for partition, owner in owners(assignment).items()
        for member in case.members
        if partition.topic in member.topics and sizes[member.member_id] + 1 < sizes[owner]
    ]


# --- every strategy ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Strategy.RANGE, Strategy.ROUND_ROBIN, Strategy.STICKY])
@given(case=cases(claims="any"))
def test_every_partition_goes_to_exactly_one_subscriber(strategy: Strategy, case: Case):
    found = case.assign(strategy)
    assert set(found) == {member.member_id for member in case.members}
    given_out = [partition for partitions in found.values() for partition in partitions]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == case.readable
    for member in case.members:
        assert {partition.topic for partition in found[member.member_id]} <= member.topics


@pytest.mark.parametrize("strategy", list(Strategy))
@given(case=cases(claims="any"), data=st.data())
def test_the_order_of_the_members_does_not_matter(strategy: Strategy, case: Case, data: st.DataObject):
    other = Case(case.counts, tuple(data.draw(st.permutations(case.members))))
    assert other.assign(strategy) == case.assign(strategy)


@pytest.mark.parametrize("strategy", list(Strategy))
@given(case=cases(claims="any"))
def test_partitions_are_listed_in_order(strategy: Strategy, case: Case):
    for partitions in case.assign(strategy).values():
        assert partitions == sorted(partitions, key=lambda one: (one.topic, one.partition))


@pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.STICKY])
@given(case=cases(equal=True, claims="any"))
def test_equal_subscriptions_give_equal_shares(strategy: Strategy, case: Case):
    sizes = loads(case, case.assign(strategy)).values()
    assert max(sizes) - min(sizes) <= 1


@given(case=cases())
def test_range_is_even_in_each_topic_and_gives_neighbours(case: Case):
    found = case.assign(Strategy.RANGE)
    for topic, count in case.counts.items():
        subscribers = [member.member_id for member in case.members if topic in member.topics]
        shares = [[one.partition for one in found[name] if one.topic == topic] for name in subscribers]
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
        if subscribers:
            assert {len(share) for share in shares} <= {count // len(shares), -(-count // len(shares))}


# --- sticky ------------------------------------------------------------------------------------


@given(case=cases(claims="any"))
def test_sticky_leaves_nothing_to_improve(case: Case):
    assert improvable(case, case.assign(Strategy.STICKY)) == []


@pytest.mark.parametrize("strategy", STICKY)
@given(case=cases(claims="possible"))
def test_sticky_keeps_its_own_result(strategy: Strategy, case: Case):
    found = case.assign(Strategy.STICKY)
    assert case.after(found).assign(strategy) == found


@given(case=cases(claims="possible"))
def test_nothing_moves_when_the_group_is_already_even(case: Case):
    before = {member.member_id: sorted(member.owned, key=str) for member in case.members}
    if set(owners(before)) == case.readable and improvable(case, before) == []:
        assert owners(case.assign(Strategy.STICKY)) == owners(before)


@given(case=cases(claims="possible"))
def test_no_two_members_exchange_partitions_of_a_topic(case: Case):
    """If one was moved from a to b, then none of the same topic was moved from b to a: both could have stayed."""
    before = owners({member.member_id: list(member.owned) for member in case.members})
    after = owners(case.assign(Strategy.STICKY))
    moved = {(p.topic, owner, after[p]) for p, owner in before.items() if after[p] != owner}
    assert not {(topic, source, target) for topic, target, source in moved} & moved


@given(case=cases(equal=True, claims="possible"))
def test_with_equal_subscriptions_as_much_is_kept_as_can_be(case: Case):
    (found,) = compare(case.counts, case.members, [Strategy.STICKY])
    quota, over = divmod(len(case.readable), len(case.members))
    owned = [len(member.owned) for member in case.members]
    fuller = min(over, sum(size > quota for size in owned))
    kept = sum(min(size, quota) for size in owned) + fuller
    assert found.moved == sum(owned) - kept


@given(case=cases(equal=True), data=st.data())
def test_when_a_member_leaves_only_its_partitions_move(case: Case, data: st.DataObject):
    before = case.assign(Strategy.STICKY)
    left = data.draw(st.sampled_from(case.members))
    rest = Case(case.counts, tuple(member for member in case.members if member != left))
    after = rest.after(before).assign(Strategy.STICKY)
    for member in rest.members:
        assert set(before[member.member_id]) <= set(after[member.member_id])


@given(case=cases(equal=True), joins=NAMES)
def test_when_a_member_joins_it_alone_is_given_partitions(case: Case, joins: str):
    if joins in {member.member_id for member in case.members}:
        return
    before = case.assign(Strategy.STICKY)
    more = Case(case.counts, (*case.members, Member(member_id=joins, topics=case.members[0].topics)))
    after = more.after(before).assign(Strategy.STICKY)
    for member in case.members:
        assert set(after[member.member_id]) <= set(before[member.member_id])


@pytest.mark.parametrize("claims", ["none", "possible", "any"])
@given(data=st.data())
def test_unequal_subscriptions_against_a_slow_reference(claims: str, data: st.DataObject):
    case = data.draw(cases(equal=False, claims=claims))
    if len({member.topics for member in case.members}) > 1:
        expected = SlowBalance(case.counts, case.members).run()
        assert {name: set(owned) for name, owned in case.assign(Strategy.STICKY).items()} == expected


# --- cooperative -------------------------------------------------------------------------------


@given(case=cases(claims="any"))
def test_cooperative_gives_nobody_what_another_still_has(case: Case):
    found = owners(case.assign(Strategy.COOPERATIVE_STICKY))
    for partition, owner in found.items():
        claimants = {m.member_id: m.generation for m in case.members if partition in m.owned}
        newest = [name for name, generation in claimants.items() if generation == max(claimants.values())]
        assert newest in ([], [owner])


@given(case=cases(claims="possible"))
def test_cooperative_gives_what_sticky_gives_or_withholds_it(case: Case):
    final, first = owners(case.assign(Strategy.STICKY)), owners(case.assign(Strategy.COOPERATIVE_STICKY))
    before = owners({member.member_id: list(member.owned) for member in case.members})
    assert first == {p: owner for p, owner in final.items() if before.get(p, owner) == owner}


@given(case=cases(equal=True, claims="any"))
def test_a_second_round_completes_the_first(case: Case):
    second = case.after(case.assign(Strategy.COOPERATIVE_STICKY)).assign(Strategy.COOPERATIVE_STICKY)
    sizes = loads(case, second).values()
    assert set(owners(second)) == case.readable
    assert max(sizes) - min(sizes) <= 1


@given(case=cases(equal=False, claims="any"))
def test_with_unequal_subscriptions_few_rounds_are_enough(case: Case):
    """Mostly two. What was withheld may fit better elsewhere in the second, which then moves others once more."""
    found = settle(case, rounds=4)
    assert set(owners(found)) == case.readable
    assert improvable(case, found) == []


def settle(case: Case, rounds: int) -> Assignment:
    found = case.assign(Strategy.COOPERATIVE_STICKY)
    for _ in range(rounds - 1):
        found = case.after(found).assign(Strategy.COOPERATIVE_STICKY)
    return found
