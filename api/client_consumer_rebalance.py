"""What a consumer does when its group rebalances, in the application's own thread.

Eager: before it joins again a member commits and gives up everything; then it takes over what it is told to.
Cooperative: it keeps reading while it joins, gives up only what moved, and joins once more: then others can have it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from sluice.api.client_consumer_fetcher import Fetcher
from sluice.api.client_consumer_offsets import Offsets
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_consumer_positions import Positions
from sluice.log_store.errors import FencedInstanceId
from sluice.log_store.values import TopicPartition
from sluice.streaming.membership.calls import Identity
from sluice.streaming.membership.member import Membership
from sluice.streaming.membership.metadata import Metadata
from sluice.streaming.membership.posted import Arrived, Wish

Partitions = tuple[TopicPartition, ...]
Callback = Callable[[Partitions], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Called from within `poll` and `close`. Whatever they raise comes out there, after the change is made."""

    on_assigned: Callback | None = None
    """What was added; commits and positions can be asked for, `seek` says where to begin."""
    on_revoked: Callback | None = None
    """What is about to go: still ours, so this is the time to commit it."""
    on_lost: Callback | None = None
    """What is gone already: others may have it, commits are refused. Default: on_revoked."""


class Rebalancing:
    def __init__(
        self,
        *,
        options: ConsumerOptions,
        positions: Positions,
        offsets: Offsets,
        fetcher: Fetcher,
        membership: Membership,
        metadata: Metadata,
        changed: threading.Condition,
    ) -> None:
        self._options = options
        self._positions = positions
        self._offsets = offsets
        self._fetcher = fetcher
        self._membership = membership
        self._metadata = metadata
        self._changed = changed
        self._listeners = Listeners()
        self._fenced: FencedInstanceId | None = None
        """Another process has our instance id. Joining again would only throw that one out in turn."""
        self._held: tuple[Partitions, int] = ((), -1)
        """What it owned last and in which generation, for strategies that want to give it the same again."""

    def subscribe(self, listeners: Listeners) -> None:
        """Join, or join again with the new topics."""
        self._listeners = listeners
        with self._changed:
            if self._membership.is_member:
                self._membership.posted.rejoin = "the subscription changed"

    def attend(self) -> None:
        """Do what the group asks for."""
        if self._fenced is not None:
            raise self._fenced
        posted = self._membership.posted
        with self._changed:
            failure, posted.failure = posted.failure, None
            lost, posted.lost = posted.lost, None
            arrived, posted.arrived = posted.arrived, None
        if isinstance(failure, FencedInstanceId):
            self._fenced = failure
        if failure is not None:
            self.give_up(self._listeners.on_lost or self._listeners.on_revoked)
            raise failure
        if lost is not None:
            self.give_up(self._listeners.on_lost or self._listeners.on_revoked)
        if arrived is not None:
            self._take_over(arrived)
        with self._changed:
            why, busy = posted.rejoin, self._membership.busy
            outside = not self._membership.is_member
        if (why is not None or outside) and not busy:
            self._join(why or "no member yet")

    def _join(self, why: str) -> None:
        with self._changed:
            owned = self._positions.assigned
        if owned:
            self._held = (owned, self._offsets.identity.generation)
        self._offsets.auto_commit()
        if not self._options.cooperative:
            self.give_up(self._listeners.on_revoked)
        # A cooperative member claims what it still reads; an eager one remembers what it had, which `sticky` wants.
        claim, generation = (owned, self._offsets.identity.generation) if self._options.cooperative else self._held
        with self._changed:
            keeps = bool(self._positions.assigned)
            self._membership.begin(Wish(lambda: self._metadata.for_join(claim, generation), keeps, why))

    def _take_over(self, arrived: Arrived) -> None:
        # From here on commits carry the new generation: what is revoked now has no other owner before we join again.
        self._offsets.identity = arrived.identity
        with self._changed:
            change = self._positions.change(arrived.partitions)
        if change.revoked:
            self._offsets.auto_commit(change.revoked)
            self._remove(change.revoked, self._listeners.on_revoked)
            with self._changed:
                self._membership.posted.rejoin = "gave up partitions for others"
        with self._changed:
            self._positions.add(change.added)
            self._held = (self._positions.assigned, arrived.identity.generation)
            self._fetcher.start()
        if self._listeners.on_assigned is not None:
            self._listeners.on_assigned(change.added)

    def give_up(self, callback: Callback | None) -> None:
        """Everything."""
        with self._changed:
            owned = self._positions.assigned
        if owned:
            self._remove(owned, callback)

    def _remove(self, partitions: Partitions, callback: Callback | None) -> None:
        try:
            if callback is not None:
                callback(partitions)
        finally:
            with self._changed:
                self._positions.drop(partitions)
                self._fetcher.forget(partitions)

    def leave(self, reason: str) -> None:
        """In order: commit, give up, leave."""
        self._offsets.auto_commit()
        try:
            self.give_up(self._listeners.on_revoked)
        finally:
            self._membership.close(reason)
            self._offsets.identity = Identity()
