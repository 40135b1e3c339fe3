"""A member of a consumer group: subscribe, poll, commit.

::

    with client.consumer(group="billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in consumer.poll(timeout=1.0):
                ...

Heartbeats, joins and fetches run in threads of their own; callbacks, commits and changes of the assignment happen in
the thread that polls, and only there. One thread uses a consumer at a time; `wakeup` and `close` may come from any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from sluice.api.client_codec import records_of
from sluice.api.client_consumer_base import ConsumerBase
from sluice.api.client_consumer_buffer import Piece
from sluice.api.client_consumer_rebalance import Callback, Listeners
from sluice.api.client_values import FetchedRecord
from sluice.log_store.errors import FencedInstanceId, IllegalGeneration, InvalidRequest, UnknownMemberId
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_errors import ConsumerClosed
from sluice.streaming.membership.calls import Identity
from sluice.streaming.membership.offsets import CommittedOffset

ITERATION_POLL_S = 1.0
MOST_ROWS = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedTable:
    """Rows of one partition: offset, timestamp, key, value, headers."""

    topic: str
    partition: int
    table: pa.Table
    next_offset: int


class Consumer(ConsumerBase):
    # --- what to read ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches the pattern, together with the rest of the group."""
        with self._using():
            if self.options.group is None:
                raise InvalidRequest("subscribe: this consumer has no group", field="group")
            if self._by_hand:
                raise InvalidRequest("subscribe: partitions are assigned by hand; unsubscribe first", field="topics")
            self._metadata.subscribe(topics, pattern)
            if self._rebalancing is None:
                self._rebalancing = self._new_membership()
            self._rebalancing.subscribe(Listeners(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions, whatever the group does. Replaces what was assigned before."""
        with self._using():
            if self._rebalancing is not None:
                raise InvalidRequest("assign: the consumer is subscribed; unsubscribe first", field="partitions")
            self._by_hand = bool(partitions)
            self._offsets.auto_commit()
            with self._changed:
                change = self._positions.change(partitions)
                self._positions.drop(change.revoked)
                self._fetcher.forget(change.revoked)
                self._positions.add(change.added)
                self._fetcher.start()

    def unsubscribe(self) -> None:
        with self._using():
            self._settle(processed=True)
            if self._rebalancing is not None:
                self._rebalancing.leave("unsubscribed")
                self._rebalancing = self._membership = None
            self.assign(())

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        with self._changed:
            return tuple(sorted(self._positions.assigned, key=lambda one: (one.topic, one.partition)))

    @property
    def rebalancing(self) -> bool:
        """Subscribed, but the assignment is not settled: the next polls will change it."""
        with self._changed:
            member = self._membership
            return member is not None and (not member.is_member or member.busy or member.posted.pending)

    @property
    def identity(self) -> Identity:
        """Member id and generation under which the partitions were taken over."""
        return self._offsets.identity

    # --- reading ---------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[FetchedRecord]:
        """Records as soon as there are some; none when the time is over or `wakeup` was called."""
        pieces = self._poll(timeout, max_records or self.options.max_poll_records)
        return [record for piece in pieces for record in _records(piece)]

    def poll_arrow(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumedTable]:
        """The same as tables, one or none for each partition: nothing is done per record."""
        return [
            ConsumedTable(
                topic=piece.partition.topic,
                partition=piece.partition.partition,
                table=piece.table,
                next_offset=piece.next_offset,
            )
            for piece in self._poll(timeout, max_records or MOST_ROWS)
        ]

    def __iter__(self) -> Iterator[FetchedRecord]:
        """Until the consumer is closed. A record counts as handed out when the loop gets it, not when it is fetched."""
        while not self._closing:
            try:
                pieces = self._poll(ITERATION_POLL_S, self.options.max_poll_records, in_loop=True)
            except ConsumerClosed:
                return
            try:
                for piece in pieces:
                    yield from self._in_loop(piece)
            finally:
                with self._changed:
                    self._positions.rewind()

    def _in_loop(self, piece: Piece) -> Iterator[FetchedRecord]:
        for record in _records(piece):
            with self._changed:
                if not self._positions.reach(piece.question, record.offset + 1):
                    return  # the loop's body seeked, or gave the partition up
            yield record
        with self._changed:
            self._positions.reach(piece.question, None)

    # --- positions -------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that is handed out."""
        with self._using():
            with self._changed:
                known = self._positions.position(partition)
            if known is None:
                self._offsets.until_done(lambda: self._offsets.place([partition]))
                with self._changed:
                    known = self._positions.position(partition)
            assert known is not None  # noqa: S101  # it was placed
            return known

    def seek(self, partition: TopicPartition, offset: int) -> None:
        with self._using(), self._changed:
            self._positions.seek(partition, offset)
            self._changed.notify_all()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Without partitions: of all that are assigned."""
        self._seek_all(partitions, 0)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._seek_all(partitions, 1)

    def _seek_all(self, partitions: Iterable[TopicPartition], end: int) -> None:
        with self._using():
            for one in tuple(partitions) or self.assignment:
                self.seek(one, self._offsets.until_done(partial(self._calls.ends, one))[end])

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`. The membership goes on, so poll must too."""
        self._pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._pause(partitions, False)

    def _pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        with self._using(), self._changed:
            self._positions.pause(partitions, paused)
            self._changed.notify_all()

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        with self._changed:
            return self._positions.paused

    # --- commits ---------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Make durable how far the group has come: all that was handed out, or the given next offsets.

        Repeated through restarts. Raises IllegalGeneration, UnknownMemberId or RebalanceInProgress when the group
        went on meanwhile: nothing was committed, the next poll sorts it out, and records may be read again.
        """
        with self._using():
            with self._changed:
                chosen = self._positions.current() if offsets is None else offsets
                strangers = [one for one in chosen if one not in self._positions] if self._rebalancing else []
            if strangers:
                raise IllegalGeneration(f"commit: {strangers[0]} is not assigned to this consumer any more")
            wanted = {
                one: at if isinstance(at, CommittedOffset) else CommittedOffset(offset=at) for one, at in chosen.items()
            }
            try:
                self._offsets.commit(wanted)
            except (IllegalGeneration, UnknownMemberId, FencedInstanceId):
                if self._membership is not None:
                    with self._changed:
                        self._membership.check_now()
                raise

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None where it has not."""
        with self._using():
            topics = sorted({one.topic for one in partitions})
            found = self._offsets.until_done(lambda: self._calls.committed(topics)) if topics else {}
            return {one: found.get(one) for one in partitions}


def _records(piece: Piece) -> list[FetchedRecord]:
    return records_of(piece.partition.topic, piece.partition.partition, piece.table)
