"""Time: sessions, the initial delay, the rebalance timeout, requests whose sender is gone, ticks that come late."""

from __future__ import annotations

from sluice.streaming.groups import GroupRules, Now, Phase, next_deadline, step
from sluice.streaming.groups.deadlines import NEVER
from sluice.streaming.groups.effects import Alive, Joined
from sluice.streaming.groups.events import Heartbeat, Tick
from tests.support.groups import DELAY_MS, REBALANCE_MS, SESSION_MS, START, GroupDriver, error_of

# --- the first rebalance -----------------------------------------------------------------------


def test_the_first_rebalance_waits_for_others():
    driver = GroupDriver()
    token = driver.newcomer("a")
    driver.pass_time(DELAY_MS - 1)
    assert token not in driver.answers
    driver.pass_time(1)
    assert isinstance(driver.answers[token], Joined)


def test_who_arrives_meanwhile_puts_it_off_once_more():
    driver = GroupDriver()
    driver.newcomer("a")
    driver.pass_time(DELAY_MS - 1)
    driver.newcomer("b")
    driver.pass_time(1)
    assert driver.group.phase is Phase.PREPARING
    driver.pass_time(DELAY_MS - 1)
    assert driver.group.phase is Phase.PREPARING
    driver.pass_time(1)
    assert driver.group.phase is Phase.COMPLETING


def test_it_is_not_put_off_beyond_the_rebalance_timeout():
    driver = GroupDriver()
    started = driver.now.boot_ms
    for number in range(100):
        if driver.group.phase is Phase.COMPLETING:
            break
        driver.newcomer(f"m{number}", rebalance_timeout_ms=10_000)
        driver.pass_time(1_000)
    assert 10_000 <= driver.now.boot_ms - started <= 10_000 + DELAY_MS


def test_everybody_here_does_not_end_the_initial_delay():
    driver = GroupDriver()
    driver.newcomer("a")
    driver.newcomer("b")
    driver.leave("b")
    assert driver.group.phase is Phase.PREPARING


def test_without_a_delay_it_ends_at_once():
    driver = GroupDriver(GroupRules(initial_rebalance_delay_ms=0))
    token = driver.newcomer("a")
    assert isinstance(driver.answers[token], Joined)


def test_when_all_leave_in_the_delay_the_group_is_empty_after_it():
    driver = GroupDriver()
    driver.newcomer("a")
    driver.leave("a")
    assert driver.group.phase is Phase.PREPARING
    driver.pass_time(DELAY_MS)
    assert (driver.group.phase, driver.group.generation) == (Phase.EMPTY, 1)


# --- later ones --------------------------------------------------------------------------------


def test_a_later_rebalance_ends_when_all_are_back():
    driver = GroupDriver()
    driver.stable("a", "b")
    token = driver.newcomer("c")
    driver.join("b")
    driver.join("a")
    assert isinstance(driver.answers[token], Joined)


def test_or_after_the_longest_rebalance_timeout_without_those_who_are_not():
    driver = GroupDriver()
    driver.stable("a", rebalance_timeout_ms=7_000)
    token = driver.newcomer("b", rebalance_timeout_ms=20_000)
    for _ in range(4):
        assert token not in driver.answers
        assert error_of(driver.heartbeat("a")) == "REBALANCE_IN_PROGRESS"
        driver.pass_time(5_000)
    assert driver.answers[token].generation == 2
    assert driver.group.members.keys() == {"b"}


# --- sessions ----------------------------------------------------------------------------------


def test_a_silent_member_goes_with_its_session():
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.pass_time(SESSION_MS - 1)
    driver.heartbeat("a")
    driver.pass_time(1)
    assert driver.group.members.keys() == {"a"}
    assert driver.group.phase is Phase.PREPARING
    assert error_of(driver.heartbeat("b")) == "UNKNOWN_MEMBER_ID"


def test_everything_a_member_says_keeps_its_session():
    says = {
        "heartbeat": lambda d: d.heartbeat("b"),
        "commit": lambda d: d.commit("b", 1),
        "sync": lambda d: d.sync("b"),
        "join": lambda d: d.join("b"),
    }
    for name, say in says.items():
        driver = GroupDriver()
        driver.stable("a", "b")
        driver.pass_time(SESSION_MS - 1)
        driver.heartbeat("a")
        say(driver)
        driver.pass_time(SESSION_MS - 1)
        assert "b" in driver.group.members, name


def test_a_heartbeat_of_another_generation_does_not():
    driver = GroupDriver()
    driver.stable("a")
    driver.pass_time(SESSION_MS - 1)
    assert error_of(driver.heartbeat("a", generation=7)) == "ILLEGAL_GENERATION"
    driver.pass_time(1)
    assert driver.group.phase is Phase.EMPTY


