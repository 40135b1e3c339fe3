"""Static members: the same member under a new id."""

from __future__ import annotations

import pytest

from sluice.log_store.errors import StorageError
from sluice.streaming.groups import Phase
from sluice.streaming.groups.effects import Joined, Left, Synced
from sluice.streaming.groups.events import Leave, Leaving
from tests.support.groups import REBALANCE_MS, SESSION_MS, GroupDriver, error_of, offers


def two_static() -> GroupDriver:
    driver = GroupDriver()
    for name in ("a", "b"):
        driver.newcomer(name, instance_id=f"i{name}")
    driver.stable()
    return driver


def test_a_static_member_is_never_asked_to_come_again_with_an_id():
    driver = GroupDriver()
    token, reply = driver.join(instance_id="i", new_member_id="m")
    assert reply is None
    driver.pass_time(3_000)
    assert driver.answers[token].member_id == "m"


def test_a_restart_in_stable_keeps_generation_and_assignment():
    driver = two_static()
    _, reply = driver.join(instance_id="ib", new_member_id="b2")
    assert isinstance(reply, Joined)
    assert (reply.member_id, reply.generation, reply.members) == ("b2", 1, ())
    assert driver.group.phase is Phase.STABLE
    _, synced = driver.sync("b2", instance_id="ib")
    assert isinstance(synced, Synced)
    assert synced.assignment == b"b"


def test_a_leader_that_restarts_still_leads_but_need_not_assign():
    driver = two_static()
    _, reply = driver.join(instance_id="ia", new_member_id="a2")
    assert isinstance(reply, Joined)
    assert (reply.leader, reply.skip_assignment) == ("a2", True)
    assert [member.member_id for member in reply.members] == ["a2", "b"]


def test_the_old_id_is_fenced_everywhere():
    driver = two_static()
    driver.join(instance_id="ib", new_member_id="b2")
    fenced = [
        driver.join("b", instance_id="ib")[1],
        driver.sync("b", instance_id="ib")[1],
        driver.heartbeat("b", instance_id="ib"),
        driver.commit("b", 1, instance_id="ib"),
    ]
    assert [error_of(reply) for reply in fenced] == ["FENCED_INSTANCE_ID"] * 4
    left = driver.send(Leave((Leaving(member_id="b", instance_id="ib"),)))
    assert isinstance(left, Left)
    assert error_of(left.members[0].refusal) == "FENCED_INSTANCE_ID"
    assert error_of(driver.heartbeat("b")) == "UNKNOWN_MEMBER_ID", "without the instance id it is just unknown"


def test_waiting_requests_of_the_old_id_are_fenced():
    driver = two_static()
    waiting, _ = driver.join("a", instance_id="ia")
    driver.join(instance_id="ia", new_member_id="a2")
    assert error_of(driver.answers[waiting]) == "FENCED_INSTANCE_ID"
    driver.join("b", instance_id="ib")
    sync, _ = driver.sync("b", instance_id="ib")
    driver.join(instance_id="ib", new_member_id="b2")
    assert error_of(driver.answers[sync]) == "FENCED_INSTANCE_ID"


def test_a_restart_while_completing_starts_over():
    driver = GroupDriver()
    driver.completing("a", "b")
    driver.newcomer("s", instance_id="i")
    driver.join("a")
    driver.join("b")
    assert driver.group.phase is Phase.COMPLETING
    driver.join(instance_id="i", new_member_id="s2")
    assert driver.group.phase is Phase.PREPARING, "the leader may be assigning to the old id"


def test_a_restart_that_changes_the_vote_rebalances():
    driver = GroupDriver()
    driver.newcomer("a", instance_id="i", protocols=offers("range", "sticky"))
    driver.stable()
    driver.join(instance_id="i", new_member_id="a2", protocols=offers("sticky", "range"))
    assert (driver.group.phase, driver.group.protocol) == (Phase.COMPLETING, "sticky")


def test_a_restart_is_answered_once_the_new_id_is_stored():
    driver = two_static()
    driver.hold_stores = True
    token, reply = driver.join(instance_id="ib", new_member_id="b2")
    assert reply is None
    (store,) = driver.held
    assert store.metadata is not None
    assert [(m.member_id, m.assignment) for m in store.metadata.members] == [("a", b"a"), ("b2", b"b")]
    driver.store_all()
    assert isinstance(driver.answers[token], Joined)


def test_a_restart_that_cannot_be_stored_did_not_happen():
    driver = two_static()
    driver.hold_stores = True
    before = driver.group.members
    token, _ = driver.join(instance_id="ib", new_member_id="b2")
    driver.fail_store(StorageError("disk"))
    assert error_of(driver.answers[token]) == "NOT_COORDINATOR"
    assert driver.group.members == before
    assert error_of(driver.heartbeat("b", instance_id="ib")) is None


def test_a_restart_that_a_rebalance_overtakes_takes_part_in_it():
    driver = two_static()
    driver.hold_stores = True
    token, _ = driver.join(instance_id="ib", new_member_id="b2")
    driver.join("a", instance_id="ia")
    reply = driver.answers[token]
    assert isinstance(reply, Joined)
    assert (reply.member_id, reply.generation, reply.skip_assignment) == ("b2", 2, False)
    driver.store_all()


def test_static_members_that_do_not_join_again_stay_until_their_session_ends():
    driver = GroupDriver()
    driver.newcomer("s", instance_id="i", session_timeout_ms=200_000)
    driver.stable("d")
    driver.newcomer("n")
    driver.pass_time(REBALANCE_MS)
    assert driver.group.members.keys() == {"s", "n"}, "the dynamic one went"
    driver.pass_time(200_000)
    assert "s" not in driver.group.members


def test_a_rebalance_to_which_nobody_comes_goes_on_until_the_sessions_end():
    driver = GroupDriver()
    for name in ("a", "b"):
        driver.newcomer(name, instance_id=f"i{name}", session_timeout_ms=150_000)
    driver.stable()
    driver.send(Leave((Leaving(instance_id="ia"),)))
    driver.pass_time(REBALANCE_MS + 1)
    assert (driver.group.phase, driver.group.generation) == (Phase.PREPARING, 1)
    driver.pass_time(150_000)
    assert (driver.group.phase, driver.group.generation) == (Phase.EMPTY, 2)


@pytest.mark.parametrize(
    ("leaving", "error"), [("ib", None), ("nobody", "UNKNOWN_MEMBER_ID"), (None, "UNKNOWN_MEMBER_ID")]
)
def test_an_administrator_removes_a_static_member_by_its_instance_id(leaving: str | None, error: str | None):
    driver = two_static()
    left = driver.send(Leave((Leaving(instance_id=leaving),)))
    assert isinstance(left, Left)
    assert error_of(left.members[0].refusal) == error
    assert ("b" in driver.group.members) == (error is not None)


def test_rebalances_do_not_keep_an_absent_static_member_alive():
    driver = GroupDriver()
    driver.newcomer("s", instance_id="i", session_timeout_ms=2 * SESSION_MS)
    driver.stable("d", rebalance_timeout_ms=SESSION_MS)
    driver.join("d", protocols=offers("range", topics=("u",)), rebalance_timeout_ms=SESSION_MS)
    driver.pass_time(2 * SESSION_MS)
    assert "s" not in driver.group.members
