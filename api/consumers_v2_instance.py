"""One v2 consumer instance: its subscription, its positions, and reading. Lives on the event loop, without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from sluice.api.client_consumer_positions import Positions, Question
from sluice.api.consumers_v2_member import Member
from sluice.api.consumers_v2_models import WrongState
from sluice.api.consumers_v2_offsets import InstanceOffsets, InstanceOptions, Wanted
from sluice.api.service import Service
from sluice.log_store.errors import OffsetOutOfRange, RebalanceInProgress, UnknownTopicOrPartition
from sluice.log_store.partition_reads import Fetched, PartitionReads
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups.events import Commit

LOOK_S = 1.0
"""How long a poll waits before it looks for partitions that came meanwhile."""
MAX_RECORDS = 100_000
MayRead = Callable[[str], bool]
Matches = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Found:
    where: TopicPartition
    rows: Fetched


class Instance:
    def __init__(self, service: Service, group_id: str, options: InstanceOptions) -> None:
        self._service = service
        self.group_id = group_id
        self.options = options
        self.positions = Positions()
        self.offsets = InstanceOffsets(service, group_id, options, self.positions)
        self.topics: tuple[str, ...] = ()
        self._pattern: Matches | None = None
        self._may_read: MayRead = lambda _: True
        self._member: Member | None = None
        self._by_hand = False
        self._settled = asyncio.Event()
        """Not while the group rebalances: nothing may be handed out then."""
        self._settled.set()
        self._one_at_a_time = asyncio.Lock()
        self._turn = 0
        self.used_at = self._now()
        self.polls = 0
        """Under way now: an instance that somebody polls is not abandoned."""

    def _now(self) -> float:
        return self._service.log.runtime.clock.boottime()

    # --- what to read ----------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str], pattern: Matches | None, may_read: MayRead) -> None:
        if self._by_hand:
            raise WrongState("partitions are assigned by hand: an instance is subscribed or assigned, not both")
        self.topics, self._pattern, self._may_read = tuple(dict.fromkeys(topics)), pattern, may_read
        if self._member is None:
            self._settled.clear()
            name = self.options.name
            self._member = Member(self._service, self.group_id, name, self.subscribed_topics, self)
            self.offsets.identity = self._identity
        else:
            self._member.subscription_changed()

    def subscribed_topics(self) -> tuple[str, ...]:
        if self._pattern is None:
            return self.topics
        names = [meta.name for meta in self._service.log.topics()]
        return tuple(sorted(name for name in names if self._pattern(name) and self._may_read(name)))

    async def unsubscribe(self) -> None:
        if self._member is not None:
            await self.offsets.auto_commit()
            self._member.leave()
            self._member = None
        self.topics, self._pattern, self._by_hand = (), None, False
        self.positions.drop(self.positions.assigned)
        self._settled.set()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        if self._member is not None:
            raise WrongState("the instance is subscribed: an instance is subscribed or assigned, not both")
        for where in partitions:
            self.offsets.partition(where)
        change = self.positions.change(partitions)
        self.positions.drop(change.revoked)
        self.positions.add(change.added)
        self._by_hand = bool(partitions)

    def _identity(self) -> Commit:
        return Commit() if self._member is None else self._member.identity

    async def close(self) -> None:
        """Deleted by its client: what was handed out counts as done."""
        self.positions.poll_begins()
        try:
            await self.unsubscribe()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leave without a word: nobody knows what became of the records that were handed out last."""
        if self._member is not None:
            self._member.leave()
            self._member = None

    # --- what the group says (Owner) -------------------------------------------------------------

    async def give_up(self) -> None:
        self._settled.clear()
        await self.offsets.auto_commit()

    def take_over(self, partitions: tuple[TopicPartition, ...]) -> None:
        """What stays keeps its place: nobody else had it in between."""
        change = self.positions.change(partitions)
        self.positions.drop(change.revoked)
        self.positions.add(change.added)
        self._settled.set()

    def lost(self) -> None:
        self._settled.clear()
        self.positions.drop(self.positions.assigned)

    # --- reading ---------------------------------------------------------------------------------

    async def poll(self, timeout_s: float, max_bytes: int) -> list[Found]:
        """Records as soon as there are `min_bytes` of them, or whatever there is when the time is over."""
        deadline = self._now() + timeout_s
        async with self._one_at_a_time:
            self.positions.poll_begins()
            await self.offsets.auto_commit_if_due()
            while True:
                await self._until_settled(deadline)
                found = await self._read_all(max_bytes) if self._settled.is_set() else []
                size = sum(_size(one.rows) for one in found)
                left = deadline - self._now()
                enough = size >= max(1, min(self.options.min_bytes, max_bytes))
                if enough or left <= 0 or self._service.waiting.stopping:
                    return self._handed_out(found)
                await self._wait(min(left, LOOK_S))

    async def _until_settled(self, deadline: float) -> None:
        member = self._member
        if member is not None and member.failure is not None and not member.failure.retriable:
            raise member.failure
        if not self._settled.is_set():
            try:
                async with self._service.waiting.timeout(max(0.0, deadline - self._now())):
                    await self._settled.wait()
            except TimeoutError:
                return

    async def _read_all(self, max_bytes: int) -> list[Found]:
        """Partitions take turns to be first, so that a full answer starves nobody."""
        await self.offsets.place_all()
        assigned = self.positions.assigned
        self._turn += 1
        first = self._turn % len(assigned) if assigned else 0
        found: list[Found] = []
        left = max_bytes
        for where in (*assigned[first:], *assigned[:first]):
            question = self.positions.question(where)
            if question is None or left <= 0:
                continue
            rows = await self._read(question, left)
            if rows is not None and self.positions.accepts(question):
                left -= _size(rows)
                found.append(Found(where, rows))
        return found

    async def _read(self, question: Question, max_bytes: int) -> Fetched | None:
        service, where = self._service, question.partition
        try:
            partition = await self.offsets.opened(where)
            work = partial(
                PartitionReads(partition).fetch, question.offset, max_records=MAX_RECORDS, max_bytes=max_bytes
            )
            at_the_end = question.offset >= partition.high_watermark
            if at_the_end and not service.log.fenced:
                return work()
            return await service.reading(work)
        except OffsetOutOfRange:
            self.positions.fall_out(question)
        except UnknownTopicOrPartition:
            return None  # deleted; the group will take it away
        return None

    def _handed_out(self, found: list[Found]) -> list[Found]:
        if not self._settled.is_set():
            return []  # the group began to rebalance while this was read
        kept = [one for one in found if one.where in self.positions]
        for one in kept:
            self.positions.hand_out(one.where, one.rows.rows.next_offset)
        return [one for one in kept if one.rows.rows.count]

    async def _wait(self, seconds: float) -> None:
        """Until one of the partitions has more."""
        waiting = self._service.waiting
        opened = [self.offsets.partition(where) for where in self.positions.assigned]
        waits = [
            asyncio.ensure_future(waiting.past(partition, partition.high_watermark, seconds))
            for partition in opened
            if partition.opened
        ] or [asyncio.ensure_future(waiting.pause(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for done in waits:
                if done.done():
                    done.result()
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    # --- commits ---------------------------------------------------------------------------------

    async def commit(self, wanted: Wanted) -> None:
        """RebalanceInProgress for what another member may have by now."""
        gone = [where for where in wanted if where not in self.positions] if self._member is not None else []
        if gone or not self._settled.is_set():
            what = gone[0] if gone else "everything"
            raise RebalanceInProgress(f"the group rebalances, {what} may belong to another member now: poll again")
        await self.offsets.commit(wanted)


def _size(found: Fetched) -> int:
    return sum(batch.nbytes for batch in found.rows.batches)
