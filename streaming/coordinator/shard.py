"""Requests to the groups of one partition of `__consumer_offsets`, and the upkeep of these groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from sluice.log_store.errors import GroupIdNotFound, NotCoordinator, SluiceError
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.assigning import computed
from sluice.streaming.coordinator.context import Waiter
from sluice.streaming.coordinator.entry import GroupEntry, GroupView, view_of
from sluice.streaming.coordinator.records import Committed
from sluice.streaming.coordinator.table import GroupTable, Later
from sluice.streaming.groups import Phase, Refusal, Response, assignment_task
from sluice.streaming.groups.effects import OffsetDeleteAllowed
from sluice.streaming.groups.events import (
    ClientGone,
    Commit,
    Delete,
    Heartbeat,
    Join,
    Leave,
    OffsetDelete,
    Sync,
    Unload,
)
from sluice.streaming.groups.offsets import (
    CommittedAt,
    commit_refusal,
    expired,
    is_disposable,
)
from sluice.streaming.groups.syncing import AssignmentTask

Done: TypeAlias = Callable[[SluiceError | None], None]
"""Told once what became of a request; from any thread; must be short."""
Deleted: TypeAlias = Callable[[SluiceError | None, Mapping[str, Refusal]], None]
"""The same, with the topics whose offsets had to stay."""


class Shard:
    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._stopped = False

    # --- members -------------------------------------------------------------------------------

    def join(self, group_id: str, join: Join) -> None:
        self._ask(group_id, join)

    def sync(self, group_id: str, sync: Sync, partitions_of: Callable[[str], int]) -> None:
        """May compute an assignment, which takes time; nobody else waits for it."""

        def work() -> AssignmentTask | None:
            entry = self._found(group_id)
            task = assignment_task(entry.group, sync)
            if task is None:
                self._step_and_answer(entry, sync)
            return task

        task = self._table.run(work)
        if task is not None:
            self._ask(group_id, replace(sync, assignments=computed(task, partitions_of)))

    def say(self, group_id: str, event: Heartbeat | Leave) -> Response | None:
        return self._table.run(lambda: self._table.step(self._found(group_id), event))

    def client_gone(self, group_id: str, waiter: Waiter) -> None:
        def work() -> None:
            entry = self._table.groups.get(group_id)
            if entry is not None:
                self._table.step(entry, ClientGone(waiter))

        self._table.run(work)

    def _ask(self, group_id: str, event: Join | Sync | Delete) -> None:
        self._table.run(lambda: self._step_and_answer(self._found(group_id), event))

    def _step_and_answer(self, entry: GroupEntry, event: Join | Sync | Delete) -> None:
        reply = self._table.step(entry, event)
        if reply is not None and isinstance(event.token, Waiter):
            self._table.answer(partial(event.token.answer, reply))

    def _found(self, group_id: str) -> GroupEntry:
        """A group that nobody has heard of is an empty one, and is forgotten again if that is all it remains."""
        if self._stopped:
            raise NotCoordinator("the service stops")
        return self._table.find_or_new(group_id)

    # --- offsets -------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        commit: Commit,
        offsets: Mapping[TopicPartition, Committed],
        done: Done,
        later: Later | None = None,
    ) -> None:
        def work() -> None:
            entry = self._committing(group_id, commit, creates=bool(offsets))
            if entry is None:
                self._table.answer(partial(done, None))
            else:
                self._table.write_offsets(entry, offsets, lambda error: self._table.answer(partial(done, error)))

        self._table.run(work, later)

    def _committing(self, group_id: str, commit: Commit, *, creates: bool) -> GroupEntry | None:
        """The group, if it lets these offsets be committed; None: it does not exist and need not."""
        if self._stopped:
            raise NotCoordinator("the service stops")
        entry = self._table.groups.get(group_id)
        if entry is None:
            refusal = commit_refusal(None, commit.member_id, commit.generation, commit.instance_id)
            if refusal is not None:
                raise refusal.exception()
            return self._table.new(group_id) if creates else None
        reply = self._table.step(entry, commit)
        if isinstance(reply, Refusal):
            raise reply.exception()
        return entry

    def delete_offsets(self, group_id: str, where: Collection[TopicPartition], done: Deleted) -> None:
        def work() -> None:
            entry = self._table.groups.get(group_id)
            if entry is None:
                raise GroupIdNotFound("there is no such group")
            reply = self._table.step(entry, OffsetDelete(frozenset(one.topic for one in where)))
            if isinstance(reply, Refusal):
                raise reply.exception()
            refused = reply.refused if isinstance(reply, OffsetDeleteAllowed) else {}
            gone = {one: None for one in where if one.topic not in refused and one in entry.stored()}
            self._table.write_offsets(entry, gone, lambda error: self._table.answer(partial(done, error, refused)))

        self._table.run(work)

    # --- administration ------------------------------------------------------------------------

    def view(self, group_id: str) -> GroupView | None:
        def work() -> GroupView | None:
            entry = self._table.groups.get(group_id)
            return None if entry is None else view_of(entry)

        return self._table.run(work)

    def views(self) -> list[GroupView]:
        return self._table.run(lambda: [view_of(entry) for entry in self._table.groups.values()])

    def delete(self, group_id: str, waiter: Waiter) -> None:
        def work() -> None:
            if group_id not in self._table.groups:
                raise GroupIdNotFound("there is no such group")
            self._step_and_answer(self._found(group_id), Delete(waiter))

        self._table.run(work)

    # --- upkeep --------------------------------------------------------------------------------

    def sweep(self, retention_ms: int, *, wall_trusted: bool) -> dict[str, set[TopicPartition]]:
        """Forget offsets that are too old (only by a clock that can be trusted), those of topics that are no more,
        and groups of which nothing is left. Answers what is on its way out, by group."""
        found = {}
        for entry in self._entries():
            found[entry.group.group_id] = self._table.run(partial(self._sweep_group, entry, retention_ms, wall_trusted))
        return found

    def drop_topic(self, topic_id: str) -> None:
        """The topic was deleted: its offsets mean nothing any more."""
        for entry in self._entries():
            self._table.run(partial(self._drop_topic, entry, topic_id))

    def unload(self) -> None:
        """The service stops: whoever waits is told to look for another coordinator. What is stored stays."""

        def work() -> None:
            self._stopped = True
            for entry in list(self._table.groups.values()):
                self._table.step(entry, Unload())

        self._table.run(work)

    def _entries(self) -> list[GroupEntry]:
        return self._table.run(lambda: list(self._table.groups.values()))

    def _sweep_group(self, entry: GroupEntry, retention_ms: int, wall_trusted: bool) -> set[TopicPartition]:
        context, flying = self._table.context, entry.in_flight
        gone = {
            at for at, one in entry.offsets.items() if at not in flying and not context.is_live(at.topic, one.topic_id)
        }
        if wall_trusted:
            ages = {at: CommittedAt(one.commit_ms, at in flying) for at, one in entry.offsets.items()}
            gone |= expired(entry.group, ages, context.now().wall_ms, retention_ms)
        self._drop(entry, gone)
        return gone

    def _drop_topic(self, entry: GroupEntry, topic_id: str) -> None:
        gone = {at for at, one in entry.offsets.items() if one.topic_id == topic_id and at not in entry.in_flight}
        if gone:
            self._drop(entry, gone)

    def _drop(self, entry: GroupEntry, gone: Collection[TopicPartition]) -> None:
        def dropped(error: SluiceError | None) -> None:
            if error is None and is_disposable(entry.group, len(entry.stored())):
                self._table.step(entry, Delete(None))

        if entry.group.phase is Phase.DEAD:
            return
        if gone:
            self._table.write_offsets(entry, dict.fromkeys(gone), dropped)
        else:
            dropped(None)
