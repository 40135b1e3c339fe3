"""Leaving, deleting, unloading, restoring."""

from __future__ import annotations

import pytest

from sluice.log_store.errors import RequestTimedOut
from sluice.streaming.groups import Phase, decode_metadata, encode_metadata
from sluice.streaming.groups.effects import Deleted, Joined, Left
from sluice.streaming.groups.events import Delete, Leave, Leaving, Restore, Unload
from tests.support.groups import SESSION_MS, GroupDriver, error_of, offers

# --- leaving -----------------------------------------------------------------------------------


def test_several_leave_at_once_each_with_its_own_answer():
    driver = GroupDriver()
    driver.stable("a", "b", "c")
    left = driver.leave("b", "x", "c", "b")
    assert isinstance(left, Left)
    assert [(leaver.member_id, error_of(leaver.refusal)) for leaver in left.members] == [
        ("b", None),
        ("x", "UNKNOWN_MEMBER_ID"),
        ("c", None),
        ("b", "UNKNOWN_MEMBER_ID"),
    ]
    assert driver.group.members.keys() == {"a"}
    assert driver.group.phase is Phase.PREPARING


def test_when_nobody_known_leaves_nothing_happens():
    driver = GroupDriver()
    driver.stable("a")
    before = driver.group
    driver.leave("x")
    assert driver.group == before


def test_waiting_requests_of_who_is_removed_are_answered():
    driver = GroupDriver()
    driver.stable("a", "b")
    token, _ = driver.join("a")
    driver.leave("a")
    assert error_of(driver.answers[token]) == "UNKNOWN_MEMBER_ID"
    driver.join("b")
    driver.newcomer("c")
    driver.join("b")
    sync, _ = driver.sync("c")
    driver.leave("c")
    assert error_of(driver.answers[sync]) == "UNKNOWN_MEMBER_ID"


def test_a_pending_id_leaves_and_the_rebalance_goes_on():
    driver = GroupDriver()
    driver.stable("a")
    driver.join(new_member_id="p")
    token, _ = driver.join("a")
    driver.leave("p")
    assert isinstance(driver.answers[token], Joined)


def test_a_pending_id_that_leaves_a_stable_group_disturbs_nobody():
    driver = GroupDriver()
    driver.stable("a")
    driver.join(new_member_id="p")
    driver.leave("p")
    assert driver.group.phase is Phase.STABLE
    assert not driver.group.pending


def test_an_instance_id_that_belongs_to_another_is_fenced():
    driver = GroupDriver()
    driver.newcomer("s", instance_id="i")
    driver.stable("a")
    left = driver.send(Leave((Leaving(member_id="a", instance_id="i"),)))
    assert isinstance(left, Left)
    assert error_of(left.members[0].refusal) == "FENCED_INSTANCE_ID"


# --- deleting ----------------------------------------------------------------------------------


def empty() -> GroupDriver:
    driver = GroupDriver()
    driver.stable("a")
    driver.leave("a")
    driver.hold_stores = True
    return driver


def test_a_deletion_is_answered_once_it_is_stored():
    driver = empty()
    assert driver.send(Delete("d")) is None
    (tombstone,) = driver.held
    assert tombstone.metadata is None
    assert (driver.dead, driver.answers.get("d")) == (False, None)
    driver.store_all()
    assert driver.dead
    assert driver.answers["d"] == Deleted()


def test_a_deletion_that_cannot_be_stored_is_withdrawn():
    driver = empty()
    before = driver.group
    driver.pass_time(5_000)
    driver.send(Delete("d"))
    driver.fail_store(RequestTimedOut("x"))
    assert error_of(driver.answers["d"]) == "COORDINATOR_NOT_AVAILABLE"
    assert not driver.dead
    assert driver.group == before._replace(next_ticket=before.next_ticket + 1), "empty since when it was"


def test_ids_given_out_before_a_deletion_are_void():
    driver = empty()
    driver.join(new_member_id="p")
    driver.send(Delete("d"))
    assert not driver.group.pending
    driver.pass_time(SESSION_MS)


# --- unloading and restoring -------------------------------------------------------------------


