"""The join phase: when it starts, what it waits for, how it ends."""

from __future__ import annotations

from dataclasses import replace

from sluice.log_store.errors import RebalanceInProgress
from sluice.streaming.groups.deadlines import NEVER
from sluice.streaming.groups.membership import joined, keep_sessions, refuse_syncs, remove
from sluice.streaming.groups.protocols import chosen_protocol, subscribed_topics
from sluice.streaming.groups.state import EmptyStore, Group, JoinTimer, Phase, metadata_of
from sluice.streaming.groups.turn import Turn


def rebalance(turn: Turn, reason: str) -> None:
    """Start a join phase, or see whether the one that runs is over."""
    if turn.group.phase is Phase.PREPARING:
        complete_if_all_joined(turn)
    else:
        prepare(turn, reason)


def prepare(turn: Turn, reason: str) -> None:
    """Ask all members to join again. They hear of it by REBALANCE_IN_PROGRESS."""
    refuse_syncs(turn, RebalanceInProgress, "the group rebalances: join again")
    timer = _join_timer(turn)
    turn.move(Phase.PREPARING)
    turn.change(join_timer=timer, unsynced=frozenset(), sync_deadline=NEVER)
    turn.log(f"rebalances after generation {turn.group.generation}: {reason}")
    if timer.initial and timer.delay_ms == 0:
        complete(turn)
    else:
        complete_if_all_joined(turn)


def _join_timer(turn: Turn) -> JoinTimer:
    """A group that has just got its first member gives others a moment to come too."""
    group, now = turn.group, turn.now.boot_ms
    if group.phase is not Phase.EMPTY:
        return JoinTimer(deadline=now + group.rebalance_timeout_ms)
    delay = group.rules.initial_rebalance_delay_ms
    remaining = max(group.rebalance_timeout_ms - delay, 0)
    return JoinTimer(deadline=now + delay, initial=True, delay_ms=delay, remaining_ms=remaining)


def join_time_is_over(turn: Turn) -> None:
    """The deadline has come: of the initial delay, which members that arrived put off, or of the rebalance."""
    timer = turn.group.join_timer
    if timer and timer.initial and timer.grew and timer.remaining_ms:
        delay = min(turn.group.rules.initial_rebalance_delay_ms, timer.remaining_ms)
        turn.change(
            join_timer=replace(
                timer,
                deadline=turn.now.boot_ms + delay,
                delay_ms=delay,
                remaining_ms=max(timer.remaining_ms - timer.delay_ms, 0),
                grew=False,
            )
        )
    else:
        complete(turn)


def complete_if_all_joined(turn: Turn) -> None:
    timer = turn.group.join_timer
    if timer and not timer.initial and turn.group.all_joined:
        complete(turn)


def complete(turn: Turn) -> None:
    """End the join phase with those who are here: the next generation begins."""
    _drop_absent(turn)
    group = turn.group
    if not group.members:
        _become_empty(turn)
    elif not group.join_waiters:
        # Only static members, none of them back yet: their sessions decide how long to wait.
        turn.change(join_timer=JoinTimer(deadline=turn.now.boot_ms + group.rebalance_timeout_ms))
        turn.log("nobody joined again; the rebalance goes on until the static members are back or expire")
    else:
        _begin_generation(turn)


def _drop_absent(turn: Turn) -> None:
    """Dynamic members that did not join again go; static ones stay until their session ends."""
    group = turn.group
    absent = [
        m.member_id for m in group.members.values() if not m.instance_id and m.member_id not in group.join_waiters
    ]
    if absent:
        turn.log(f"removes members that did not join again: {', '.join(absent)}")
        remove(turn, absent)


def _become_empty(turn: Turn) -> None:
    group = turn.group
    turn.move(Phase.EMPTY)
    turn.change(
        generation=group.generation + 1,
        protocol=None,
        join_timer=None,
        subscribed_topics=subscribed_topics(group.protocol_type, None, ()),
    )
    turn.persist(metadata_of(turn.group), EmptyStore(turn.group.generation))
    turn.log(f"is empty, generation {turn.group.generation}")


def _begin_generation(turn: Turn) -> None:
    group = turn.group
    protocol = chosen_protocol(group.members.values())
    waiters = group.join_waiters
    turn.move(Phase.COMPLETING)
    turn.change(
        generation=group.generation + 1,
        protocol=protocol,
        leader=_joined_leader(group),
        # Nobody owns anything in the new generation before its assignment is stored.
        members={key: replace(member, assignment=b"") for key, member in group.members.items()},
        newcomers=frozenset(),
        join_waiters={},
        join_timer=None,
        unsynced=frozenset(group.members),
        sync_deadline=turn.now.boot_ms + group.rebalance_timeout_ms,
        subscribed_topics=subscribed_topics(group.protocol_type, protocol, group.members.values()),
    )
    # Not of static members that are away: rebalances must not keep the dead alive.
    keep_sessions(turn, waiters)
    for member_id, token in waiters.items():
        turn.reply(token, joined(turn.group, member_id))
    turn.log(f"has {len(group.members)} members in generation {turn.group.generation}, protocol {protocol}")


def _joined_leader(group: Group) -> str:
    """The leader goes on if it is back, else the longest-standing member that is."""
    if group.leader in group.join_waiters:
        return str(group.leader)
    return next(member_id for member_id in group.members if member_id in group.join_waiters)
