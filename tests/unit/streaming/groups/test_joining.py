"""Joins: ids, limits, protocols, the leader, and who causes a rebalance."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.log_store.errors import MemberIdRequired
from sluice.streaming.groups import GroupRules, Phase, Refusal
from sluice.streaming.groups.effects import Alive, Joined
from sluice.streaming.groups.events import Restore
from tests.support.groups import DELAY_MS, REBALANCE_MS, SESSION_MS, GroupDriver, error_of, offers


def joined(response: object) -> Joined:
    assert isinstance(response, Joined)
    return response


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"session_timeout_ms": 5_999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"rebalance_timeout_ms": 0}, "INVALID_REQUEST"),
        ({"rebalance_timeout_ms": 2**31}, "INVALID_REQUEST"),
        ({"protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocols": offers("range", "range")}, "INVALID_REQUEST"),
        ({"instance_id": ""}, "INVALID_REQUEST"),
        ({"instance_id": "x" * 250}, "INVALID_REQUEST"),
        ({"client_id": "\ud800"}, "INVALID_REQUEST"),
        ({"member_id": "never seen"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "never seen", "instance_id": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_wrong_join_is_refused_and_changes_nothing(changes: dict[str, Any], error: str):
    driver = GroupDriver()
    before = driver.group
    assert error_of(driver.join(**changes)[1]) == error
    assert driver.group == before


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_the_bounds_of_the_session_timeout_are_allowed(session_ms: int):
    assert error_of(GroupDriver().join(session_timeout_ms=session_ms)[1]) == "MEMBER_ID_REQUIRED"


def test_a_pending_id_cannot_become_static():
    driver = GroupDriver()
    driver.join(new_member_id="p")
    assert error_of(driver.join("p", instance_id="i")[1]) == "UNKNOWN_MEMBER_ID"


def test_a_new_id_that_is_taken_is_a_mistake_of_the_caller():
    driver = GroupDriver()
    driver.join(new_member_id="p")
    with pytest.raises(ValueError, match="taken"):
        driver.join(new_member_id="p")


# --- the id that must be known -----------------------------------------------------------------


def test_a_dynamic_member_is_given_an_id_and_joins_with_it():
    driver = GroupDriver()
    _, reply = driver.join(new_member_id="p")
    assert isinstance(reply, Refusal)
    assert (reply.error, reply.member_id) == (MemberIdRequired, "p")
    assert reply.exception().fields == {"member_id": "p"}
    assert driver.group.phase is Phase.EMPTY
    token, _ = driver.join("p")
    driver.pass_time(DELAY_MS)
    assert joined(driver.answers[token]).member_id == "p"


def test_a_pending_id_expires_with_its_session():
    driver = GroupDriver()
    driver.join(new_member_id="p")
    driver.pass_time(SESSION_MS - 1)
    assert driver.group.pending == {"p"}
    driver.pass_time(1)
    assert not driver.group.pending
    assert error_of(driver.join("p")[1]) == "UNKNOWN_MEMBER_ID"


def test_a_rebalance_waits_for_pending_ids():
    driver = GroupDriver()
    driver.stable("a")
    driver.join(new_member_id="p")
    token, _ = driver.join("a")
    assert token not in driver.answers
    driver.pass_time(SESSION_MS)
    assert joined(driver.answers[token]).generation == 2


def test_pending_ids_are_limited():
    driver = GroupDriver(GroupRules(max_size=3))
    replies = [error_of(driver.join()[1]) for _ in range(4)]
    assert replies == [*["MEMBER_ID_REQUIRED"] * 3, "GROUP_MAX_SIZE_REACHED"]


# --- generation, leader, protocol --------------------------------------------------------------


def test_the_first_to_join_leads_and_alone_is_told_the_members():
    driver = GroupDriver()
    tokens = [driver.newcomer(name) for name in "abc"]
    driver.pass_time(2 * DELAY_MS)
    first, second, third = (joined(driver.answers[token]) for token in tokens)
    assert {first.leader, second.leader, third.leader} == {"a"}
    assert [member.member_id for member in first.members] == ["a", "b", "c"]
    assert second.members == third.members == ()
    assert {first.generation, second.generation, third.generation} == {1}


def test_the_leader_is_replaced_by_the_next_that_joined():
    driver = GroupDriver()
    driver.stable("a", "b", "c")
    driver.leave("a")
    driver.join("c")
    driver.join("b")
    assert driver.group.leader == "b"


def test_a_leader_that_does_not_come_back_hands_over_to_one_that_did():
    driver = GroupDriver()
    driver.stable("a", instance_id="i")
    driver.newcomer("b")
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat("a")
        driver.pass_time(5_000)
    assert driver.group.leader == "b"
    assert driver.group.members.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (["range", "range"], "range"),
        (["range sticky", "sticky range", "sticky range"], "sticky"),
        (["range sticky", "sticky range"], "range"),  # a tie goes to the first
        (["range sticky", "sticky"], "sticky"),  # all must know it
        (["x range sticky", "y sticky range", "z sticky range"], "sticky"),
    ],
)
def test_the_protocol_is_known_to_all_and_liked_by_most(preferences: list[str], chosen: str):
    driver = GroupDriver()
    for number, names in enumerate(preferences):
        driver.newcomer(f"m{number}", protocols=offers(*names.split()))
    driver.pass_time(2 * DELAY_MS)
    assert driver.group.protocol == chosen


@pytest.mark.parametrize(
    "changes", [{"protocols": offers("sticky")}, {"protocol_type": "connect"}, {"protocols": offers("sticky", "x")}]
)
def test_without_a_common_protocol_a_member_stays_out(changes: dict[str, Any]):
    driver = GroupDriver()
    driver.stable("a")
    assert error_of(driver.join(**changes)[1]) == "INCONSISTENT_GROUP_PROTOCOL"
    assert driver.group.phase is Phase.STABLE


def test_an_empty_group_takes_any_protocol_type():
    driver = GroupDriver()
    driver.stable("a")
    driver.leave("a")
    driver.stable("b", protocol_type="connect", protocols=offers("sessioned"))
    assert driver.group.protocol_type == "connect"


# --- joining again -----------------------------------------------------------------------------


def test_a_follower_that_joins_again_unchanged_is_told_where_it_is():
    driver = GroupDriver()
    driver.stable("a", "b")
    _, reply = driver.join("b")
    assert joined(reply).generation == 1
    assert joined(reply).members == ()
    assert driver.heartbeat("a") == Alive()


def test_in_completing_the_leader_is_told_the_members_again():
    driver = GroupDriver()
    driver.completing("a", "b")
    _, reply = driver.join("a")
    assert [member.member_id for member in joined(reply).members] == ["a", "b"]
    assert not joined(reply).skip_assignment


def test_other_metadata_of_a_member_rebalances_and_is_told_to_the_leader():
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.join("b", protocols=offers("range", topics=("t", "u")))
    assert error_of(driver.heartbeat("a")) == "REBALANCE_IN_PROGRESS"
    token, _ = driver.join("a")
    told = {member.member_id: member.metadata for member in joined(driver.answers[token]).members}
    assert told == {"a": b'{"topics":["t"]}', "b": b'{"topics":["t","u"]}'}


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first():
    driver = GroupDriver()
    driver.stable("a", "b")
    first, _ = driver.join("a")
    second, _ = driver.join("a")
    assert error_of(driver.answers[first]) == "REBALANCE_IN_PROGRESS"
    driver.join("b")
    assert joined(driver.answers[second]).generation == 2


# --- size --------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_but_its_members():
    driver = GroupDriver(GroupRules(max_size=2))
    driver.stable("a", "b")
    assert error_of(driver.join()[1]) == "GROUP_MAX_SIZE_REACHED"
    assert joined(driver.join("b")[1]).generation == 1
    assert driver.group.phase is Phase.STABLE


def test_a_static_member_comes_back_into_a_full_group():
    driver = GroupDriver(GroupRules(max_size=1))
    driver.stable("a", instance_id="i")
    _, reply = driver.join(instance_id="i", new_member_id="a2")
    assert joined(reply).member_id == "a2"


def test_when_the_limit_was_lowered_the_last_to_come_back_go():
    driver = GroupDriver()
    driver.stable("a", "b", "c")
    driver.hold_stores = True
    metadata = driver.stored[-1].metadata
    assert metadata is not None
    smaller = GroupDriver(GroupRules(max_size=2))
    smaller.send(Restore(metadata))
    assert smaller.group.phase is Phase.PREPARING
    smaller.join("c")
    smaller.join("a")
    assert error_of(smaller.join("b")[1]) == "GROUP_MAX_SIZE_REACHED"
    assert smaller.group.phase is Phase.COMPLETING
    assert smaller.group.members.keys() == {"a", "c"}
