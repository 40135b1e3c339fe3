"""The groups of one partition of `__consumer_offsets`: events in, effects carried out, outcomes of writes taken in.

One lock guards them, and nobody waits under it: writes are appended in the order of the decisions behind them, and
their outcomes are queued. Whoever lets go of the lock looks after that queue, so an outcome that meets a taken lock is
not lost, and a commit thread never waits for anybody. Answers are given when the lock is free again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from sluice.log_store.errors import MessageTooLarge, RequestTimedOut, SluiceError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.context import Context, Waiter
from sluice.streaming.coordinator.entry import GroupEntry
from sluice.streaming.coordinator.records import Committed, encode_committed, group_key, offset_key
from sluice.streaming.coordinator.replay import Replay, StoredGroup
from sluice.streaming.coordinator.writer import OffsetsWriter, Outcome
from sluice.streaming.groups import (
    Event,
    GroupDead,
    Log,
    Persist,
    Reply,
    Response,
    encode_metadata,
    new_group,
    next_deadline,
    step,
)
from sluice.streaming.groups.events import Persisted, PersistFailed, Restore, Tick

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Later = Callable[[Callable[[], None]], object]
"""Runs something soon, on the caller's own terms."""
MAX_GROUP_BYTES = 16 << 20
"""One record with all members of a group. It is written in each rebalance, and must fit into the write-ahead log."""
DOUBT_S = 1.0
"""How long to wait before the log is asked what became of a write."""


