"""What was stored, or could not be."""

from __future__ import annotations

import logging
from dataclasses import replace

from sluice.log_store.errors import (
    CoordinatorNotAvailable,
    MessageTooLarge,
    NotCoordinator,
    NotLeader,
    RecordListTooLarge,
    RequestTimedOut,
    SluiceError,
    StorageError,
    UnknownTopicOrPartition,
)
from sluice.streaming.groups.effects import Deleted, GroupDead, Refusal
from sluice.streaming.groups.events import Persisted, PersistFailed
from sluice.streaming.groups.membership import joined, keep_sessions, refuse_syncs, rename_static
from sluice.streaming.groups.protocols import common_protocols
from sluice.streaming.groups.rebalance import prepare
from sluice.streaming.groups.state import (
    AssignmentStore,
    Group,
    Phase,
    StaticStore,
    Store,
    TombstoneStore,
)
from sluice.streaming.groups.syncing import synced
from sluice.streaming.groups.turn import Turn

_TOLD: tuple[tuple[tuple[type[SluiceError], ...], type[SluiceError]], ...] = (
    ((UnknownTopicOrPartition, RequestTimedOut), CoordinatorNotAvailable),
    ((NotLeader, StorageError), NotCoordinator),
    ((MessageTooLarge, RecordListTooLarge), SluiceError),
)
"""Kafka's translation: members are told what it means for them, not what failed below."""


def on_persisted(turn: Turn, event: Persisted) -> None:
    store = _take(turn, event.ticket)
    match store:
        case AssignmentStore() if _still_awaited(turn.group, store):
            _become_stable(turn, store)
        case StaticStore() if _still_stable(turn.group, store):
            _answer_static(turn, store.member_id)
        case TombstoneStore():
            turn.reply(store.token, Deleted())
            turn.effects.append(GroupDead())
        case _:
            # The group went on meanwhile: who waited was answered then.
            pass


def on_persist_failed(turn: Turn, event: PersistFailed) -> None:
    store, error = _take(turn, event.ticket), event.error
    turn.log(f"could not be stored: {error.error} {error.message}", logging.WARNING)
    told = _told(error)
    match store:
        case AssignmentStore() if _still_awaited(turn.group, store):
            refuse_syncs(turn, told, "the assignment could not be stored: join again")
            prepare(turn, "the assignment could not be stored")
        case StaticStore() if _still_stable(turn.group, store):
            _take_back_static(turn, store, told)
        case TombstoneStore():
            _take_back_deletion(turn, store, told)
        case _:
            # An Empty group has no members to protect: if the old record comes alive again, its members expire.
            pass


def _take(turn: Turn, ticket: int) -> Store | None:
    stores = dict(turn.group.stores)
    store = stores.pop(ticket, None)
    if store is None and turn.group.phase is not Phase.DEAD:  # an unloaded group has forgotten its tickets
        raise ValueError(f"ticket {ticket} of group {turn.group.group_id} is not open")
    turn.change(stores=stores)
    return store


def _told(error: SluiceError) -> type[SluiceError]:
    return next((told for causes, told in _TOLD if isinstance(error, causes)), type(error))


def _still_awaited(group: Group, store: AssignmentStore) -> bool:
    return group.phase is Phase.COMPLETING and group.generation == store.generation


def _still_stable(group: Group, store: StaticStore) -> bool:
    return group.phase is Phase.STABLE and group.generation == store.generation and store.member_id in group.members


def _become_stable(turn: Turn, store: AssignmentStore) -> None:
    group, waiters = turn.group, turn.group.sync_waiters
    members = {key: replace(m, assignment=store.assignments[key]) for key, m in group.members.items()}
    turn.move(Phase.STABLE)
    turn.change(members=members, sync_waiters={})
    keep_sessions(turn, waiters)
    for member_id, token in waiters.items():
        turn.reply(token, synced(turn.group, member_id))
    turn.log(f"is stable in generation {group.generation}")


def _answer_static(turn: Turn, member_id: str) -> None:
    waiters = dict(turn.group.join_waiters)
    if member_id not in waiters:
        return
    token = waiters.pop(member_id)
    turn.change(join_waiters=waiters)
    keep_sessions(turn, (member_id,))
    turn.reply(token, joined(turn.group, member_id, skip_assignment=True))


def _take_back_static(turn: Turn, store: StaticStore, told: type[SluiceError]) -> None:
    """What is stored still names the old id, so that is who the member is."""
    waiters = dict(turn.group.join_waiters)
    token = waiters.pop(store.member_id, None)
    turn.change(join_waiters=waiters)
    rename_static(turn, store.member_id, store.previous)
    turn.change(common_protocols=common_protocols(turn.group.members.values()))
    if token is not None:
        turn.reply(token, Refusal(told, "the new member id could not be stored: join again"))


def _take_back_deletion(turn: Turn, store: TombstoneStore, told: type[SluiceError]) -> None:
    if turn.group.phase is Phase.DEAD:
        since = turn.group.changed_wall_ms
        turn.move(Phase.EMPTY)
        turn.change(changed_wall_ms=since)
    turn.reply(store.token, Refusal(told, "the deletion could not be stored"))
