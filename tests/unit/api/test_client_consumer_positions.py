"""Where a consumer stands: nothing skipped, nothing committed that was not handed out."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.api.client_consumer_positions import Positions, Question
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from tests.counts import HYPOTHESIS_EXAMPLES, STATEFUL_STEPS

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
ALL = [P0, P1, P2]


def placed(offset: int = 0, *, committed: bool = False) -> Positions:
    positions = Positions()
    positions.add([P0])
    positions.place(P0, offset, committed=committed)
    return positions


def test_only_what_earlier_polls_handed_out_is_committed_unasked():
    positions = placed(5, committed=True)
    positions.poll_begins()
    positions.hand_out(P0, 9)
    assert positions.to_commit() == {}
    assert positions.current() == {P0: 9}
    positions.poll_begins()
    assert positions.to_commit() == {P0: 9}
    positions.committed({P0: 9})
    assert positions.to_commit() == {}


def test_a_position_of_the_reset_rule_is_committed_so_that_it_stays():
    assert placed(7, committed=False).to_commit() == {P0: 7}


def test_what_stays_assigned_keeps_its_position():
    positions = placed(3)
    change = positions.change([P0, P1])
    assert (change.revoked, change.added) == ((), (P1,))
    positions.add([P0, P1])
    assert (positions.position(P0), positions.unplaced()) == (3, (P1,))
    assert positions.change([P1]).revoked == (P0,)


@pytest.mark.parametrize("move", ["seek", "drop", "fall_out", "again"])
def test_an_answer_to_an_older_question_is_not_taken(move):
    positions = placed()
    question = positions.question(P0)
    assert question is not None
    assert positions.accepts(question)
    if move == "seek":
        positions.seek(P0, 0)
    elif move == "fall_out":
        positions.fall_out(question)
        assert positions.fell_out(P0)
        assert positions.unplaced() == (P0,)
    else:
        positions.drop([P0])
        if move == "again":
            positions.add([P0])
            positions.place(P0, 0, committed=True)
    assert not positions.accepts(question)


def test_paused_and_unplaced_partitions_are_not_fetched():
    positions = placed()
    positions.add([P1])
    assert positions.question(P1) is None
    positions.pause([P0], True)
    assert positions.question(P0) is None
    assert positions.paused == (P0,)
    positions.pause([P0], False)
    assert positions.question(P0) == Question(P0, 0, positions.version(P0))


def test_a_loop_that_is_left_hands_the_rest_out_again():
    positions = placed()
    question = positions.question(P0)
    assert question is not None
    positions.hand_out(P0, 10)
    assert positions.reach(question, 4)
    assert positions.current() == {P0: 4}
    positions.rewind()
    assert positions.current() == {P0: 4}
    assert not positions.accepts(question)
    assert not positions.reach(question, 5)


def test_a_loop_that_ends_leaves_all_of_it_handed_out():
    positions = placed()
    question = positions.question(P0)
    assert question is not None
    positions.hand_out(P0, 10)
    positions.reach(question, 4)
    positions.reach(question, None)
    positions.rewind()
    assert positions.current() == {P0: 10}


def test_mistakes_are_named():
    positions = placed()
    with pytest.raises(InvalidRequest, match="t-1 is not assigned"):
        positions.seek(P1, 0)
    with pytest.raises(InvalidRequest, match="begin at 0"):
        positions.seek(P0, -1)
    with pytest.raises(ValueError, match="cannot hand out"):
        placed(5).hand_out(P0, 4)


class Consuming(RuleBasedStateMachine):
    """Against a model: per partition the offsets that were handed out since it was placed or moved."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.at: dict[TopicPartition, int | None] = {}
        self.finished: dict[TopicPartition, int | None] = {}
        self.questions: list[Question] = []
        self.stale: set[Question] = set()

    def _moved(self, one: TopicPartition) -> None:
        self.stale.update(q for q in self.questions if q.partition == one)

    @rule(wanted=st.sets(st.sampled_from(ALL)))
    def reassign(self, wanted: set[TopicPartition]) -> None:
        change = self.positions.change(wanted)
        assert set(change.revoked) == set(self.at) - wanted
        assert set(change.added) == wanted - set(self.at)
        self.positions.drop(change.revoked)
        self.positions.add(change.added)
        for one in change.revoked:
            self._moved(one)
            del self.at[one], self.finished[one]
        for one in change.added:
            self.at[one] = self.finished[one] = None

    @precondition(lambda self: self.at)
    @rule(data=st.data(), offset=st.integers(0, 50), how=st.sampled_from(["seek", "place", "committed"]))
    def move(self, data: st.DataObject, offset: int, how: str) -> None:
        one = data.draw(st.sampled_from(list(self.at)))
        if how == "seek":
            self.positions.seek(one, offset)
        else:
            self.positions.place(one, offset, committed=how == "committed")
        self._moved(one)
        self.at[one] = self.finished[one] = offset

    @precondition(lambda self: self.at)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(list(self.at)))
        question = self.positions.question(one)
        assert (question is None) == (self.at[one] is None)
        if question is not None:
            assert question.offset == self.at[one]
            self.questions.append(question)

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), count=st.integers(1, 10))
    def answer(self, data: st.DataObject, count: int) -> None:
        question = data.draw(st.sampled_from(self.questions))
        assert self.positions.accepts(question) == (question not in self.stale)
        position = self.at.get(question.partition)
        if question not in self.stale and position is not None:
            self.positions.hand_out(question.partition, position + count)
            self.at[question.partition] = position + count

    @rule()
    def poll(self) -> None:
        self.positions.poll_begins()
        self.finished = dict(self.at)

    @rule()
    def commit_unasked(self) -> None:
        offsets = self.positions.to_commit()
        assert all(self.finished[one] == offset for one, offset in offsets.items())
        self.positions.committed(offsets)
        assert self.positions.to_commit() == {}

    @invariant()
    def knows_where_it_stands(self) -> None:
        assert self.positions.current() == {one: at for one, at in self.at.items() if at is not None}
        assert set(self.positions.unplaced()) == {one for one, at in self.at.items() if at is None}


TestConsuming = Consuming.TestCase
TestConsuming.settings = settings(max_examples=HYPOTHESIS_EXAMPLES, stateful_step_count=STATEFUL_STEPS, deadline=None)
