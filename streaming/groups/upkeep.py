"""Answers to everything that is neither a join nor a sync: signs of life, farewells, time, administration."""

from __future__ import annotations

from sluice.log_store.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from sluice.streaming.groups.deadlines import NEVER, NO_DEADLINES
from sluice.streaming.groups.effects import (
    Alive,
    CommitAllowed,
    GroupDead,
    Leaver,
    Left,
    OffsetDeleteAllowed,
    Refusal,
    Response,
)
from sluice.streaming.groups.events import ClientGone, Commit, Delete, Heartbeat, Leave, Leaving, OffsetDelete, Restore
from sluice.streaming.groups.membership import find_member, keep_sessions, member_refusal, remove
from sluice.streaming.groups.offsets import commit_refusal, offset_delete_refusal, topic_refusals
from sluice.streaming.groups.protocols import common_protocols, subscribed_topics
from sluice.streaming.groups.rebalance import join_time_is_over, prepare, rebalance
from sluice.streaming.groups.state import Phase, TombstoneStore
from sluice.streaming.groups.turn import Turn

# --- signs of life -----------------------------------------------------------------------------


def on_heartbeat(turn: Turn, beat: Heartbeat) -> Response:
    group = turn.group
    if group.phase is Phase.DEAD:
        return Refusal(CoordinatorNotAvailable, "the group is being removed: try again")
    refusal = member_refusal(group, beat.member_id, beat.instance_id, beat.generation)
    if refusal:
        return refusal
    keep_sessions(turn, (beat.member_id,))
    if group.phase is Phase.PREPARING:
        return Refusal(RebalanceInProgress, "the group rebalances: join again")
    return Alive()


def on_commit(turn: Turn, commit: Commit) -> Response:
    refusal = commit_refusal(turn.group, commit.member_id, commit.generation, commit.instance_id)
    if refusal:
        return refusal
    if commit.member_id in turn.group.members:
        keep_sessions(turn, (commit.member_id,))
    return CommitAllowed()


# --- farewells ---------------------------------------------------------------------------------


def on_leave(turn: Turn, leave: Leave) -> Response:
    if turn.group.phase is Phase.DEAD:
        return Refusal(CoordinatorNotAvailable, "the group is being removed: try again")
    members = turn.group.members
    answers = tuple(Leaver(who.member_id, who.instance_id, _take_leave(turn, who)) for who in leave.members)
    if any(answer.refusal is None for answer in answers):
        gone = [member_id for member_id in members if member_id not in turn.group.members]
        _after_removal(turn, f"left: {', '.join(gone)}", lost_members=bool(gone))
    return Left(answers)


def _take_leave(turn: Turn, who: Leaving) -> Refusal | None:
    group, member_id = turn.group, who.member_id
    if not member_id:
        member_id = group.instances.get(who.instance_id or "", "")
        if not member_id:
            return Refusal(UnknownMemberId, f"instance {who.instance_id!r} is not a member of the group")
    elif member_id not in group.pending:
        member = find_member(group, member_id, who.instance_id)
        if isinstance(member, Refusal):
            return member
    remove(turn, {member_id})
    return None


def _after_removal(turn: Turn, reason: str, *, lost_members: bool) -> None:
    if turn.group.phase is Phase.PREPARING or (lost_members and turn.group.phase is not Phase.EMPTY):
        rebalance(turn, reason)


def on_client_gone(turn: Turn, event: ClientGone) -> None:
    """A join whose sender is gone counts as not joined: the member comes again, or its session ends."""
    group = turn.group
    joins = {key: token for key, token in group.join_waiters.items() if token != event.token}
    syncs = {key: token for key, token in group.sync_waiters.items() if token != event.token}
    left_waiting = (group.join_waiters.keys() - joins) | (group.sync_waiters.keys() - syncs)
    turn.change(join_waiters=joins, sync_waiters=syncs)
    keep_sessions(turn, left_waiting)


# --- time --------------------------------------------------------------------------------------


def on_tick(turn: Turn) -> None:
    """Everything that is due, in the order in which it became so: a late tick does what prompt ones would have."""
    while True:
        group, now = turn.group, turn.now.boot_ms
        join = group.join_timer.deadline if group.join_timer else NEVER
        sync, session = group.sync_deadline, group.deadlines.earliest
        if min(join, sync, session) > now:
            return
        if session <= min(join, sync):
            _end_sessions(turn, min(join, sync, now))
        elif join <= sync:
            join_time_is_over(turn)
        else:
            _sync_time_is_over(turn)


