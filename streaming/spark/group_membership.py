"""A query's membership in its group. It lives in the query's planner process, in two threads:

- the member's own (`streaming.membership`) joins, syncs and sends heartbeats, however long a batch takes;
- the attendant acts on what the group says, and sends commits.

What a batch reads is given up by nobody but the planner, or by the attendant while no batch is being read:

| the group | a batch is being read | between batches |
|---|---|---|
| rebalances, cooperative | joins again at once, claiming what is being read | the same |
| takes partitions away | they are kept until the batch is finished | commits, gives them up, joins again |
| takes away what was not begun | joins again at once: the one they are for has waited for that only | the same |
| rebalances, eager | the group waits for the batch, up to the rebalance timeout | commits, gives up all, joins again |
| went on without us | joins again at once; what the batch finishes is not committed | joins again |
| has another member of our instance id | waits, reading nothing more, until that one is gone | the same |
| does not answer | everything is kept, commits wait | the same |
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping

from sluice.log_store.clock import Clock
from sluice.log_store.errors import FencedInstanceId, GroupIdNotFound, SluiceError
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection
from sluice.streaming.http_errors import RequestFailed, failure
from sluice.streaming.membership.calls import GroupCalls, Identity, is_transient
from sluice.streaming.membership.member import Membership
from sluice.streaming.membership.metadata import Metadata
from sluice.streaming.membership.posted import Wish
from sluice.streaming.spark.group_commits import CommitBox
from sluice.streaming.spark.group_values import Holding, Kept, SparkMember
from sluice.streaming.spark.options import Assigned, Subscription, TopicPattern

logger = logging.getLogger("sluice.spark.groups")

LAST_COMMIT_S = 10.0
"""For the commit of what is about to be given up."""
FAREWELL_S = 2.0
LOOK_S = 1.0
RETRY_S = 0.1


class GroupMembership:
    """One planner thread calls it. `changed` guards the state; `_attending` is taken before it, never within."""

    def __init__(self, connection: Connection, options: SparkMember, subscription: Subscription, clock: Clock) -> None:
        self.options = options
        self.calls = GroupCalls(connection, options)
        self._clock = clock
        self._changed = threading.Condition()
        self._attending = threading.RLock()
        self._metadata = Metadata(self.calls.topics, options)
        _subscribe(self._metadata, subscription)
        self._member = Membership(self.calls, options, self._metadata, self._changed, clock)
        self.commits = CommitBox(self.calls, self._changed, clock, self._identity, self._member.check_now)
        self._held: dict[TopicPartition, int] = {}
        """With the tenure of each."""
        self._claimed: frozenset[TopicPartition] = frozenset()
        """By the last join: until it is answered nobody else gets them."""
        self._generation = -1
        self._takeovers = 0
        self._reading = False
        self._failure: SluiceError | None = None
        self.fenced: FencedInstanceId | None = None
        """Another process has our instance id."""
        self._look_at = 0.0
        self._closing = False
        self._thread: threading.Thread | None = None

    # --- for the planner -------------------------------------------------------------------------

    def start(self) -> None:
        if self._thread is None:
            self._attend()
            self._thread = threading.Thread(target=self._run, name="sluice-group-attendant", daemon=True)
            self._thread.start()

    def finished(self, ends: Mapping[TopicPartition, Kept]) -> None:
        """No batch is being read: `ends` can be committed, and what the group wants back it can have."""
        with self._changed:
            self._put(ends)
            self._reading = False
        self._attend()

    def put(self, entries: Mapping[TopicPartition, Kept]) -> None:
        """Commit them, and give nothing up."""
        with self._changed:
            self._put(entries)

    def _put(self, entries: Mapping[TopicPartition, Kept]) -> None:
        """Never for a partition that went away meanwhile: that would move another member's offset."""
        self.commits.put({one: kept.entry for one, kept in entries.items() if self._held.get(one) == kept.tenure})

    def hold(self) -> Holding:
        """What to read next; all of it stays ours until `finished`."""
        with self._attending, self._changed:
            self._reading = True
            return Holding(dict(self._held), self._generation)

    @property
    def holds_any(self) -> bool:
        with self._changed:
            return bool(self._held)

    @property
    def settled(self) -> bool:
        """In the group, and nothing is under way that may bring partitions."""
        with self._changed:
            return self._member.is_member and not self._member.busy and not self._member.posted.pending

    def settle(self, timeout_s: float) -> bool:
        """Wait for the group. Only between batches."""
        deadline = self._clock.boottime() + timeout_s
        while True:
            self._attend()
            self.check()
            with self._changed:
                left = deadline - self._clock.boottime()
                if self.settled or left <= 0:
                    return self.settled
                self._changed.wait(min(left, LOOK_S))

    def drain(self, timeout_s: float) -> bool:
        """Wait until the group has every commit."""
        deadline = self._clock.boottime() + timeout_s
        with self._changed:
            while not self.commits.is_empty and (left := deadline - self._clock.boottime()) > 0:
                self._changed.wait(min(left, LOOK_S))
            return self.commits.is_empty

    def pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)

    def check(self) -> None:
        """Raise what ends the query. A refused commit does not, nor does a service that is away."""
        error = self._failure or self.commits.failure
        if error is not None:
            raise error

    def close(self, reason: str) -> None:
        """The last commits, then leave; a static member stays, because it is expected back."""
        with self._changed:
            already, self._closing = self._closing, True
            self._changed.notify_all()
        if already or self._thread is None:
            return
        self.commits.flush(FAREWELL_S)
        self._member.close(reason)

    # --- the attendant ---------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait():
            try:
                self._attend()
                with self._changed:
                    due = self.commits.send_at <= self._clock.boottime()
                if due:
                    self.commits.flush(LAST_COMMIT_S)
            except SluiceError as error:
                self._fail(error)
            except (LookupError, TypeError, ValueError) as error:
                self._fail(failure(SluiceError.error, f"this is no answer of a group: {error!r}"))

    def _wait(self) -> bool:
        with self._changed:
            if not self._closing and not self._has_work():
                pause = min(self.commits.send_at - self._clock.boottime(), LOOK_S)
                self._changed.wait(max(0.001, pause))
            return not self._closing

    def _has_work(self) -> bool:
        posted, between = self._member.posted, not self._reading
        if self._failure is not None:
            return False
        if posted.failure is not None or posted.lost is not None:
            return True
        if self._member.busy:
            return False
        wanted_back = posted.rejoin is not None and (between or self.options.cooperative)
        return wanted_back or (between and posted.arrived is not None) or bool(self._withheld())

    def _attend(self) -> None:
        """Do what the group asks for, as far as it may be done now."""
        with self._attending:
            if self._closing or self._failure is not None:
                return
            self._note_losses()
            if self.fenced is not None and not self._may_come_back():
                return
            with self._changed:
                between = not self._reading
            self._release()
            if between:
                self._take_over()
            self._join_if_needed(between=between)

    def _note_losses(self) -> None:
        with self._changed:
            posted = self._member.posted
            error, posted.failure = posted.failure, None
            lost, posted.lost = posted.lost, None
            if error is None and lost is None:
                return
            logger.warning("out of the group %s: %s", self.options.group, lost or error)
            self._held = {}
            self.commits.forget()
        if isinstance(error, FencedInstanceId):
            self.fenced = error
        elif error is not None:
            self._fail(error)

    def _may_come_back(self) -> bool:
        """Joining at once would throw the other one out in turn, and it us: wait until it is gone."""
        now = self._clock.boottime()
        if now < self._look_at:
            return False
        self._look_at = now + self.options.heartbeat_interval_ms / 1000
        try:
            if self.options.group_instance_id in self.calls.instances():
                return False
        except GroupIdNotFound:
            pass
        except RequestFailed as error:
            if not is_transient(error):
                raise
            return False
        self.fenced = None
        return True

    def _release(self) -> None:
        """Nothing was read of them, so that there is nothing to commit, and no batch to wait for."""
        with self._changed:
            if not self._member.busy and (withheld := self._withheld()):
                self._claimed -= withheld
                self._member.posted.rejoin = self._member.posted.rejoin or "passes on what it had not begun"

    def _withheld(self) -> frozenset[TopicPartition]:
        """Given to us by one rebalance and taken away by the next before we had begun: we claimed them in between, so
        that a cooperative group gives them to nobody before we join without them."""
        arrived = self._member.posted.arrived
        if arrived is None or not self.options.cooperative:
            return frozenset()
        return self._claimed - self._held.keys() - set(arrived.partitions)

    def _take_over(self) -> None:
        """While a join is under way, which claimed all that is held, nothing is given up: its answer decides."""
        with self._changed:
            arrived = self._member.posted.arrived
            if arrived is None or self._member.busy:
                return
            self._member.posted.arrived = None
            self.commits.retry_soon()
            revoked = self._held.keys() - set(arrived.partitions)
        if revoked:
            # Nobody else has them before we join again, so that this is the last word about them.
            self._say_all()
        with self._changed:
            self.commits.forget(revoked)
            self._takeovers += 1
            self._held = {one: self._held.get(one, self._takeovers) for one in arrived.partitions}
            self._generation = arrived.identity.generation
            if revoked:
                logger.info("gave up %s", ", ".join(sorted(map(str, revoked))))
                self._member.posted.rejoin = self._member.posted.rejoin or "gave up partitions for others"
            self._changed.notify_all()

    def _join_if_needed(self, *, between: bool) -> None:
        with self._changed:
            why = self._member.posted.rejoin
            if self._failure is not None or self._member.busy or (why is None and self._member.is_member):
                return
            eager = not self.options.cooperative and bool(self._held)
        if eager and not between:
            return
        if eager:
            self._say_all()
        with self._changed:
            claim, generation = self._claim(), self._member.identity.generation
            self._claimed = frozenset(claim)
            if eager:
                self.commits.forget()
                self._held = {}
            wish = Wish(lambda: self._metadata.for_join(claim, generation), bool(self._held), why or "no member yet")
            self._member.begin(wish)

    def _say_all(self) -> None:
        """Commit before something is given up. What cannot be committed will be read again by its next owner."""
        deadline = self._clock.boottime() + LAST_COMMIT_S
        while not self.commits.flush(LAST_COMMIT_S) and self._clock.boottime() < deadline:
            with self._changed:
                if self._closing or not self._member.is_member or self._member.posted.lost is not None:
                    return
                self._changed.wait(RETRY_S)

    def _claim(self) -> Collection[TopicPartition]:
        """What we read, and what we were given and have not begun to read."""
        arrived = self._member.posted.arrived
        return tuple(sorted({*self._held, *(arrived.partitions if arrived else ())}, key=str))

    def _identity(self) -> Identity | None:
        return self._member.identity if self._member.is_member else None

    def _fail(self, error: SluiceError) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()


def _subscribe(metadata: Metadata, subscription: Subscription) -> None:
    if isinstance(subscription, TopicPattern):
        metadata.subscribe(None, subscription.pattern.pattern)
    elif not isinstance(subscription, Assigned):
        metadata.subscribe(subscription.names, None)
