"""Syncs: the leader's assignment, who computes it, who gets it when, and what happens when it cannot be stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.log_store.errors import (
    MessageTooLarge,
    NotLeader,
    Overloaded,
    RequestTimedOut,
    SluiceError,
    StorageError,
)
from sluice.streaming.groups import Phase, assignment_task
from sluice.streaming.groups.effects import Alive, Joined, Synced
from sluice.streaming.groups.events import Persisted, PersistFailed, Sync, Unload
from tests.support.groups import REBALANCE_MS, SESSION_MS, GroupDriver, error_of, offers


def assignment(response: object) -> bytes:
    assert isinstance(response, Synced)
    return response.assignment


# --- the leader's map --------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_each_gets_its_part():
    driver = GroupDriver()
    driver.completing("a", "b", "c")
    early, _ = driver.sync("b")
    assert early not in driver.answers
    leader, _ = driver.sync("a", assignments={"a": b"1", "b": b"2", "stranger": b"3"})
    assert assignment(driver.answers[early]) == b"2"
    assert assignment(driver.answers[leader]) == b"1"
    assert assignment(driver.sync("c")[1]) == b"", "left out by the leader: owns nothing"
    assert driver.group.members.keys() == {"a", "b", "c"}


def test_a_follower_cannot_assign():
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.sync("b", assignments={"b": b"all"})
    driver.sync("a", assignments={"a": b"all"})
    assert assignment(driver.sync("b")[1]) == b""


def test_in_stable_a_sync_changes_nothing():
    driver = GroupDriver()
    driver.stable("a", "b")
    assert assignment(driver.sync("a", assignments={"a": b"more"})[1]) == b"a"


@pytest.mark.parametrize("claim", [{"protocol": "sticky"}, {"protocol_type": "connect"}])
def test_a_sync_with_another_protocol_is_refused(claim: dict[str, str]):
    driver = GroupDriver()
    driver.completing("a")
    assert error_of(driver.sync("a", **claim)[1]) == "INCONSISTENT_GROUP_PROTOCOL"
    assert driver.sync("a", protocol_type="consumer", protocol="range")[1]


def test_the_member_is_judged_before_the_generation_and_that_before_the_protocol():
    driver = GroupDriver()
    driver.completing("a")
    assert error_of(driver.sync("x", generation=9, protocol="y")[1]) == "UNKNOWN_MEMBER_ID"
    assert error_of(driver.sync("a", generation=9, protocol="y")[1]) == "ILLEGAL_GENERATION"
    assert error_of(driver.sync("a", generation=0)[1]) == "ILLEGAL_GENERATION"


# --- an assignment that the coordinator computes -----------------------------------------------


def test_a_strategy_of_the_leader_is_a_task_for_the_caller():
    driver = GroupDriver()
    driver.completing("a", instance_id="i")
    driver.newcomer("b", protocols=offers("range", topics=("u",)))
    driver.join("a")
    sync = Sync(token="s", member_id="a", generation=2, strategy="sticky")
    task = assignment_task(driver.group, sync)
    assert task is not None
    assert task.strategy == "sticky"
    assert {key: (m.instance_id, m.metadata) for key, m in task.members.items()} == {
        "a": ("i", b'{"topics":["t"]}'),
        "b": (None, b'{"topics":["u"]}'),
    }
    driver.send(replace(sync, assignments={"a": b"1", "b": b"2"}))
    assert assignment(driver.answers["s"]) == b"1"


def test_nobody_else_gives_a_task():
    driver = GroupDriver()
    driver.completing("a", "b")
    asks = Sync(token="s", member_id="b", generation=1, strategy="sticky")
    assert assignment_task(driver.group, asks) is None, "a follower"
    assert assignment_task(driver.group, replace(asks, member_id="a", generation=0)) is None, "an old generation"
    assert assignment_task(driver.group, replace(asks, member_id="a", assignments={})) is None, "it is computed"
    assert assignment_task(driver.group, replace(asks, member_id="a", strategy=None)) is None, "the leader computes"
    driver.hold_stores = True
    driver.sync("a")
    assert assignment_task(driver.group, replace(asks, member_id="a")) is None, "one is being stored"
    driver.store_all()
    assert assignment_task(driver.group, replace(asks, member_id="a")) is None, "the group is stable"


def test_a_task_that_was_not_done_is_a_mistake_of_the_caller():
    driver = GroupDriver()
    driver.completing("a")
    with pytest.raises(ValueError, match="computed"):
        driver.sync("a", strategy="range")


# --- storing -----------------------------------------------------------------------------------


def test_nobody_hears_of_an_assignment_before_it_is_stored():
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.hold_stores = True
    tokens = [driver.sync("a", assignments={"a": b"1"})[0], driver.sync("b")[0]]
    assert driver.group.phase is Phase.COMPLETING
    assert not driver.answers.keys() & set(tokens)
    assert error_of(driver.commit("a", 1)) == "REBALANCE_IN_PROGRESS"
    (store,) = driver.held
    assert store.metadata is not None
    assert [(m.member_id, m.assignment) for m in store.metadata.members] == [("a", b"1"), ("b", b"")]
    driver.store_all()
    assert driver.group.phase is Phase.STABLE
    assert driver.answers.keys() >= set(tokens)


def test_while_one_is_stored_the_leader_cannot_bring_another():
    driver = GroupDriver()
    driver.completing("a")
    driver.hold_stores = True
    first, _ = driver.sync("a", assignments={"a": b"1"})
    second, _ = driver.sync("a", assignments={"a": b"2"})
    assert error_of(driver.answers[first]) == "REBALANCE_IN_PROGRESS"
    assert len(driver.held) == 1
    driver.store_all()
    assert assignment(driver.answers[second]) == b"1"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RequestTimedOut("x"), "COORDINATOR_NOT_AVAILABLE"),
        (NotLeader("x"), "NOT_COORDINATOR"),
        (StorageError("x"), "NOT_COORDINATOR"),
        (MessageTooLarge("x"), "UNKNOWN_SERVER_ERROR"),
        (Overloaded("x"), "THROTTLING_QUOTA_EXCEEDED"),
    ],
)
def test_when_it_cannot_be_stored_all_who_wait_are_told_and_join_again(error: SluiceError, told: str):
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.hold_stores = True
    tokens = [driver.sync("a")[0], driver.sync("b")[0]]
    driver.fail_store(error)
    assert [error_of(driver.answers[token]) for token in tokens] == [told, told]
    assert driver.group.phase is Phase.PREPARING
    driver.join("a")
    driver.join("b")
    assert (driver.group.phase, driver.group.generation) == (Phase.COMPLETING, 2)


def test_a_store_that_ends_after_the_group_went_on_changes_nothing():
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.hold_stores = True
    token, _ = driver.sync("a", assignments={"a": b"old"})
    driver.leave("b")
    assert error_of(driver.answers[token]) == "REBALANCE_IN_PROGRESS"
    driver.join("a")
    assert (driver.group.phase, driver.group.generation) == (Phase.COMPLETING, 2)
    ticket = driver.held.pop().ticket
    before = driver.group
    driver.send(Persisted(ticket))
    assert driver.group == before._replace(stores={})


def test_a_ticket_is_taken_once():
    driver = GroupDriver()
    driver.stable("a")
    for event in (Persisted(0), PersistFailed(0, StorageError("x"))):
        with pytest.raises(ValueError, match="not open"):
            driver.send(event)


def test_an_unloaded_group_does_not_care_for_its_tickets():
    driver = GroupDriver()
    driver.completing("a")
    driver.hold_stores = True
    token, _ = driver.sync("a")
    driver.send(Unload())
    assert error_of(driver.answers[token]) == "NOT_COORDINATOR"
    driver.store_all()
    assert driver.dead
    assert driver.group.phase is Phase.DEAD


# --- who does not sync -------------------------------------------------------------------------


def test_members_that_do_not_sync_in_time_are_removed_and_the_rest_rebalances():
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.sync("a")
    for _ in range(REBALANCE_MS // 5_000):
        assert driver.group.phase is Phase.STABLE
        assert driver.heartbeat("a") == driver.heartbeat("b") == Alive()
        driver.pass_time(5_000)
    assert driver.group.phase is Phase.PREPARING
    assert driver.group.members.keys() == {"a"}


def test_a_leader_that_does_not_sync_is_removed_and_who_waits_joins_again():
    driver = GroupDriver()
    driver.completing("a", "b")
    token, _ = driver.sync("b")
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat("a")
        driver.pass_time(5_000)
    assert error_of(driver.answers[token]) == "REBALANCE_IN_PROGRESS"
    assert (driver.group.leader, driver.group.phase) == ("b", Phase.PREPARING)


def test_who_waits_for_the_leader_needs_no_heartbeat():
    driver = GroupDriver()
    driver.completing("a", "b")
    token, _ = driver.sync("b")
    for _ in range(4):
        driver.heartbeat("a")
        driver.pass_time(SESSION_MS - 1)
    driver.sync("a", assignments={"b": b"2"})
    assert assignment(driver.answers[token]) == b"2"
    driver.pass_time(SESSION_MS - 1)
    assert "b" in driver.group.members, "a full session from the answer on"
    driver.pass_time(1)
    assert "b" not in driver.group.members


def test_a_new_generation_starts_without_assignments():
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.join("a")
    driver.join("b")
    assert driver.group.phase is Phase.COMPLETING
    assert {member.assignment for member in driver.group.members.values()} == {b""}
    assert isinstance(driver.join("b")[1], Joined)
