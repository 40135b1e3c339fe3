"""Answers to `Sync`, and what the coordinator has to compute when a leader leaves the assignment to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sluice.log_store.errors import (
    CoordinatorNotAvailable,
    InconsistentGroupProtocol,
    RebalanceInProgress,
)
from sluice.streaming.groups.deadlines import NEVER
from sluice.streaming.groups.effects import Refusal, Response, Synced
from sluice.streaming.groups.events import Sync
from sluice.streaming.groups.membership import keep_sessions, member_refusal, wait_for_sync
from sluice.streaming.groups.state import AssignmentStore, Group, Phase, metadata_of
from sluice.streaming.groups.turn import Turn


@dataclass(frozen=True, slots=True)
class TaskMember:
    instance_id: str | None
    metadata: bytes
    """In the group's protocol; of a consumer group a `Subscription`."""


@dataclass(frozen=True, slots=True)
class AssignmentTask:
    """What to compute before the leader's `Sync` is stepped."""

    strategy: str
    members: Mapping[str, TaskMember]


def assignment_task(group: Group, sync: Sync) -> AssignmentTask | None:
    """None: this sync needs no computation, whatever it asks for. Step it as it is."""
    if sync.strategy is None or sync.assignments is not None or not _decides(group, sync):
        return None
    members = {m.member_id: TaskMember(m.instance_id, m.metadata(group.protocol)) for m in group.members.values()}
    return AssignmentTask(sync.strategy, members)


def _decides(group: Group, sync: Sync) -> bool:
    """Whether this sync brings the assignment: of the leader, the first in its generation."""
    return (
        group.phase is Phase.COMPLETING
        and group.leader == sync.member_id
        and sync_refusal(group, sync) is None
        and not any(isinstance(s, AssignmentStore) and s.generation == group.generation for s in group.stores.values())
    )


def on_sync(turn: Turn, sync: Sync) -> Response | None:
    group = turn.group
    refusal = sync_refusal(group, sync)
    if refusal:
        return refusal
    if group.phase is Phase.PREPARING:
        return Refusal(RebalanceInProgress, "the group rebalances: join again")
    decides = _decides(group, sync)
    if decides and sync.strategy is not None and sync.assignments is None:
        raise ValueError("the assignment must be computed before the leader's sync is stepped")
    unsynced = group.unsynced - {sync.member_id}
    turn.change(unsynced=unsynced, sync_deadline=group.sync_deadline if unsynced else NEVER)
    if group.phase is Phase.STABLE:
        keep_sessions(turn, (sync.member_id,))
        return synced(group, sync.member_id)
    wait_for_sync(turn, sync.member_id, sync.token)
    if decides:
        _store_assignments(turn, sync.assignments or {})
    return None


def sync_refusal(group: Group, sync: Sync) -> Refusal | None:
    if group.phase is Phase.DEAD:
        return Refusal(CoordinatorNotAvailable, "the group is being removed: try again")
    refusal = member_refusal(group, sync.member_id, sync.instance_id, sync.generation)
    if refusal:
        return refusal
    for claimed, actual in ((sync.protocol_type, group.protocol_type), (sync.protocol, group.protocol)):
        if claimed is not None and actual is not None and claimed != actual:
            return Refusal(InconsistentGroupProtocol, f"the group uses protocol {actual!r}, not {claimed!r}")
    return None


def synced(group: Group, member_id: str) -> Synced:
    return Synced(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        assignment=group.members[member_id].assignment,
    )


def _store_assignments(turn: Turn, given: Mapping[str, bytes]) -> None:
    """Members that the leader left out own nothing; names that are no members are left out in turn."""
    group = turn.group
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    members = tuple(replace(m, assignment=assignments[m.member_id]) for m in group.members.values())
    turn.persist(replace(metadata_of(group), members=members), AssignmentStore(group.generation, assignments))
    turn.log(f"stores the assignment of generation {group.generation}, from {group.leader}")
