"""Answers to `Join`."""

from __future__ import annotations

from dataclasses import replace

from sluice.log_store.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    UnknownMemberId,
)
from sluice.streaming.groups.effects import Refusal, Response
from sluice.streaming.groups.events import Join
from sluice.streaming.groups.ids import id_fault
from sluice.streaming.groups.membership import (
    add_member,
    add_pending,
    find_member,
    joined,
    keep_sessions,
    remove,
    rename_static,
    update_member,
)
from sluice.streaming.groups.protocols import accepts, chosen_protocol
from sluice.streaming.groups.rebalance import complete_if_all_joined, rebalance
from sluice.streaming.groups.state import Group, GroupRules, Member, Phase, StaticStore, metadata_of
from sluice.streaming.groups.turn import Turn

MAX_TIMEOUT_MS = 2**31 - 1


def on_join(turn: Turn, join: Join) -> Response | None:
    group = turn.group
    fault = _fault(join, group.rules)
    if fault:
        return fault
    if group.phase is Phase.DEAD:
        return Refusal(CoordinatorNotAvailable, "the group is being removed: try again")
    known_id = join.member_id or group.instances.get(join.instance_id or "", "")
    if not _has_room(group, known_id):
        return _turn_away(turn, known_id)
    if not accepts(group, join.protocol_type, join.protocols):
        return _inconsistent(group, join)
    if not join.member_id:
        return _join_without_id(turn, join)
    if join.member_id in group.pending and join.instance_id is None:
        add_member(turn, join.member_id, join)
        rebalance(turn, f"{join.member_id} is new")
        return None
    return _join_again(turn, join)


# --- what is refused at once -------------------------------------------------------------------


def _fault(join: Join, rules: GroupRules) -> Refusal | None:
    low, high = rules.min_session_timeout_ms, rules.max_session_timeout_ms
    if not low <= join.session_timeout_ms <= high:
        return Refusal(InvalidSessionTimeout, f"session timeout {join.session_timeout_ms} ms is not in {low}..{high}")
    if not 0 < join.rebalance_timeout_ms <= MAX_TIMEOUT_MS:
        return Refusal(InvalidRequest, f"rebalance timeout {join.rebalance_timeout_ms} ms is not positive")
    if join.instance_id == "":
        return Refusal(InvalidRequest, "the instance id is empty")
    names = [offer.name for offer in join.protocols]
    if len(set(names)) < len(names):
        return Refusal(InvalidRequest, "a protocol is named twice")
    for text in (join.instance_id or "", join.client_id, join.client_host, join.protocol_type, *names):
        fault = id_fault(text)
        if fault:
            return Refusal(InvalidRequest, f"{text[:50]!r} {fault}")
    return None


def _has_room(group: Group, known_id: str) -> bool:
    """Kafka's count, which lets a group shrink after its limit was lowered: the last to come back are left out."""
    limit = group.rules.max_size
    if group.phase is Phase.PREPARING:
        return known_id in group.join_waiters or len(group.join_waiters) < limit
    return known_id in group.members or len(group.members) < limit


def _turn_away(turn: Turn, known_id: str) -> Refusal:
    if known_id in turn.group.slots:
        remove(turn, {known_id})
        complete_if_all_joined(turn)
    return _full(turn.group)


def _full(group: Group) -> Refusal:
    return Refusal(GroupMaxSizeReached, f"the group has its {group.rules.max_size} members")


def _inconsistent(group: Group, join: Join) -> Refusal:
    if not join.protocol_type or not join.protocols:
        return Refusal(InconsistentGroupProtocol, "a member needs a protocol type and at least one protocol")
    return Refusal(
        InconsistentGroupProtocol,
        f"the group uses protocol type {group.protocol_type!r}; no protocol of this member is known to all others",
    )


# --- without a member id -----------------------------------------------------------------------


def _join_without_id(turn: Turn, join: Join) -> Refusal | None:
    group, new_id = turn.group, join.new_member_id
    if not new_id or new_id in group.slots:
        raise ValueError(f"new member id {new_id!r} is empty or taken")
    old_id = group.instances.get(join.instance_id or "")
    if old_id is not None:
        _static_is_back(turn, old_id, join)
        return None
    if join.instance_id is None and join.member_id_required:
        if len(group.pending) >= group.rules.max_size:
            return _full(group)
        add_pending(turn, new_id, join.session_timeout_ms)
        return Refusal(MemberIdRequired, "join again with the member id given here", member_id=new_id)
    add_member(turn, new_id, join)
    rebalance(turn, f"{new_id} is new")
    return None


def _static_is_back(turn: Turn, old_id: str, join: Join) -> None:
    """A static member was started again: the same member under a new id."""
    previous, new_id = turn.group.members[old_id], join.new_member_id
    turn.log(f"instance {join.instance_id} is back: {new_id} takes the place of {old_id}")
    rename_static(turn, old_id, replace(previous, member_id=new_id))
    update_member(turn, new_id, join)
    if turn.group.phase is Phase.STABLE and chosen_protocol(turn.group.members.values()) == turn.group.protocol:
        # Same generation, same assignment; answered once the new id is stored.
        turn.persist(metadata_of(turn.group), StaticStore(turn.group.generation, new_id, previous))
    else:
        # While completing, the leader may be computing an assignment for the old id.
        rebalance(turn, f"instance {join.instance_id} is back under a new member id")


# --- with one ----------------------------------------------------------------------------------


def _join_again(turn: Turn, join: Join) -> Response | None:
    group = turn.group
    member = find_member(group, join.member_id, join.instance_id)
    if isinstance(member, Refusal):
        return member
    if group.phase is Phase.EMPTY:
        return Refusal(UnknownMemberId, "the group has no members")
    reason = _reason_to_rebalance(group, member, join)
    if reason:
        update_member(turn, join.member_id, join)
        rebalance(turn, reason)
        return None
    keep_sessions(turn, (join.member_id,))
    return joined(turn.group, join.member_id)


def _reason_to_rebalance(group: Group, member: Member, join: Join) -> str | None:
    """None: the member merely did not hear the answer, and gets it again."""
    if group.phase is Phase.PREPARING:
        return f"{join.member_id} joined"
    if member.protocols != join.protocols:
        return f"{join.member_id} has other metadata"
    if group.phase is Phase.STABLE and group.leader == join.member_id:
        # The leader saw something that its own metadata does not tell, such as a new partition.
        return f"the leader {join.member_id} asks for it"
    return None
