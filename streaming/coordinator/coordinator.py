"""The group coordinator of a running service: every call about groups comes through here.

It is synchronous and waits for nothing: a request that has to wait carries a `Waiter` or a callback, which is called
from whatever thread brings the answer. Before a group is asked, `opening` says whether its part of the offsets topic is
loaded; the caller waits for that in its own way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from sluice.conf.settings import GroupSettings
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import GroupIdNotFound, NotCoordinator, RequestTimedOut, SluiceError, UnknownMemberId
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.context import Context, Waiter, rules_of
from sluice.streaming.coordinator.entry import GroupView
from sluice.streaming.coordinator.loading import Shards
from sluice.streaming.coordinator.records import Committed
from sluice.streaming.coordinator.shard import Deleted, Done, Shard
from sluice.streaming.coordinator.table import Later
from sluice.streaming.coordinator.timers import Action, Timers
from sluice.streaming.groups import Response, validate_group_id
from sluice.streaming.groups.events import Commit, Heartbeat, Join, Leave, Sync
from sluice.streaming.groups.offsets import is_disposable
from sluice.streaming.groups.state import Phase

_log = logging.getLogger(__name__)
EXPIRE_TIMEOUT_S, EXPIRE_LOOK_S = 30.0, 0.02
THREADS = 2
"""For loading, timers and upkeep: nothing that a request waits for, once its group is loaded."""


class Forgotten(NamedTuple):
    groups: int
    """Groups of which nothing is left."""
    offsets: int


class Coordinator:
    def __init__(self, log: LogStore, settings: GroupSettings) -> None:
        self._log = log
        self._settings = settings
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sluice-groups")
        self._stopped = False
        runtime = log.runtime
        timers = Timers(runtime.clock, runtime.scheduler, self._run_all)
        self.context = Context(log, settings, rules_of(settings), timers, self._later)
        self._shards = Shards(self.context, self._pool)

    def start(self) -> None:
        """Load what there is, in the background; look after topics that go and offsets that expire."""
        self._log.on_topic_deleted.append(self._on_topic_deleted)
        self._later(self._settings.offsets_retention_check_interval_ms / 1000, self._sweep_again)
        if self._stopped or self._log.fenced:
            return
        for loading in self._shards.opening_all():
            loading.add_done_callback(_log_failure)

    def stop(self) -> None:
        """Whoever waits is told to look elsewhere; offsets that are on their way are still answered."""
        self._stopped = True
        for shard in self._shards.all():
            shard.unload()

    def close(self) -> None:
        self._stopped = True
        if self._on_topic_deleted in self._log.on_topic_deleted:
            self._log.on_topic_deleted.remove(self._on_topic_deleted)
        self._pool.shutdown(cancel_futures=True)

    # --- is it here ----------------------------------------------------------------------------

    def opening(self, group_id: str, *, write: bool = False) -> Future[None] | None:
        """None: go on. Else go on when it is done. `write`: the request may lead to a record."""
        validate_group_id(group_id)
        self._check()
        return self._shards.opening(group_id, write=write)

    def opening_all(self) -> list[Future[None]]:
        self._check()
        return self._shards.opening_all()

    def _check(self) -> None:
        if self._stopped:
            raise NotCoordinator("the service stops")
        if self._log.fenced:
            raise self._log.runtime.leadership.not_leader()

    def _check_leads(self) -> None:
        """A process that was replaced must not tell anybody what was committed, or who is a member.

        One that was suspended does not know yet that it was: where a look costs no more than a system call, it looks.
        """
        self._check()
        if self._log.runtime.store.local_path is not None:
            self._log.runtime.leadership.confirm(0)

    def _shard(self, group_id: str) -> Shard:
        self._check_leads()
        return self._loaded_shard(group_id)

    def _loaded_shard(self, group_id: str) -> Shard:
        self._check()
        shard = self._shards.of(group_id)
        if shard is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        return shard

    def _shard_of_member(self, group_id: str) -> Shard:
        try:
            return self._shard(group_id)
        except GroupIdNotFound:
            raise UnknownMemberId("there is no such group, so nobody is a member of it") from None

    # --- members -------------------------------------------------------------------------------

    def join(self, group_id: str, join: Join) -> None:
        """Answered through its token, which is a `Waiter`."""
        self._shard(group_id).join(group_id, join)

    def sync(self, group_id: str, sync: Sync) -> None:
        """The same. May compute for a while when the leader names a strategy."""
        self._shard_of_member(group_id).sync(group_id, sync, self.partitions_of)

    def say(self, group_id: str, event: Heartbeat | Leave) -> Response | None:
        return self._shard_of_member(group_id).say(group_id, event)

    def client_gone(self, group_id: str, waiter: Waiter) -> None:
        shard = self._shards.of(group_id)
        if shard is not None:
            shard.client_gone(group_id, waiter)

    def partitions_of(self, topic: str) -> int:
        meta = self._log.catalog.state.find(topic)
        return 0 if meta is None else meta.partitions

    # --- offsets -------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        commit: Commit,
        offsets: Mapping[TopicPartition, Committed],
        done: Done,
        later: Later | None = None,
    ) -> None:
        """Raises when the group refuses. `later`: lets commits that come together be one append.

        What is written is answered by the log, which looks at the claims itself; only other answers need a look here.
        """
        if not offsets:
            self._check_leads()
        try:
            self._loaded_shard(group_id).commit(group_id, commit, offsets, done, later)
        except SluiceError:
            self._check_leads()
            raise

    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        """What is committed for topics that there are. A group that nobody knows has committed nothing."""
        view = self.find(group_id)
        return {} if view is None else self.live_offsets(view)

    def live_offsets(self, view: GroupView) -> dict[TopicPartition, Committed]:
        """Commits for another incarnation of a topic are none (R-8)."""
        live = self.context.is_live
        return {where: one for where, one in view.offsets.items() if live(where.topic, one.topic_id)}

    def delete_offsets(self, group_id: str, where: Collection[TopicPartition], done: Deleted) -> None:
        self._shard(group_id).delete_offsets(group_id, where, done)

    # --- administration ------------------------------------------------------------------------

    def find(self, group_id: str) -> GroupView | None:
        self._check_leads()
        shard = self._shards.of(group_id)
        return None if shard is None else shard.view(group_id)

    def get(self, group_id: str) -> GroupView:
        view = self.find(group_id)
        if view is None:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        return view

    def views(self) -> list[GroupView]:
        """All that are loaded, by name."""
        self._check()
        found = [view for shard in self._shards.all() for view in shard.views()]
        return sorted(found, key=lambda view: view.group.group_id)

    def delete(self, group_id: str, waiter: Waiter) -> None:
        self._shard(group_id).delete(group_id, waiter)

    # --- upkeep --------------------------------------------------------------------------------

    def sweep(self) -> dict[str, set[TopicPartition]]:
        """Look for what has expired (R-13: by wall time only while it can be trusted). What is on its way out."""
        retention_ms, trusted = self._settings.offsets_retention_minutes * 60_000, self._log.runtime.wall.trusted()
        found: dict[str, set[TopicPartition]] = {}
        for shard in self._shards.all():
            found |= shard.sweep(retention_ms, wall_trusted=trusted)
        return found

    def expire(self, timeout_s: float = EXPIRE_TIMEOUT_S) -> Forgotten:
        """The same at once, and until it is durable. Every group must be loaded. RequestTimedOut: it goes on behind."""
        self._check_leads()
        leaving, clock, pause = self.sweep(), self._log.runtime.clock, threading.Event()
        deadline = clock.boottime() + timeout_s
        offsets = sum(map(len, leaving.values()))
        while True:
            views = {group_id: self.find(group_id) for group_id in leaving}
            waiting = [view.group.group_id for view in views.values() if view and _leaves(view, leaving)]
            if not waiting:
                break
            if clock.boottime() > deadline:
                raise RequestTimedOut(
                    f"what expired of {len(waiting)} groups is not deleted yet, such as {waiting[0]!r}"
                )
            pause.wait(EXPIRE_LOOK_S)
        return Forgotten(sum(view is None for view in views.values()), offsets)

    def _sweep_again(self) -> None:
        try:
            if not self._log.fenced:
                self.sweep()
        finally:
            self._later(self._settings.offsets_retention_check_interval_ms / 1000, self._sweep_again)

    def _on_topic_deleted(self, meta: TopicMeta) -> None:
        def drop() -> None:
            for shard in self._shards.all():
                shard.drop_topic(meta.topic_id)

        self._submit(drop)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._log.runtime.scheduler.after(delay_s, lambda: self._submit(action))

    def _run_all(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._submit(action)

    def _submit(self, action: Callable[[], None]) -> None:
        if self._stopped:
            return
        try:
            self._pool.submit(action).add_done_callback(_log_failure)
        except RuntimeError:
            _log.debug("closing: work on groups is left to the next start")


def _leaves(view: GroupView, leaving: Mapping[str, set[TopicPartition]]) -> bool:
    """Is something of the group still on its way out: an offset, or the group itself?"""
    group = view.group
    going = group.phase is Phase.DEAD or is_disposable(group, len(view.offsets))
    return going or not leaving[group.group_id].isdisjoint(view.offsets)


def _log_failure(done: Future[None]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if isinstance(error, SluiceError):
        _log.warning("work on consumer groups failed: %s %s", error.error, error.message)
    elif error is not None:
        _log.error("work on consumer groups failed", exc_info=error)