class GroupTable:
    def __init__(self, partition: PartitionLog, context: Context) -> None:
        self.partition = partition
        self.context = context
        self.loaded = False
        self.groups: dict[str, GroupEntry] = {}
        """Only touched inside `run`."""
        self._lock = threading.Lock()
        self._writer = OffsetsWriter(partition, self._on_settled)
        self._outcomes: deque[Callable[[], None]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._applied_to = 0
        self._doubt_from: int | None = None
        """From where on the log may hold writes whose outcome was not told."""

    # --- the lock ------------------------------------------------------------------------------

    def run(self, work: Callable[[], _T], later: Later | None = None) -> _T:
        """Do something with the groups, then write what it asked for: at once, or together with what comes `later`."""
        try:
            with self._lock:
                waiting = len(self._writer)
                try:
                    return work()
                finally:
                    self._flush_locked(later, grew=len(self._writer) > waiting)
        finally:
            self._settle()

    def _flush_locked(self, later: Later | None, *, grew: bool) -> None:
        """Who only looked, or sent a heartbeat, does not spoil the gathering of those who wait for company."""
        if later is None:
            if grew or not self._writer.deferred:
                self._writer.flush()
        elif grew and not self._writer.deferred:
            self._writer.deferred = True
            later(self.flush)

    def flush(self) -> None:
        """Write what has been gathered."""
        with self._lock:
            self._writer.flush()
        self._settle()

    def _settle(self) -> None:
        while self._outcomes and self._lock.acquire(blocking=False):
            try:
                while self._outcomes:
                    self._outcomes.popleft()()
                self._writer.flush()
            finally:
                self._lock.release()
        while self._answers:
            try:
                answer = self._answers.popleft()
            except IndexError:
                return  # another thread was faster
            answer()

    def answer(self, call: Callable[[], None]) -> None:
        """Once the lock is free."""
        self._answers.append(call)

    # --- events --------------------------------------------------------------------------------

    def new(self, group_id: str) -> GroupEntry:
        entry = self.groups[group_id] = GroupEntry(new_group(group_id, self.context.now(), self.context.rules))
        return entry

    def find_or_new(self, group_id: str) -> GroupEntry:
        return self.groups.get(group_id) or self.new(group_id)

    def step(self, entry: GroupEntry, event: Event) -> Response | None:
        stepped = step(entry.group, event, self.context.now())
        entry.group = stepped.group
        for effect in stepped.effects:
            match effect:
                case Reply(token, response):
                    self._reply(token, response)
                case Persist():
                    self._persist(entry, effect)
                case GroupDead():
                    self._forget(entry)
                case Log(text, level):
                    _log.log(level, "%s", text)
        self._watch(entry)
        if entry.is_pristine:
            self._forget(entry)
        return stepped.reply

    def _reply(self, token: object, response: Response) -> None:
        if isinstance(token, Waiter):
            self.answer(partial(token.answer, response))

    def _forget(self, entry: GroupEntry) -> None:
        if self.groups.get(entry.group.group_id) is entry:
            del self.groups[entry.group.group_id]

    def _watch(self, entry: GroupEntry) -> None:
        """A deadline that moves away, as with every heartbeat, leaves the timer as it is: when it rings, look again."""
        deadline = next_deadline(entry.group)
        if deadline is not None and (entry.wake is None or deadline < entry.wake):
            entry.wake = deadline
            self.context.timers.at(deadline, partial(self._tick, entry, deadline))

    def _tick(self, entry: GroupEntry, alarm: int) -> None:
        def work() -> None:
            if entry.wake != alarm:
                return  # an earlier alarm was set since, and has looked
            entry.wake = None
            deadline = next_deadline(entry.group)
            if deadline is not None and deadline <= self.context.now().boot_ms:
                self.step(entry, Tick())
            else:
                self._watch(entry)

        self.run(work)

    # --- writes --------------------------------------------------------------------------------

    def _persist(self, entry: GroupEntry, effect: Persist) -> None:
        group_id = entry.group.group_id
        if effect.metadata is not None:
            value = encode_metadata(effect.metadata)
            outcome: Outcome = partial(self._persisted, entry, effect.ticket, frozenset())
            if len(value) > MAX_GROUP_BYTES:
                why = f"the group needs {len(value)} bytes; at most {MAX_GROUP_BYTES} can be stored"
                self._outcomes.append(partial(outcome, MessageTooLarge(why, limit=MAX_GROUP_BYTES)))
            else:
                self._writer.add([(group_key(group_id), value)], outcome)
            return
        keys = frozenset(entry.stored())
        tombstones = [(group_key(group_id), None), *((offset_key(group_id, where), None) for where in keys)]
        entry.begin(keys)
        self._writer.add(tombstones, partial(self._persisted, entry, effect.ticket, keys))

    def _persisted(
        self, entry: GroupEntry, ticket: int, deleted: frozenset[TopicPartition], error: SluiceError | None
    ) -> None:
        entry.end(deleted)
        if error is not None:
            self.step(entry, PersistFailed(ticket, error))
            return
        for where in deleted:
            entry.take(where, None)
        self.step(entry, Persisted(ticket))

    def write_offsets(
        self, entry: GroupEntry, changes: Mapping[TopicPartition, Committed | None], outcome: Outcome
    ) -> None:
        """Commit or, with None, delete. They can be seen once they are durable; then `outcome` is told."""
        group_id, interval_ms = entry.group.group_id, self.context.settings.lag_sample_ms
        rows = [
            (offset_key(group_id, at), None if new is None else encode_committed(new)) for at, new in changes.items()
        ]
        entry.begin(changes)

        def written(error: SluiceError | None) -> None:
            entry.end(changes)
            if error is None:
                for where, new in changes.items():
                    entry.take(where, new)
                    if new is not None:
                        entry.sample(where, new, interval_ms, self.context.high_watermark)
            outcome(error)
            if entry.is_pristine:
                self._forget(entry)

        self._writer.add(rows, written)

    def _on_settled(self, outcomes: Sequence[Outcome], error: SluiceError | None, end: int) -> None:
        """From a commit thread, or from inside `run`."""
        self._outcomes.append(partial(self._take_outcomes, outcomes, error, end))
        self._settle()

    def _take_outcomes(self, outcomes: Sequence[Outcome], error: SluiceError | None, end: int) -> None:
        self._writer.in_flight -= 1
        if error is None:
            self._applied_to = max(self._applied_to, end)
        elif isinstance(error, RequestTimedOut) and self._doubt_from is None:
            self._doubt_from = self._applied_to
            self.context.later(DOUBT_S, self.resolve_doubt)
        for outcome in outcomes:
            try:
                outcome(error)
            except Exception:  # noqa: BLE001 - what goes wrong in one group must not keep the others waiting
                _log.exception("the outcome of a write could not be taken in")

    # --- from the log --------------------------------------------------------------------------

    def load(self) -> None:
        """Take over what is stored. Every member has a full session from now on."""
        replay = Replay().take(PartitionReads(self.partition).scan(readahead=0))
        stored = replay.groups()

        def work() -> None:
            if not self.loaded:
                for group_id, found in stored.items():
                    self._restore(self.new(group_id), found)
                self._applied_to = replay.end
                self.loaded = True

        self.run(work)

    def _restore(self, entry: GroupEntry, stored: StoredGroup) -> None:
        entry.offsets = stored.offsets
        for where, committed in stored.offsets.items():
            entry.sample(where, committed, 0, lambda _topic, _partition: None)
        if stored.metadata is not None:
            self.step(entry, Restore(stored.metadata))

    def catch_up(self) -> None:
        """A claim may have met what the last leader wrote after the groups were loaded."""
        if self.partition.high_watermark > self._applied_to:
            self._doubt_from = self._applied_to
            self.resolve_doubt()

    def resolve_doubt(self) -> None:
        """A write timed out, but may be in the log by now. What a restart would find must be what is seen here."""
        start = self._doubt_from
        if start is None or self.context.log.fenced:
            return
        replay = Replay(deleted=True)
        if self.partition.idle:
            reads = PartitionReads(self.partition)
            replay.end = max(start, reads.earliest().offset)
            replay.take(reads.scan(replay.end, readahead=0))
        if not self.run(lambda: self._take_replayed(replay)):
            self.context.later(DOUBT_S, self.resolve_doubt)

    def _take_replayed(self, replay: Replay) -> bool:
        """False: something is still on its way, or newer than what was read."""
        if self._writer.in_flight or self._applied_to > replay.end or not self.partition.idle:
            return False
        for group_id, offsets in replay.offsets().items():
            entry = self.find_or_new(group_id)
            for where, committed in offsets.items():
                entry.take(where, committed)
            if entry.is_pristine:
                self._forget(entry)
        self._applied_to, self._doubt_from = replay.end, None
        return True
