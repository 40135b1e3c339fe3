"""Where a consumer begins, and what it commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from sluice.api.client_consumer_calls import ConsumerCalls
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_consumer_positions import Positions
from sluice.log_store.clock import Clock
from sluice.log_store.errors import (
    IllegalGeneration,
    OffsetOutOfRange,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_errors import NoOffsetForPartition, RequestFailed
from sluice.streaming.membership.calls import Identity, is_transient
from sluice.streaming.membership.offsets import CommittedOffset

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Offsets:
    """Used by the application's thread only. `changed` guards the positions."""

    def __init__(
        self,
        calls: ConsumerCalls,
        options: ConsumerOptions,
        positions: Positions,
        changed: threading.Condition,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._options = options
        self._positions = positions
        self._changed = changed
        self._clock = clock
        self.identity = Identity()
        """Under which partitions were taken over."""
        self.closing = False
        """Somebody waits for us to end: give up what would be tried again."""
        self._place_at = float("-inf")
        self._commit_at = clock.boottime() + options.auto_commit_interval_ms / 1000

    # --- where to begin --------------------------------------------------------------------------

    def place_all(self) -> None:
        """Give every partition a position. What fails for a while is tried again by a later poll."""
        with self._changed:
            unplaced = self._positions.unplaced()
        if not unplaced or self._clock.boottime() < self._place_at:
            return
        try:
            self.place(unplaced)
        except RequestFailed as error:
            if not is_transient(error) and not isinstance(error, UnknownTopicOrPartition):
                raise
            pause_s = max(self._options.retry_backoff_max_ms / 1000, error.retry_after_s or 0.0)
            self._place_at = self._clock.boottime() + pause_s

    def place(self, partitions: Collection[TopicPartition]) -> None:
        with self._changed:
            fallen = {one for one in partitions if self._positions.fell_out(one)}
        asked = [one for one in partitions if one not in fallen]
        known: Mapping[TopicPartition, CommittedOffset] = {}
        if asked and self._options.group is not None:
            known = self._calls.committed(sorted({one.topic for one in asked}))
        missing: UnknownTopicOrPartition | None = None
        for one in partitions:
            if one in known and one not in fallen:
                self._set(one, known[one].offset, committed=True)
                continue
            try:
                self._set(one, self._reset(one, one in fallen), committed=False)
            except UnknownTopicOrPartition as error:
                missing = error  # the others are not to wait for a topic that is being deleted, or not there yet
        if missing is not None:
            raise missing

    def _set(self, one: TopicPartition, offset: int, *, committed: bool) -> None:
        with self._changed:
            self._positions.place(one, offset, committed=committed)
            self._changed.notify_all()

    def _reset(self, one: TopicPartition, fell_out: bool) -> int:
        rule = self._options.auto_offset_reset
        if rule == "none" and fell_out:
            raise OffsetOutOfRange(f"{one}: the position is not in the log, and auto_offset_reset is none")
        if rule == "none":
            raise NoOffsetForPartition(f"{one}: nothing is committed, and auto_offset_reset is none")
        earliest, latest = self._calls.ends(one)
        if fell_out:
            _log.warning("%s: the position is not in the log; going on at the %s offset", one, rule)
        return earliest if rule == "earliest" else latest

    # --- what to commit --------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Repeated while it may help; raises when the group refuses it."""
        if not offsets:
            return
        self.until_done(lambda: self._calls.commit(self.identity, offsets))
        with self._changed:
            self._positions.committed({one: committed.offset for one, committed in offsets.items()})

    def auto_commit_if_due(self) -> None:
        if self._clock.boottime() >= self._commit_at:
            done = self.auto_commit()
            pause_ms = self._options.auto_commit_interval_ms if done else self._options.retry_backoff_max_ms
            self._commit_at = self._clock.boottime() + pause_ms / 1000

    def auto_commit(self, among: Collection[TopicPartition] | None = None) -> bool:
        """What earlier polls handed out. Whoever reads it again after a failure gets it twice, never not at all."""
        if not self._options.enable_auto_commit or self._options.group is None:
            return True
        with self._changed:
            offsets = self._positions.to_commit(among)
        if not offsets:
            return True
        try:
            self._calls.commit(self.identity, {one: CommittedOffset(offset=at) for one, at in offsets.items()})
        except (RebalanceInProgress, IllegalGeneration, UnknownMemberId) as error:
            _log.info("auto-commit was refused: %s", error.message)
            return False
        except RequestFailed as error:
            if not is_transient(error) and not isinstance(error, UnknownTopicOrPartition):
                raise
            _log.warning("auto-commit failed: %s", error.message)
            return False
        with self._changed:
            self._positions.committed(offsets)
        return True

    def until_done(self, call: Callable[[], _T]) -> _T:
        """Through restarts and overloads, for as long as `default_api_timeout_ms`."""
        deadline = self._clock.boottime() + self._options.default_api_timeout_ms / 1000
        pause_s = self._options.retry_backoff_ms / 1000
        while True:
            try:
                return call()
            except RequestFailed as error:
                length = max(pause_s, error.retry_after_s or 0.0)
                if not is_transient(error) or self.closing or self._clock.boottime() + length > deadline:
                    raise
            with self._changed:
                self._changed.wait_for(lambda: self.closing, length)
            pause_s = min(pause_s * 2, self._options.retry_backoff_max_ms / 1000)
