"""The producer windows against a naive reference that keeps every batch ever appended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.log_store.errors import InvalidProducerEpoch, InvalidRequest, OutOfOrderSequence, SluiceError
from sluice.log_store.producers import (
    MAX_SEQUENCE,
    WINDOW,
    BelowWindow,
    ProducerWindows,
    Repeat,
    TopicWindows,
    null_key_start,
)
from sluice.log_store.values import ProducerStamp

EXPIRATION = 1000


# --- partition mode ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Appended:
    stamp: ProducerStamp
    count: int
    offset: int
    ms: int

    @property
    def next_sequence(self) -> int:
        return (self.stamp.sequence + self.count) % (MAX_SEQUENCE + 1)


@dataclass
class NaiveProducer:
    """All batches of one producer since it was last forgotten."""

    batches: list[Appended] = field(default_factory=list)

    def judge(self, stamp: ProducerStamp, count: int) -> Appended | type[SluiceError] | None:
        if not self.batches:
            return None
        newest = self.batches[-1]
        recent = [b for b in self.batches if b.stamp.epoch == newest.stamp.epoch][-WINDOW:]
        for old in recent:
            if (old.stamp, old.count) == (stamp, count):
                return old
        if stamp.epoch < newest.stamp.epoch:
            return InvalidProducerEpoch
        expected = 0 if stamp.epoch > newest.stamp.epoch else newest.next_sequence
        return None if stamp.sequence == expected else OutOfOrderSequence


Send = tuple[int, int, str, int, int, int]

sends = st.tuples(
    st.sampled_from([0, 2]),  # producer
    st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]),  # epoch, against the known one
    st.sampled_from(["next", "next", "next", "repeat", "overlap", "any"]),
    st.integers(1, 8),  # how far back a repeat reaches
    st.sampled_from([1, 1, 2, 7]),  # records
    st.sampled_from([0, 1, 5, MAX_SEQUENCE - 8, MAX_SEQUENCE - 1, MAX_SEQUENCE]),
)


class PartitionModeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.windows = ProducerWindows(EXPIRATION)
        self.naive: dict[int, NaiveProducer] = {}
        self.log: list[Appended] = []
        self.snapshot: tuple[int, str] = (0, "[]")
        self.end, self.now, self.expired = 0, 0, False

    # One step sends several batches: deep states, few steps.
    @rule(sends=st.lists(sends, min_size=1, max_size=8))
    def send_some(self, sends: list[Send]) -> None:
        for one in sends:
            self.send(*one)

    def send(self, pid: int, epoch: int, how: str, back: int, count: int, any_sequence: int) -> None:
        naive = self.naive.setdefault(pid, NaiveProducer())
        sequence, known_epoch = any_sequence, 0
        if naive.batches:
            newest, old = naive.batches[-1], naive.batches[-min(back, len(naive.batches))]
            known_epoch = newest.stamp.epoch
            if how == "next":
                sequence = 0 if epoch > 0 else newest.next_sequence
            elif how in ("repeat", "overlap"):
                sequence, count = old.stamp.sequence, old.count + (how == "overlap")
        stamp = ProducerStamp(pid, max(0, known_epoch + epoch), sequence)
        self.compare(naive, stamp, count)

    def compare(self, naive: NaiveProducer, stamp: ProducerStamp, count: int) -> None:
        expected = naive.judge(stamp, count)
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.windows.check(stamp, count, self.now)
            return
        entry = self.windows.check(stamp, count, self.now)
        if entry is not None:
            assert isinstance(expected, Appended)
            assert (entry.base_offset, entry.append_ms) == (expected.offset, expected.ms)
            return
        assert expected is None
        appended = Appended(stamp, count, self.end, self.now)
        self.windows.record(stamp, count, self.end, self.now)
        naive.batches.append(appended)
        self.log.append(appended)
        self.end += count

    @rule(ms=st.sampled_from([0, 1, 400, 999, 1000]))
    def expire(self, ms: int) -> None:
        self.now += ms
        due = [p for p, n in self.naive.items() if n.batches and self.now - n.batches[-1].ms >= EXPIRATION]
        assert self.windows.expire(self.now) == len(due)
        for pid in due:
            del self.naive[pid]
            self.expired = True

    @rule(sequence=st.integers(0, MAX_SEQUENCE), count=st.integers(1, 3))
    def accept_and_withdraw(self, sequence: int, count: int) -> None:
        window = self.windows.get(0)
        if window is not None:
            sequence = (window.entries[-1].last_sequence + 1) % (MAX_SEQUENCE + 1)
        stamp = ProducerStamp(0, window.epoch if window else 0, sequence)
        twin = self.windows.copy()
        before = self.windows.record(stamp, count, self.end, self.now)
        self.windows.forget(stamp, self.end, before)
        assert self.windows == twin

    @rule()
    def take_snapshot(self) -> None:
        self.snapshot = (len(self.log), json.dumps(self.windows.to_json()))
        self.expired = False

    @rule()
    def restart_from_json(self) -> None:
        self.windows = ProducerWindows.from_json(json.loads(json.dumps(self.windows.to_json())), EXPIRATION)

    @precondition(lambda self: not self.expired)
    @rule(overlap=st.integers(0, 10))
    def recover(self, overlap: int) -> None:
        """Snapshot, then the log from there or from somewhat before it: the same state."""
        position, text = self.snapshot
        recovered = ProducerWindows.from_json(json.loads(text), EXPIRATION)
        known = set(recovered)
        for i in range(max(0, position - overlap), len(self.log)):
            old = self.log[i]
            # What had expired before the snapshot comes back from the overlap, and would expire again.
            if i >= position or old.stamp.producer_id in known:
                recovered.record(old.stamp, old.count, old.offset, old.ms)
        assert recovered == self.windows

    @invariant()
    def full_replay_knows_at_least_what_is_live(self) -> None:
        replayed = ProducerWindows(EXPIRATION)
        for old in self.log:
            replayed.record(old.stamp, old.count, old.offset, old.ms)
        for pid in self.windows:
            live, other = self.windows.get(pid), replayed.get(pid)
            assert live is not None
            assert other is not None
            assert (other.epoch, other.last_ms) == (live.epoch, live.last_ms)
            assert other.entries[-len(live.entries) :] == live.entries
            steps = pairwise(other.entries)
            assert all(b.sequence == (a.last_sequence + 1) % (MAX_SEQUENCE + 1) for a, b in steps)


TestPartitionMode = PartitionModeMachine.TestCase


# --- topic mode --------------------------------------------------------------------------------

PID = 1
ALL = 99


@dataclass
class Body:
    """A request as its client keeps it for repeats: a record count per placement slot."""

    crc: int
    count: int

    def parts(self, sequence: int, n: int) -> dict[int, int]:
        """Null keys, one after the other from the start that R-9 fixes."""
        start = null_key_start(PID, sequence, n)
        parts: dict[int, int] = {}
        for i in range(self.count):
            partition = (start + i) % n
            parts[partition] = parts.get(partition, 0) + 1
        return parts


limits = st.sampled_from([1, 2, ALL, ALL])
rarely = st.sampled_from([False, False, False, True])  # what empties the windows


class TopicModeMachine(RuleBasedStateMachine):
    """A topic whose service may die, or lose a partition, in the middle of any request."""

    def __init__(self) -> None:
        super().__init__()
        self.n = 2
        self.windows: dict[int, ProducerWindows] = {p: ProducerWindows(EXPIRATION) for p in range(2)}
        self.topic = TopicWindows()
        self.ends = [0, 0]
        self.log: list[tuple[int, ProducerStamp, int, int, int]] = []
        self.epoch, self.now = 0, 0
        self.bodies: dict[int, Body] = {}
        """Of the present epoch, by sequence."""
        self.placed: dict[int, dict[int, tuple[int, int]]] = {}
        """Naive truth: every part appended in this epoch, by sequence and partition."""
        self.first_n: dict[int, int] = {}

    @property
    def last(self) -> int:
        return max(self.placed, default=-1)

    def deliver(self, sequence: int, limit: int) -> None:
        """One produce request of which only the first `limit` partitions succeed."""
        body = self.bodies[sequence]
        stamp = ProducerStamp(PID, self.epoch, sequence, self.n, body.crc, body.count)
        verdict = self.topic.check(stamp)
        if isinstance(verdict, BelowWindow):
            assert sequence <= self.last - WINDOW
            return
        done: dict[int, tuple[int, int]] = {}
        if isinstance(verdict, Repeat):
            assert verdict.entry.parts == self.placed.get(sequence, {})
            stamp, done = verdict.entry.restamp(stamp), dict(verdict.entry.parts)
            assert stamp.partitions == self.first_n.get(sequence, self.n)
        else:
            assert sequence == self.last + 1 or not self.placed
        wanted = body.parts(sequence, stamp.partitions)
        for partition, count in list(wanted.items())[:limit]:
            entry = self.windows[partition].check(stamp, count, self.now, completing=isinstance(verdict, Repeat))
            if partition in done:
                assert entry is not None
                assert (entry.base_offset, entry.count) == done[partition]
                continue
            assert entry is None
            self.append(partition, stamp, count)

    def append(self, partition: int, stamp: ProducerStamp, count: int) -> None:
        assert partition not in self.placed.get(stamp.sequence, {}), "appended twice"
        offset = self.ends[partition]
        self.windows[partition].record(stamp, count, offset, self.now)
        self.topic.record(stamp, partition, offset, count)
        self.placed.setdefault(stamp.sequence, {})[partition] = (offset, count)
        self.first_n.setdefault(stamp.sequence, stamp.partitions)
        self.log.append((partition, stamp, count, offset, self.now))
        self.ends[partition] += count

    # Mostly whole requests that reach every partition: only full windows have something to lose.
    @rule(requests=st.lists(st.tuples(st.sampled_from([1, 2, 6, 6]), limits), min_size=1, max_size=7))
    def fresh(self, requests: list[tuple[int, int]]) -> None:
        for count, limit in requests:
            sequence = self.last + 1
            self.bodies[sequence] = Body(sequence, count)
            self.deliver(sequence, limit)

    @precondition(lambda self: self.placed)
    @rule(repeats=st.lists(st.tuples(st.integers(0, 7), limits), min_size=1, max_size=5))
    def repeat(self, repeats: list[tuple[int, int]]) -> None:
        for back, limit in repeats:
            sequence = self.last - back
            if sequence >= min(self.placed):
                self.deliver(sequence, limit)
                if limit == ALL and back < WINDOW and sequence in self.placed:
                    wanted = self.bodies[sequence].parts(sequence, self.first_n[sequence])
                    assert {p: count for p, (_, count) in self.placed[sequence].items()} == wanted

    @invariant()
    def other_bodies_gaps_and_predecessors_are_refused(self) -> None:
        if not self.placed:
            return
        with pytest.raises(InvalidRequest):
            self.topic.check(ProducerStamp(PID, self.epoch, self.last, self.n, 2**32 - 1, 1))
        with pytest.raises(OutOfOrderSequence):
            self.topic.check(ProducerStamp(PID, self.epoch, self.last + 2, self.n, 0, 1))
        if self.epoch:
            with pytest.raises(InvalidProducerEpoch):
                self.topic.check(ProducerStamp(PID, self.epoch - 1, self.last + 1, self.n, 0, 1))

    @precondition(lambda self: self.placed)
    @rule()
    def request_fails_while_the_next_succeeds(self) -> None:
        """Two in flight on two partitions; the first one's partition fails before the WAL."""
        lost, next_one = self.last + 1, self.last + 2
        self.bodies[lost] = self.bodies[next_one] = Body(7, 1)
        (partition,) = Body(7, 1).parts(lost, self.n)
        if partition in Body(7, 1).parts(next_one, self.n):
            return
        stamp = ProducerStamp(PID, self.epoch, lost, self.n, 7, 1)
        before = self.windows[partition].record(stamp, 1, self.ends[partition], self.now)
        self.topic.record(stamp, partition, self.ends[partition], 1)
        self.placed[lost] = {}
        self.deliver(next_one, 1)
        del self.placed[lost]
        self.windows[partition].forget(stamp, self.ends[partition], before)
        self.topic = TopicWindows.merge(self.windows)

    @rule(really=rarely)
    def bump_epoch(self, really: bool) -> None:
        if self.placed and really:
            self.epoch += 1
            self.bodies, self.placed, self.first_n = {}, {}, {}

    @precondition(lambda self: self.n < 5)
    @rule(count=st.integers(2, 6))
    def grow_between_two_tries(self, count: int) -> None:
        self.fresh([(count, 1)])
        self.grow()
        self.repeat([(0, ALL)])

    def grow(self) -> None:
        self.windows[self.n] = ProducerWindows(EXPIRATION)
        self.ends.append(0)
        self.n += 1

    @rule(overlap=st.integers(0, 20))
    def restart(self, overlap: int) -> None:
        """From the snapshot and an overlapping piece of the log, and from the log alone: the same state."""
        rebuilt = {p: ProducerWindows(EXPIRATION) for p in range(self.n)}
        for partition, stamp, count, offset, ms in self.log:
            rebuilt[partition].record(stamp, count, offset, ms)
        assert rebuilt == self.windows
        revived = {
            p: ProducerWindows.from_json(json.loads(json.dumps(w.to_json())), EXPIRATION)
            for p, w in self.windows.items()
        }
        for partition, stamp, count, offset, ms in self.log[-overlap:] if overlap else ():
            revived[partition].record(stamp, count, offset, ms)
        assert revived == self.windows
        self.windows = revived
        self.topic = TopicWindows.merge(self.windows)

    @rule(ms=st.sampled_from([0, 1, 300, 600, 1000]))
    def expire_together(self, ms: int) -> None:
        self.now += ms
        keep = frozenset[int]().union(*(w.active(self.now) for w in self.windows.values()))
        gone = sum(w.expire(self.now, keep) for w in self.windows.values())
        self.topic = TopicWindows.merge(self.windows)
        if gone:
            assert not any(len(w) for w in self.windows.values()), "forgotten here, known there"
            self.log = []
            self.bodies, self.placed, self.first_n = {}, {}, {}

    @invariant()
    def view_of_the_topic_is_the_merge_of_its_partitions(self) -> None:
        assert TopicWindows.merge(self.windows) == self.topic


TestTopicMode = TopicModeMachine.TestCase


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(1, 5000))
def test_null_key_start_is_a_partition(producer_id: int, sequence: int, n: int) -> None:
    assert 0 <= null_key_start(producer_id, sequence, n) < n
