"""A v2 consumer instance as a member of its group: one asyncio task that talks to the coordinator in this process.

It joins again as soon as the group rebalances, whether or not anybody polls: an instance whose client is slow does not
hold up the others. What the client has read and not committed is read again by whoever has the partition then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from typing import Protocol

from sluice.api.groups_requests import Later, granted, ready
from sluice.api.service import Service
from sluice.log_store.errors import IllegalGeneration, RebalanceInProgress, SluiceError, UnknownMemberId
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import Waiter
from sluice.streaming.groups import Response
from sluice.streaming.groups.effects import Joined, Synced
from sluice.streaming.groups.events import Commit, Heartbeat, Join, Leave, Leaving, Sync
from sluice.streaming.groups.state import ProtocolOffer
from sluice.streaming.groups.subscription import (
    CONSUMER,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)

_log = logging.getLogger(__name__)
SESSION_MS = 10_000
"""Short: heartbeats do not leave the process, so only a restart lets one expire."""
HEARTBEAT_S = 1.0
REBALANCE_MS = 60_000
RETRY_S = 1.0
STRATEGIES = ("range", "cooperative-sticky")
Topics = Callable[[], tuple[str, ...]]


class Owner(Protocol):
    """The instance, told on the event loop."""

    async def give_up(self) -> None:
        """The group rebalances: commit what is done; nothing may be handed out until `take_over`."""

    def take_over(self, partitions: tuple[TopicPartition, ...]) -> None: ...

    def lost(self) -> None:
        """The group went on without us."""


class Member:
    def __init__(self, service: Service, group_id: str, client_id: str, topics: Topics, owner: Owner) -> None:
        self._service = service
        self._group_id = group_id
        self._client_id = client_id
        self._topics = topics
        self._owner = owner
        self._member_id = ""
        self._generation = -1
        self._led: frozenset[str] = frozenset()
        self._joined_with: tuple[dict[str, int], dict[str, int]] = ({}, {})
        """The partitions there were of our topics and, if we lead, of everybody's."""
        self._again = asyncio.Event()
        self.failure: SluiceError | None = None
        """Why it is no member now."""
        self._task = asyncio.ensure_future(self._run())

    @property
    def identity(self) -> Commit:
        return Commit(member_id=self._member_id, generation=self._generation)

    def subscription_changed(self) -> None:
        self._again.set()

    def leave(self) -> None:
        """At once and without waiting: what is still under way is given up."""
        self._task.cancel()
        if self._member_id:
            leaving = Leave((Leaving(member_id=self._member_id),))
            with contextlib.suppress(SluiceError):  # its session ends by itself
                self._service.groups.say(self._group_id, leaving)

    async def _run(self) -> None:
        while True:
            try:
                await self._join()
                await self._stay()
                await self._owner.give_up()
            except UnknownMemberId:
                self._forgotten("")
            except IllegalGeneration:
                self._forgotten(self._member_id)
            except SluiceError as error:
                self.failure = error
                await asyncio.sleep(RETRY_S)
            except Exception:
                _log.exception("a v2 consumer of group %r failed", self._group_id)
                raise

    def _forgotten(self, member_id: str) -> None:
        self._member_id, self._generation = member_id, -1
        self._owner.lost()

    async def _join(self) -> None:
        self._again.clear()
        await ready(self._service, self._group_id, write=True)
        seen = self._seen(self._topics())
        joined = await self._ask(lambda waiter: self._service.groups.join(self._group_id, self._request(waiter)))
        assert isinstance(joined, Joined)  # noqa: S101 - the machine answers a join with nothing else
        self._member_id = joined.member_id
        try:
            synced = await self._sync(joined)
        except RebalanceInProgress:
            self._again.set()
            return
        members = (decode_subscription(member.metadata) for member in joined.members)
        self._led = frozenset(topic for member in members for topic in member.topics)
        self._joined_with = (seen, self._seen(self._led))
        self._generation, self.failure = joined.generation, None
        self._owner.take_over(decode_assignment(synced.assignment).partitions)

    def _request(self, waiter: Waiter) -> Join:
        rules = self._service.groups.context.settings
        metadata = encode_subscription(Subscription(self._topics()))
        return Join(
            token=waiter,
            member_id=self._member_id,
            new_member_id=f"{self._client_id}-{uuid.uuid4()}",
            client_id=self._client_id,
            client_host="",
            session_timeout_ms=max(rules.min_session_timeout_ms, min(SESSION_MS, rules.max_session_timeout_ms)),
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=CONSUMER,
            protocols=tuple(ProtocolOffer(name, metadata) for name in STRATEGIES),
            member_id_required=False,  # the answer cannot get lost on the way
        )

    async def _sync(self, joined: Joined) -> Synced:
        leads = joined.leader == joined.member_id and not joined.skip_assignment

        def ask(waiter: Waiter) -> None:
            sync = Sync(
                token=waiter,
                member_id=joined.member_id,
                generation=joined.generation,
                protocol_type=CONSUMER,
                protocol=joined.protocol,
                strategy=joined.protocol if leads else None,
            )
            self._service.groups.sync(self._group_id, sync)

        synced = await self._ask(ask, in_thread=leads)
        assert isinstance(synced, Synced)  # noqa: S101 - the machine answers a sync with nothing else
        return synced

    async def _ask(self, ask: Callable[[Waiter], None], *, in_thread: bool = False) -> Response | None:
        later: Later[Response] = Later(self._service)
        waiter = Waiter(later.set)
        try:
            if in_thread:
                await self._service.reading(lambda: ask(waiter))
            else:
                ask(waiter)
            return granted(await later.future)
        finally:
            if not later.future.done():
                self._service.groups.client_gone(self._group_id, waiter)

    async def _stay(self) -> None:
        """Until it is time to join again."""
        beat = Heartbeat(member_id=self._member_id, generation=self._generation)
        while not self._again.is_set():
            try:
                granted(self._service.groups.say(self._group_id, beat))
            except RebalanceInProgress:
                return
            if self._changed():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), HEARTBEAT_S)

    def _changed(self) -> bool:
        """Other topics match, or somebody grew a topic of a group that we lead."""
        return self._joined_with != (self._seen(self._topics()), self._seen(self._led))

    def _seen(self, topics: tuple[str, ...] | frozenset[str]) -> dict[str, int]:
        return {topic: self._service.groups.partitions_of(topic) for topic in topics}