def test_a_rebalancing_group_still_hears_heartbeats():
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.join("a")
    for _ in range(3):
        driver.pass_time(SESSION_MS - 1)
        assert error_of(driver.heartbeat("b")) == "REBALANCE_IN_PROGRESS"
    assert "b" in driver.group.members


def test_who_waits_for_a_rebalance_needs_no_heartbeat():
    driver = GroupDriver()
    driver.stable("a", "b")
    token, _ = driver.join("a")
    for _ in range(4):
        driver.heartbeat("b")
        driver.pass_time(SESSION_MS - 1)
    assert "a" in driver.group.members
    driver.join("b")
    assert isinstance(driver.answers[token], Joined)


def test_the_first_join_of_a_member_does_not_wait_for_ever():
    driver = GroupDriver(GroupRules(new_member_join_timeout_ms=12_000))
    driver.stable("a")
    token = driver.newcomer("b")
    for _ in range(3):
        driver.heartbeat("a")
        driver.pass_time(4_000)
    assert error_of(driver.answers[token]) == "UNKNOWN_MEMBER_ID"
    assert driver.group.members.keys() == {"a"}


def test_the_last_session_empties_the_group_and_that_is_a_generation():
    driver = GroupDriver()
    driver.stable("a", "b")
    driver.pass_time(SESSION_MS)
    assert (driver.group.phase, driver.group.generation) == (Phase.EMPTY, 2)
    assert driver.group.changed_wall_ms == driver.now.wall_ms
    metadata = driver.stored[-1].metadata
    assert metadata is not None
    assert (metadata.members, metadata.leader, metadata.protocol, metadata.protocol_type) == (
        (),
        None,
        None,
        "consumer",
    )
    assert next_deadline(driver.group) is None


# --- senders that are gone ---------------------------------------------------------------------


def test_a_join_whose_sender_is_gone_does_not_count():
    driver = GroupDriver()
    driver.stable("a", "b")
    token, _ = driver.join("a")
    driver.gone(token)
    driver.join("b")
    assert driver.group.phase is Phase.PREPARING
    again, _ = driver.join("a")
    assert isinstance(driver.answers[again], Joined)
    assert token not in driver.answers


def test_and_its_member_has_one_session_to_come_again():
    driver = GroupDriver()
    driver.stable("a", "b")
    token, _ = driver.join("a")
    assert driver.group.session_deadline("a") == NEVER
    driver.gone(token)
    driver.join("b")
    driver.pass_time(SESSION_MS)
    assert (driver.group.phase, driver.group.leader) == (Phase.COMPLETING, "b")


def test_a_join_answer_that_was_lost_is_given_again():
    driver = GroupDriver()
    driver.completing("a", "b")
    first = driver.join("b")[1]
    assert isinstance(first, Joined)
    assert driver.join("b")[1] == first


def test_a_sync_whose_sender_is_gone_is_asked_again():
    driver = GroupDriver()
    driver.completing("a", "b")
    token, _ = driver.sync("b")
    driver.gone(token)
    driver.sync("a", assignments={"b": b"2"})
    assert token not in driver.answers
    assert driver.sync("b")[1].assignment == b"2"


# --- ticks -------------------------------------------------------------------------------------


def test_a_late_tick_does_what_prompt_ones_would_have_done():
    """b's session ends before the rebalance does: the rebalance ends then, with a alone."""
    prompt, late = GroupDriver(), GroupDriver()
    for driver in (prompt, late):
        driver.stable("a", "b")
        driver.join("a")
    prompt.pass_time(REBALANCE_MS)
    late.now = Now(late.now.boot_ms + REBALANCE_MS, late.now.wall_ms + REBALANCE_MS)
    late.send(Tick())
    assert late.answers[next(reversed(late.answers))].generation == 2
    assert late.group.members.keys() == {"a"}
    assert next(reversed(prompt.answers)) == next(reversed(late.answers))


def test_wall_time_may_jump():
    driver = GroupDriver()
    driver.stable("a")
    for jump in (-(10**9), 10**9):
        driver.now = Now(driver.now.boot_ms + 1, START.wall_ms + jump)
        driver.send(Tick())
        assert driver.heartbeat("a") == Alive()


def test_a_heartbeat_costs_the_same_in_a_large_group():
    """Counted, not timed: nothing but a path of the deadlines and the group itself is new."""
    driver = GroupDriver()
    driver.stable(*(f"m{number:03}" for number in range(500)))
    before = driver.group
    after, effects, reply = step(before, Heartbeat(member_id="m250", generation=1), driver.now)
    assert (effects, reply) == ((), Alive())
    changed = {name for name in before._fields if getattr(after, name) is not getattr(before, name)}
    assert changed == {"deadlines"}