def test_who_waits_is_sent_to_the_new_coordinator():
    driver = GroupDriver()
    driver.stable("a", "b")
    token, _ = driver.join("a")
    driver.send(Unload())
    assert error_of(driver.answers[token]) == "NOT_COORDINATOR"
    assert driver.dead
    assert not driver.held, "what is stored stays"
    driver.pass_time(10**9)


def restarted(driver: GroupDriver) -> GroupDriver:
    metadata = driver.stored[-1].metadata
    assert metadata is not None
    after = GroupDriver()
    after.now = driver.now
    after.send(Restore(decode_metadata(encode_metadata(metadata))))
    return after


def test_members_do_not_notice_a_restart():
    driver = GroupDriver()
    driver.newcomer("s", instance_id="i")
    driver.stable("a")
    driver.pass_time(SESSION_MS - 1)
    after = restarted(driver)
    assert (after.group.phase, after.group.generation, after.group.leader) == (Phase.STABLE, 1, "s")
    assert after.group.subscribed_topics == {"t"}
    after.pass_time(SESSION_MS - 1)
    assert error_of(after.heartbeat("a", 1)) is None, "a full session from the restart on"
    assert after.sync("s", instance_id="i")[1].assignment == b"s"
    assert isinstance(after.join("a")[1], Joined), "an unchanged follower"


def test_members_that_do_not_come_back_after_a_restart_expire():
    driver = GroupDriver()
    driver.stable("a", "b")
    after = restarted(driver)
    after.pass_time(SESSION_MS)
    assert (after.group.phase, after.group.generation) == (Phase.EMPTY, 2)


def test_a_rebalance_that_a_restart_cut_off_starts_from_the_stored_generation():
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.newcomer("c")
    driver.join("a")
    driver.join("b")
    assert driver.group.generation == 2
    after = restarted(driver)
    assert error_of(after.sync("a", generation=2)[1]) == "ILLEGAL_GENERATION"
    assert error_of(after.join("c")[1]) == "UNKNOWN_MEMBER_ID"
    after.newcomer("c2")
    for member_id in ("a", "b"):
        after.join(member_id)
    assert (after.group.phase, after.group.generation) == (Phase.COMPLETING, 2)
    assert after.group.members.keys() == {"a", "b", "c2"}


def test_a_new_member_id_that_a_restart_forgot_is_not_fenced_but_replaced():
    driver = GroupDriver()
    driver.newcomer("s", instance_id="i")
    driver.stable("a")
    driver.join("a", protocols=offers("range", topics=("u",)))
    driver.join(instance_id="i", new_member_id="s2")
    assert driver.group.phase is Phase.COMPLETING, "s2 was told its id; nothing of it is stored"
    after = restarted(driver)
    assert error_of(after.heartbeat("s2", 2, instance_id="i")) == "UNKNOWN_MEMBER_ID"
    assert isinstance(after.join(instance_id="i", new_member_id="s3")[1], Joined)
    assert error_of(after.heartbeat("s2", 1, instance_id="i")) == "FENCED_INSTANCE_ID"


def test_once_the_stored_id_was_heard_others_are_fenced():
    driver = GroupDriver()
    driver.newcomer("s", instance_id="i")
    driver.stable()
    after = restarted(driver)
    after.heartbeat("s", 1, instance_id="i")
    assert error_of(after.heartbeat("zombie", 1, instance_id="i")) == "FENCED_INSTANCE_ID"


def test_an_empty_group_remembers_since_when():
    driver = empty()
    since = driver.group.changed_wall_ms
    driver.pass_time(1_000_000)
    after = restarted(driver)
    assert (after.group.phase, after.group.generation) == (Phase.EMPTY, 2)
    assert after.group.changed_wall_ms == since


def test_a_group_in_use_is_not_restored():
    driver = GroupDriver()
    driver.stable("a")
    stored = driver.stored[-1].metadata
    assert stored is not None
    for used in (driver, empty()):
        with pytest.raises(ValueError, match="not new"):
            used.send(Restore(stored))


def test_unreadable_subscriptions_leave_the_topics_unknown():
    driver = GroupDriver()
    unreadable = tuple(offer._replace(metadata=b"\x00") for offer in offers("range"))
    driver.stable("a", protocols=unreadable)
    assert driver.group.subscribed_topics is None
