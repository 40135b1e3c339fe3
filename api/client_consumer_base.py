"""The inside of a consumer: its parts, its locks, the loop of `poll`, and the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from sluice.api.client_consumer_buffer import Piece
from sluice.api.client_consumer_calls import ConsumerCalls
from sluice.api.client_consumer_fetcher import Fetcher
from sluice.api.client_consumer_offsets import Offsets
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_consumer_positions import Positions
from sluice.api.client_consumer_rebalance import Rebalancing
from sluice.log_store.errors import InvalidRequest, SluiceError
from sluice.streaming.http_client import Connection
from sluice.streaming.http_errors import ConsumerClosed
from sluice.streaming.membership.member import Membership
from sluice.streaming.membership.metadata import Metadata

LOOK_S = 0.25
"""How long poll waits at most before it looks at its timers."""


class ConsumerBase:
    """`_in_use` keeps callers apart; `_changed` guards what they share with the threads in the background."""

    def __init__(self, connection: Connection, options: ConsumerOptions) -> None:
        self.options = options
        self._clock = connection.clock
        self._changed = threading.Condition()
        self._in_use = threading.RLock()
        self._calls = ConsumerCalls(connection, options)
        self._positions = Positions()
        self._offsets = Offsets(self._calls, options, self._positions, self._changed, self._clock)
        self._fetcher = Fetcher(self._calls, options, self._positions, self._changed, self._clock)
        self._metadata = Metadata(self._calls.topics, options)
        self._membership: Membership | None = None
        self._rebalancing: Rebalancing | None = None
        self._by_hand = False
        self._woken = False
        self._closing = False
        self._closed = False

    def _new_membership(self) -> Rebalancing:
        self._membership = Membership(
            self._calls,
            self.options,
            self._metadata,
            self._changed,
            self._clock,
            step_out_after_ms=self.options.max_poll_interval_ms,
        )
        return Rebalancing(
            options=self.options,
            positions=self._positions,
            offsets=self._offsets,
            fetcher=self._fetcher,
            membership=self._membership,
            metadata=self._metadata,
            changed=self._changed,
        )

    @contextmanager
    def _using(self) -> Iterator[None]:
        """One caller at a time, and none after the end."""
        with self._in_use:
            if self._closed:
                raise ConsumerClosed("the consumer is closed")
            yield

    # --- poll ------------------------------------------------------------------------------------

    def _poll(self, timeout: float, most: int, *, in_loop: bool = False) -> list[Piece]:
        with self._using():
            self._check_subscribed()
            deadline = self._clock.boottime() + timeout
            with self._changed:
                self._positions.poll_begins()
            while True:
                self._attend()
                with self._changed:
                    pieces = self._take(most, in_loop)
                    left = deadline - self._clock.boottime()
                    if pieces or left <= 0 or self._woken or self._closing:
                        self._woken = False
                        return pieces
                    self._changed.wait(min(left, LOOK_S))

    def _attend(self) -> None:
        if self._membership is not None and self._rebalancing is not None:
            with self._changed:
                self._membership.polled()
            self._rebalancing.attend()
        if self.options.enable_auto_commit:
            self._offsets.auto_commit_if_due()
        self._offsets.place_all()

    def _take(self, most: int, in_loop: bool) -> list[Piece]:
        failure, self._fetcher.failure = self._fetcher.failure, None
        if failure is not None:
            raise failure
        paused = frozenset(self._positions.paused)
        pieces = self._fetcher.buffer.take(most, self._positions.accepts, paused.__contains__)
        for piece in pieces:
            self._positions.hand_out(piece.partition, piece.next_offset)
            if in_loop:
                self._positions.reach(piece.question, piece.table.column("offset")[0].as_py())
        if pieces:
            self._changed.notify_all()
        return pieces

    def _check_subscribed(self) -> None:
        if self._rebalancing is None and not self._by_hand:
            raise InvalidRequest("poll: subscribe to topics or assign partitions first", field="topics")

    # --- the end ---------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """From any thread: the poll that waits, or else the next one, returns at once."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """Commits if it does so by itself, and leaves the group; a static member stays until its session ends.

        From any thread: a poll that waits returns first.
        """
        self._close(processed=True)

    def _close(self, *, processed: bool) -> None:
        """`processed`: what the last poll handed out counts as done."""
        with self._changed:
            self._closing = self._offsets.closing = True
            self._changed.notify_all()
        with self._in_use:
            if self._closed:
                return
            self._closed = True
            try:
                self._settle(processed)
                if self._rebalancing is not None:
                    self._rebalancing.leave("closed")
                else:
                    self._offsets.auto_commit()
            finally:
                self._fetcher.close()

    def _settle(self, processed: bool) -> None:
        with self._changed:
            self._positions.rewind()
            if processed:
                self._positions.poll_begins()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an error the records of the last poll are not committed by themselves: they will be read again."""
        try:
            self._close(processed=error is None)
        except SluiceError:
            if error is None:
                raise
