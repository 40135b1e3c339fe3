"""Queries of one group that share a partition, crash, move it, lose commits and are reset: nothing is passed over."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.log_store.values import TopicPartition
from sluice.streaming.membership.offsets import CommittedOffset
from sluice.streaming.spark.reconcile import Progress, label_of, place

ONE, TOPIC_ID = TopicPartition("t", 0), "id"
QUERIES = ("a", "b")


@dataclass
class Query:
    """A checkpoint, and what a run of the query keeps in memory."""

    batch: int = 0
    position: int | None = None
    """By the checkpoint."""
    at: int | None = None
    """Where the run is; None while it does not own the partition."""
    unfinished: tuple[int, int] | None = None


class SharedPartition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queries = {name: Query() for name in QUERIES}
        self.owner: str | None = None
        self.commit: CommittedOffset | None = None
        self.base = 0
        """Where a reset, or the start of the log, put the group."""
        self.covered = 0
        """Read and finished by anybody since then, without a gap."""

    def _send(self, name: str, offset: int, batch: int, *, arrives: bool) -> None:
        if arrives:
            self.commit = CommittedOffset(offset=offset, topic_id=TOPIC_ID, query=name, batch=batch)

    def _take(self, name: str) -> None:
        query = self.queries[name]
        known = {} if query.position is None else {ONE: query.position}
        found = place(ONE, TOPIC_ID, Progress(name, query.batch, known, {"t": TOPIC_ID}), self.commit)
        query.at = self.base if found.offset is None else found.offset
        assert query.at <= self.covered, "records would be passed over"
        self._send(name, query.at, label_of(found.origin, query.batch), arrives=True)
        self.owner = name

    @precondition(lambda self: self.owner is None)
    @rule(name=st.sampled_from(QUERIES))
    def starts(self, name: str) -> None:
        """Replays what is unfinished, then joins."""
        query = self.queries[name]
        if query.unfinished is not None:
            self._finish(query)
        self._take(name)

    @precondition(lambda self: self.owner is not None)
    @rule(length=st.integers(1, 5))
    def plans(self, length: int) -> None:
        query = self.queries[self.owner or ""]
        if query.unfinished is None and query.at is not None:
            query.batch += 1
            query.unfinished = (query.at, query.at + length)
            query.position = query.at + length

    def _finish(self, query: Query) -> None:
        assert query.unfinished is not None
        start, end = query.unfinished
        query.unfinished = None
        if start <= self.covered:
            self.covered = max(self.covered, end)

    @precondition(lambda self: self.owner is not None and self.queries[self.owner].unfinished is not None)
    @rule(arrives=st.booleans())
    def finishes_and_commits(self, arrives: bool) -> None:
        name = self.owner or ""
        query = self.queries[name]
        self._finish(query)
        query.at = query.position
        assert query.at is not None
        self._send(name, query.at, query.batch, arrives=arrives)

    @precondition(lambda self: self.owner is not None)
    @rule()
    def crashes(self) -> None:
        """Also in the middle of a batch; the commit of the last finished one may be missing."""
        self.queries[self.owner or ""].at = None
        self.owner = None

    @precondition(lambda self: self.owner is not None and self.queries[self.owner].unfinished is None)
    @rule()
    def moves(self) -> None:
        """The other member takes over between two batches; it was not away, so it has nothing to replay."""
        other = next(name for name in QUERIES if name != self.owner)
        self.queries[self.owner or ""].at = None
        if self.queries[other].unfinished is not None:
            self._finish(self.queries[other])
        self._take(other)

    @rule(share=st.sampled_from((0.0, 0.5, 1.0)))
    def reset(self, share: float) -> None:
        """Only while nobody is in the group."""
        if self.owner is not None:
            self.crashes()
        self.base = self.covered = int(share * self.covered)
        self.commit = CommittedOffset(offset=self.base, topic_id=TOPIC_ID)

    @precondition(lambda self: self.owner is None and self.commit is not None and self.commit.query is None)
    @rule(name=st.sampled_from(QUERIES))
    def starts_after_a_reset(self, name: str) -> None:
        query = self.queries[name]
        if query.unfinished is not None:
            self._finish(query)
        self._take(name)
        assert query.at == self.base, "the reset did not take effect"

    @precondition(lambda self: self.owner is not None)
    @rule()
    def restarts_with_every_commit_there(self) -> None:
        """Alone and in order a query repeats nothing: it goes on exactly where it was."""
        name = self.owner or ""
        query = self.queries[name]
        if query.unfinished is not None:
            self._finish(query)
            query.at = query.position
        before = query.at
        self._take(name)
        assert query.at == before

    @invariant()
    def the_owner_is_never_ahead(self) -> None:
        if self.owner is not None:
            at = self.queries[self.owner].at
            assert at is not None
            assert at <= self.covered


TestSharedPartition = SharedPartition.TestCase
