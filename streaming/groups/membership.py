"""Members come, change, wait and go. What that means for the group's phase is decided in `rebalance`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sluice.log_store.errors import (
    FencedInstanceId,
    IllegalGeneration,
    RebalanceInProgress,
    SluiceError,
    UnknownMemberId,
)
from sluice.streaming.groups.deadlines import NEVER
from sluice.streaming.groups.effects import Joined, JoinedMember, Refusal
from sluice.streaming.groups.events import Join
from sluice.streaming.groups.protocols import common_protocols
from sluice.streaming.groups.state import Group, Member, Token
from sluice.streaming.groups.turn import Turn


def find_member(group: Group, member_id: str, instance_id: str | None) -> Member | Refusal:
    """The member that a request claims to come from. The instance id is judged first, as in Kafka."""
    if instance_id is not None:
        known = group.instances.get(instance_id)
        if known is None:
            return Refusal(UnknownMemberId, f"instance {instance_id!r} is not a member of the group")
        if known != member_id and known in group.unheard:
            # A new id whose rebalance a crash of the coordinator cut off was told, but not stored. Fencing would
            # end the only process there is; so it may come again, and the one that comes last is the member.
            return Refusal(UnknownMemberId, f"this id of instance {instance_id!r} was not stored: join without it")
        if known != member_id:
            return Refusal(FencedInstanceId, f"instance {instance_id!r} was started again and has another member id")
    member = group.members.get(member_id)
    return member or Refusal(UnknownMemberId, f"{member_id!r} is not a member of the group")


def member_refusal(group: Group, member_id: str, instance_id: str | None, generation: int) -> Refusal | None:
    """None: the request comes from a member, and of the current generation."""
    member = find_member(group, member_id, instance_id)
    if isinstance(member, Refusal):
        return member
    if generation != group.generation:
        return Refusal(IllegalGeneration, f"generation {generation} is not the current one, {group.generation}")
    return None


def joined(group: Group, member_id: str, *, skip_assignment: bool = False) -> Joined:
    """The answer to a join in the current generation."""
    leads = group.leader == member_id
    listed = group.members.values() if leads else ()
    return Joined(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(group.protocol)) for m in listed),
        skip_assignment=leads and skip_assignment,
    )


# --- sessions ----------------------------------------------------------------------------------


def keep_sessions(turn: Turn, member_ids: Collection[str]) -> None:
    """Give members a full session from now on.

    While a request of a member waits here it cannot send heartbeats through it, so it is not expected to; only the
    first join of a member has a time limit of its own.
    """
    group = turn.group
    deadlines = group.deadlines
    for member_id in member_ids:
        deadlines = deadlines.set(group.slots[member_id], _session_end(turn, member_id))
    turn.change(deadlines=deadlines)
    if group.unheard:
        turn.change(unheard=group.unheard.difference(member_ids))


def _session_end(turn: Turn, member_id: str) -> int:
    group, now = turn.group, turn.now.boot_ms
    if member_id in group.join_waiters or member_id in group.sync_waiters:
        return now + group.rules.new_member_join_timeout_ms if member_id in group.newcomers else NEVER
    return now + group.members[member_id].session_timeout_ms


def add_pending(turn: Turn, member_id: str, session_timeout_ms: int) -> None:
    group = turn.group
    deadlines, slot = group.deadlines.add(turn.now.boot_ms + session_timeout_ms)
    turn.change(pending=group.pending | {member_id}, deadlines=deadlines, slots={**group.slots, member_id: slot})


# --- waiting -----------------------------------------------------------------------------------


def wait_for_join(turn: Turn, member_id: str, token: Token) -> None:
    _supersede(turn, turn.group.join_waiters.get(member_id))
    turn.change(join_waiters={**turn.group.join_waiters, member_id: token})
    keep_sessions(turn, (member_id,))


def wait_for_sync(turn: Turn, member_id: str, token: Token) -> None:
    _supersede(turn, turn.group.sync_waiters.get(member_id))
    turn.change(sync_waiters={**turn.group.sync_waiters, member_id: token})
    keep_sessions(turn, (member_id,))


def _supersede(turn: Turn, token: Token | None) -> None:
    if token is not None:
        turn.reply(token, Refusal(RebalanceInProgress, "a later request of the same member took the place of this one"))


def refuse_syncs(turn: Turn, error: type[SluiceError], message: str) -> None:
    waiters = turn.group.sync_waiters
    turn.change(sync_waiters={})
    for token in waiters.values():
        turn.reply(token, Refusal(error, message))
    keep_sessions(turn, waiters)


# --- coming, changing, going -------------------------------------------------------------------


def add_member(turn: Turn, member_id: str, join: Join) -> None:
    """A newcomer; its join waits."""
    group = turn.group
    deadlines, slots = group.deadlines, group.slots
    if member_id not in slots:
        deadlines, slot = deadlines.add(NEVER)
        slots = {**slots, member_id: slot}
    timer = group.join_timer
    member = _member(member_id, join)
    turn.change(
        members={**group.members, member_id: member},
        # Not counted anew over all members: that would make the joins of a large group cost the square of its size.
        common_protocols=group.common_protocols & member.protocol_names if group.members else member.protocol_names,
        instances=group.instances if join.instance_id is None else {**group.instances, join.instance_id: member_id},
        pending=group.pending - {member_id},
        newcomers=group.newcomers | {member_id},
        slots=slots,
        deadlines=deadlines,
        leader=group.leader or member_id,
        protocol_type=group.protocol_type if group.members else join.protocol_type,
        join_timer=replace(timer, grew=True) if timer and timer.initial else timer,
    )
    wait_for_join(turn, member_id, join.token)


def update_member(turn: Turn, member_id: str, join: Join) -> None:
    """A known member joins again, perhaps with other protocols and timeouts; its join waits."""
    known = turn.group.members[member_id]
    changed = replace(
        known,
        protocols=join.protocols,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        client_id=join.client_id,
        client_host=join.client_host,
    )
    members = {**turn.group.members, member_id: changed}
    turn.change(members=members)
    if changed.protocol_names != known.protocol_names:
        turn.change(common_protocols=common_protocols(members.values()))
    wait_for_join(turn, member_id, join.token)


def _member(member_id: str, join: Join) -> Member:
    return Member(
        member_id=member_id,
        instance_id=join.instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        protocols=join.protocols,
    )


def rename_static(turn: Turn, old_id: str, renamed: Member) -> None:
    """Put `renamed` in the place of `old_id`; requests that wait under the old id are fenced off."""
    group, new_id = turn.group, renamed.member_id
    _answer_all(turn, {old_id}, Refusal(FencedInstanceId, f"instance {renamed.instance_id!r} was started again"))
    turn.change(
        members={new_id if key == old_id else key: renamed if key == old_id else m for key, m in group.members.items()},
        instances={**group.instances, str(renamed.instance_id): new_id},
        newcomers=_renamed(group.newcomers, old_id, new_id),
        unheard=group.unheard - {old_id},
        unsynced=_renamed(group.unsynced, old_id, new_id),
        slots={new_id if key == old_id else key: slot for key, slot in group.slots.items()},
        leader=new_id if group.leader == old_id else group.leader,
    )
    keep_sessions(turn, (new_id,))


def _renamed(ids: frozenset[str], old_id: str, new_id: str) -> frozenset[str]:
    return ids - {old_id} | {new_id} if old_id in ids else ids


def remove(turn: Turn, ids: Collection[str]) -> None:
    """Members and pending ids go; what waits under their names is answered UNKNOWN_MEMBER_ID."""
    if not ids:
        return
    group = turn.group
    gone = frozenset(ids)
    _answer_all(turn, gone, Refusal(UnknownMemberId, "the member was removed from the group"))
    deadlines = group.deadlines
    for member_id in gone:
        deadlines = deadlines.drop(group.slots[member_id])
    members = {key: member for key, member in group.members.items() if key not in gone}
    turn.change(
        members=members,
        common_protocols=common_protocols(members.values()),
        instances={key: member_id for key, member_id in group.instances.items() if member_id not in gone},
        pending=group.pending - gone,
        newcomers=group.newcomers - gone,
        unheard=group.unheard - gone,
        unsynced=group.unsynced - gone,
        slots={key: slot for key, slot in group.slots.items() if key not in gone},
        deadlines=deadlines,
        leader=next(iter(members), None) if group.leader in gone else group.leader,
    )


def _answer_all(turn: Turn, ids: Collection[str], refusal: Refusal) -> None:
    joins, syncs = turn.group.join_waiters, turn.group.sync_waiters
    turn.change(
        join_waiters={key: token for key, token in joins.items() if key not in ids},
        sync_waiters={key: token for key, token in syncs.items() if key not in ids},
    )
    for waiters in (joins, syncs):
        for member_id, token in waiters.items():
            if member_id in ids:
                turn.reply(token, refusal)
