"""A membership in a group: one thread that joins, syncs and sends heartbeats.

The thread never touches partitions and never calls the application. It posts what happened, and `poll` acts on it in
the application's own thread:

| posted | what poll does |
|---|---|
| `arrived` | takes over the assignment: revokes what went, adds what came |
| `rejoin` | prepares (commits, revokes if the protocol is eager), then asks for the next join with `begin` |
| `lost` | the group went on without us: the partitions may have other owners already |
| `failure` | raises it |

Commits carry the identity under which poll took over the assignment, not the newest one: offsets of partitions that
another member has by now are refused by the group.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from sluice.log_store.clock import Clock
from sluice.log_store.errors import (
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    SluiceError,
    UnknownMemberId,
)
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_errors import RequestFailed, failure
from sluice.streaming.membership.calls import GroupCalls, Identity, Joined, is_transient
from sluice.streaming.membership.metadata import Metadata
from sluice.streaming.membership.options import MemberOptions
from sluice.streaming.membership.posted import Arrived, Posted, Wish

NOBODY = Identity()


@dataclass(slots=True)
class _State:
    identity: Identity = NOBODY
    """For heartbeats: the newest that the group gave us."""
    wish: Wish | None = None
    joining: bool = False
    is_member: bool = False
    is_leader: bool = False
    closing: bool = False
    heartbeat_at: float = 0.0
    refresh_at: float = 0.0
    polled_at: float = 0.0


class Membership:
    """`changed` guards `posted` and the state; requests are made without it."""

    def __init__(
        self,
        calls: GroupCalls,
        options: MemberOptions,
        metadata: Metadata,
        changed: threading.Condition,
        clock: Clock,
        *,
        step_out_after_ms: int | None = None,
    ) -> None:
        """`step_out_after_ms`: leave when `polled` was not called for so long; None: stay."""
        self._step_out_after_s = float("inf") if step_out_after_ms is None else step_out_after_ms / 1000
        self._calls = calls
        self._options = options
        self._metadata = metadata
        self._changed = changed
        self._clock = clock
        self._state = _State()
        self._thread: threading.Thread | None = None
        self.posted = Posted()

    # --- for poll; hold `changed` ----------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """A join is under way or asked for."""
        return self._state.joining or self._state.wish is not None

    @property
    def is_member(self) -> bool:
        return self._state.is_member

    @property
    def identity(self) -> Identity:
        """The newest that the group gave us."""
        return self._state.identity

    @property
    def member_id(self) -> str:
        return self._state.identity.member_id

    def polled(self) -> None:
        self._state.polled_at = self._clock.boottime()

    def begin(self, wish: Wish) -> None:
        """Join, or join again."""
        self.posted.rejoin = None
        self._state.wish = wish
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sluice-consumer-group", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def check_now(self) -> None:
        """A commit was refused: the next heartbeat says what became of us."""
        self._state.heartbeat_at = 0.0
        self._changed.notify_all()

    def close(self, reason: str) -> None:
        """Leave, unless static: those may come back. Do not hold `changed`."""
        with self._changed:
            self._state.closing = True
            member_id = self.member_id
            self._state.is_member = False
            self._changed.notify_all()
        if member_id and self._options.group_instance_id is None:
            self._try_to_leave(member_id, reason)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except SluiceError as error:
                self._post_failure(error)
            except (LookupError, TypeError, ValueError) as error:
                self._post_failure(failure(SluiceError.error, f"this is no answer of a group: {error!r}"))

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while True:
                state, now = self._state, self._clock.boottime()
                if state.closing:
                    return None
                if state.wish is not None:
                    wish, state.wish, state.joining = state.wish, None, True
                    return lambda: self._join(wish)
                if not state.is_member:
                    self._changed.wait(1.0)
                    continue
                too_late = state.polled_at + self._step_out_after_s
                if now >= too_late:
                    return self._step_out
                if now >= state.heartbeat_at:
                    return self._heartbeat
                if now >= state.refresh_at:
                    return self._refresh
                self._changed.wait(max(0.001, min(too_late, state.heartbeat_at, state.refresh_at) - now))

    def _join(self, wish: Wish) -> None:
        tries = 0
        while not self._stopped():
            try:
                metadata = wish.metadata()
                joined = self._calls.join(self.member_id, metadata, wish.reason)
                self._know(Identity(joined.member_id, self._state.identity.generation))
                if self._stopped():
                    break
                self._arrive(joined, self._calls.sync(joined))
                return
            except MemberIdRequired as error:
                self._know(Identity(str(error.fields["member_id"])))
            except (RebalanceInProgress, IllegalGeneration):
                tries = 0  # the others moved on while we synced: join them
            except UnknownMemberId as error:
                self._know(NOBODY)
                if wish.owns:
                    self._post_lost(error.message)
                    return
            except RequestFailed as error:
                if not is_transient(error):
                    raise
                self._pause(tries, error)
                tries += 1
        if self.member_id and self._options.group_instance_id is None:
            self._try_to_leave(self.member_id, "closed while it joined")

    def _stopped(self) -> bool:
        return self._state.closing

    def _know(self, identity: Identity) -> None:
        with self._changed:
            self._state.identity = identity

    def _arrive(self, joined: Joined, partitions: tuple[TopicPartition, ...]) -> None:
        with self._changed:
            state, now = self._state, self._clock.boottime()
            state.identity = Identity(joined.member_id, joined.generation)
            state.is_member, state.is_leader, state.joining = True, joined.is_leader, False
            state.heartbeat_at = now + self._options.heartbeat_interval_ms / 1000
            state.refresh_at = now + self._options.metadata_max_age_ms / 1000
            if joined.is_leader:
                self._metadata.lead(joined.topics)
            self.posted.arrived = Arrived(state.identity, partitions)
            self._changed.notify_all()

    def _heartbeat(self) -> None:
        with self._changed:
            identity = self._state.identity
        pause_s = self._options.heartbeat_interval_ms / 1000
        try:
            self._calls.heartbeat(identity)
        except RebalanceInProgress as error:
            self._post_rejoin(error.message)
        except IllegalGeneration as error:
            self._post_lost(error.message)
        except UnknownMemberId as error:
            self._know(NOBODY)
            self._post_lost(error.message)
        except RequestFailed as error:
            if not is_transient(error):
                raise
            pause_s = min(pause_s, self._options.retry_backoff_max_ms / 1000)
        with self._changed:
            self._state.heartbeat_at = self._clock.boottime() + pause_s

    def _refresh(self) -> None:
        """New partitions, and new topics of a pattern. Partitions are the leader's business: its join starts it all."""
        try:
            news = self._metadata.refresh(with_partitions=self._state.is_leader)
        except RequestFailed as error:
            if not is_transient(error):
                raise
            news = None
        with self._changed:
            self._state.refresh_at = self._clock.boottime() + self._options.metadata_max_age_ms / 1000
        if news is not None:
            self._post_rejoin(news)

    def _step_out(self) -> None:
        """The application is stuck or slow: others shall have its partitions."""
        member_id, seconds = self.member_id, self._step_out_after_s
        self._post_lost(f"poll was not called for {seconds:g} s")
        if self._options.group_instance_id is None:
            self._know(NOBODY)
            self._try_to_leave(member_id, "poll was not called in time")

    def _try_to_leave(self, member_id: str, reason: str) -> None:
        try:
            self._calls.leave(member_id, reason)
        except SluiceError:
            return  # the session timeout does the same, later

    def _pause(self, tries: int, error: RequestFailed) -> None:
        least, most = self._options.retry_backoff_ms / 1000, self._options.retry_backoff_max_ms / 1000
        length = min(most, least * 2.0 ** min(tries, 20)) * (0.8 + 0.4 * random.random())
        with self._changed:
            self._changed.wait_for(lambda: self._state.closing, max(length, error.retry_after_s or 0.0))

    # --- what poll hears -------------------------------------------------------------------------

    def _post_rejoin(self, reason: str) -> None:
        with self._changed:
            self.posted.rejoin = reason
            self._changed.notify_all()

    def _post_lost(self, reason: str) -> None:
        with self._changed:
            self._out()
            self.posted.lost = reason
            self._changed.notify_all()

    def _post_failure(self, error: SluiceError) -> None:
        with self._changed:
            self._out()
            if isinstance(error, FencedInstanceId):
                self._state.identity = NOBODY
            self.posted.failure = error
            self._changed.notify_all()

    def _out(self) -> None:
        self._state.is_member = self._state.joining = False
        self.posted.arrived = self.posted.rejoin = None