def _end_sessions(turn: Turn, until: int) -> None:
    group = turn.group
    due = group.deadlines.due(until)
    expired = [member_id for member_id, slot in group.slots.items() if slot in due]
    lost_members = any(member_id in group.members for member_id in expired)
    turn.log(f"session ended: {', '.join(expired)}")
    remove(turn, expired)
    _after_removal(turn, "sessions ended", lost_members=lost_members)


def _sync_time_is_over(turn: Turn) -> None:
    late = turn.group.unsynced
    turn.log(f"removes members that did not sync: {', '.join(sorted(late))}")
    remove(turn, late)
    prepare(turn, "members did not sync")


# --- administration ----------------------------------------------------------------------------


def on_delete(turn: Turn, delete: Delete) -> Response | None:
    phase = turn.group.phase
    if phase is Phase.DEAD:
        return Refusal(GroupIdNotFound, "there is no such group")
    if phase is not Phase.EMPTY:
        return Refusal(NonEmptyGroup, "the group has members")
    since = turn.group.changed_wall_ms
    remove(turn, turn.group.pending)
    turn.move(Phase.DEAD)
    # The deletion may have to be taken back; then the group has been empty for as long as it was.
    turn.change(changed_wall_ms=since)
    turn.persist(None, TombstoneStore(delete.token))
    return None


def on_offset_delete(turn: Turn, event: OffsetDelete) -> Response:
    refusal = offset_delete_refusal(turn.group)
    return refusal or OffsetDeleteAllowed(topic_refusals(turn.group, event.topics))


def on_unload(turn: Turn) -> None:
    group = turn.group
    gone = Refusal(NotCoordinator, "the group moved to another coordinator, or this one stops")
    deletions = [store.token for store in group.stores.values() if isinstance(store, TombstoneStore)]
    for token in (*group.join_waiters.values(), *group.sync_waiters.values(), *deletions):
        turn.reply(token, gone)
    turn.move(Phase.DEAD)
    turn.change(
        members={},
        common_protocols=frozenset(),
        instances={},
        pending=frozenset(),
        newcomers=frozenset(),
        unheard=frozenset(),
        unsynced=frozenset(),
        leader=None,
        slots={},
        deadlines=NO_DEADLINES,
        join_waiters={},
        sync_waiters={},
        join_timer=None,
        sync_deadline=NEVER,
        stores={},
    )
    turn.effects.append(GroupDead())


def on_restore(turn: Turn, event: Restore) -> None:
    """Take over what was stored: Stable if it has members, each with a full session from now on, else Empty.

    A rebalance that ran when the coordinator stopped was not stored. Its members meet the generation before it: who
    is still in there goes on or joins again, the others get UNKNOWN_MEMBER_ID and start anew. Nobody owned anything
    in a generation that was not stored.
    """
    group, stored = turn.group, event.metadata
    if group.phase is not Phase.EMPTY or group.generation or group.slots or group.next_ticket:
        raise ValueError(f"group {group.group_id} is not new: it cannot be restored over what it is")
    deadlines, slots = group.deadlines, {}
    for member in stored.members:
        deadlines, slots[member.member_id] = deadlines.add(turn.now.boot_ms + member.session_timeout_ms)
    if stored.members:
        turn.move(Phase.STABLE)
    turn.change(
        changed_wall_ms=stored.current_state_timestamp_ms,
        generation=stored.generation,
        protocol_type=stored.protocol_type,
        protocol=stored.protocol,
        leader=stored.leader,
        members={member.member_id: member for member in stored.members},
        instances={m.instance_id: m.member_id for m in stored.members if m.instance_id},
        common_protocols=common_protocols(stored.members),
        unheard=frozenset(m.member_id for m in stored.members if m.instance_id),
        slots=slots,
        deadlines=deadlines,
        subscribed_topics=subscribed_topics(stored.protocol_type, stored.protocol, stored.members),
    )
    if len(stored.members) > group.rules.max_size:
        prepare(turn, f"it has more than {group.rules.max_size} members")
