"""What a query has to tell its group: the newest offset of each partition, sent until the group has it.

Nobody waits for a commit, and none fails a query for being refused: it is kept until the membership says whether the
partition is still ours. Then it is sent again under the new generation, or dropped, and whoever owns the partition by
then goes on from the last commit that the group has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sluice.log_store.clock import Clock
from sluice.log_store.errors import (
    FencedInstanceId,
    IllegalGeneration,
    RebalanceInProgress,
    SluiceError,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_errors import RequestFailed
from sluice.streaming.membership.calls import GroupCalls, Identity, QueryLabel, is_transient
from sluice.streaming.membership.offsets import CommittedOffset

logger = logging.getLogger("sluice.spark.groups")

REFUSALS = (RebalanceInProgress, IllegalGeneration, UnknownMemberId, FencedInstanceId)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Entry:
    offset: int
    topic_id: str
    label: QueryLabel
    note: str = ""
    """See `group_beginnings`."""


Entries = dict[TopicPartition, Entry]


class CommitBox:
    """`changed` guards what waits; requests are made without it, one at a time."""

    def __init__(
        self,
        calls: GroupCalls,
        changed: threading.Condition,
        clock: Clock,
        identity: Callable[[], Identity | None],
        refused: Callable[[], None],
    ) -> None:
        """`identity` is None while there is no membership to commit under; both are called with `changed` held."""
        self._calls = calls
        self._changed = changed
        self._clock = clock
        self._identity = identity
        self._refused = refused
        self._sending = threading.Lock()
        self._waiting: Entries = {}
        self._sent: Entries = {}
        self._send_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self.failure: SluiceError | None = None
        """Something that another try does not mend, such as a missing right."""

    # --- hold `changed` --------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def send_at(self) -> float:
        """When there is something to do, in boottime."""
        return self._send_at if self._waiting else float("inf")

    @property
    def struggling(self) -> bool:
        """The last try did not work out."""
        return self._pause_s > FIRST_PAUSE_S

    def put(self, entries: Mapping[TopicPartition, Entry]) -> None:
        """The newest wins. An offset that the group has already is not said again: its older label is as good."""
        for one, entry in entries.items():
            sent = self._sent.get(one)
            if sent is not None and (sent.offset, sent.topic_id) == (entry.offset, entry.topic_id):
                self._waiting.pop(one, None)
            else:
                self._waiting[one] = entry
        if not self.struggling:
            self._send_at = 0.0
        self._changed.notify_all()

    def forget(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """They are, or may be, somebody else's by now. None: all."""
        gone = list({*self._waiting, *self._sent} if partitions is None else partitions)
        for one in gone:
            self._waiting.pop(one, None)
            self._sent.pop(one, None)

    def retry_soon(self) -> None:
        """There is a new generation, or the service answers again."""
        self._send_at, self._pause_s = 0.0, FIRST_PAUSE_S
        self._changed.notify_all()

    # --- do not hold `changed` -------------------------------------------------------------------

    def flush(self, timeout_s: float) -> bool:
        """Whether the group has everything. Gives up at the first try that does not work out."""
        if not self._sending.acquire(timeout=timeout_s):
            return False
        try:
            return self._send(timeout_s)
        finally:
            self._sending.release()

    def _send(self, timeout_s: float) -> bool:
        with self._changed:
            entries, identity = dict(self._waiting), self._identity()
        if not entries or identity is None:
            return not entries
        try:
            for label in sorted({entry.label for entry in entries.values()}, key=lambda one: one.batch):
                among = {one: entry for one, entry in entries.items() if entry.label == label}
                self._commit(identity, label, among, min(timeout_s, ANSWER_S))
        except REFUSALS as error:
            logger.info("a commit was refused: %s", error.message)
            self._later(refused=True)
        except RequestFailed as error:
            if is_transient(error):
                logger.warning("a commit will be tried again: %s", error.message)
                self._later(refused=False)
            else:
                self._fail(error)
        with self._changed:
            return not self._waiting

    def _commit(self, identity: Identity, label: QueryLabel, entries: Entries, timeout_s: float) -> None:
        offsets = {
            one: CommittedOffset(offset=entry.offset, topic_id=entry.topic_id, metadata=entry.note)
            for one, entry in entries.items()
        }
        try:
            self._calls.commit(identity, offsets, label, timeout_s)
        except (UnknownTopicOrPartition, UnknownTopicId) as error:
            if len(entries) > 1:
                for one, entry in entries.items():
                    self._commit(identity, label, {one: entry}, timeout_s)
                return
            logger.info("nothing to commit for any more: %s", error.message)
        with self._changed:
            self._pause_s = FIRST_PAUSE_S
            for one, entry in entries.items():
                if self._waiting.get(one) == entry:
                    del self._waiting[one]
                    self._sent[one] = entry
            self._changed.notify_all()

    def _later(self, *, refused: bool) -> None:
        with self._changed:
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            self._send_at = self._clock.boottime() + self._pause_s
            if refused:
                self._refused()
            self._changed.notify_all()

    def _fail(self, error: SluiceError) -> None:
        with self._changed:
            self.failure = error
            self._waiting.clear()
            self._changed.notify_all()
