"""Checkpoint against commit, row by row of the table in docs/spark-groups.md."""

from __future__ import annotations

import pytest

from sluice.log_store.values import OffsetRange, TopicPartition
from sluice.streaming.membership.offsets import CommittedOffset
from sluice.streaming.spark.offsets import SourceOffset
from sluice.streaming.spark.reconcile import Origin, Place, Progress, label_of, place

ONE = TopicPartition("t", 0)
CHECKPOINT = Progress("q", 7, {ONE: 300}, {"t": "id"})


def commit(offset: int = 280, topic_id: str = "id", query: str | None = "q", batch: int | None = 7) -> CommittedOffset:
    return CommittedOffset(offset=offset, topic_id=topic_id, query=query, batch=batch)


@pytest.mark.parametrize("batch", [0, 6, 7])
def test_the_checkpoint_wins_over_an_older_commit_of_the_same_query(batch: int) -> None:
    assert place(ONE, "id", CHECKPOINT, commit(batch=batch)) == Place(Origin.CHECKPOINT, 300)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(commit(100, query=None, batch=None), id="a reset"),
        pytest.param(commit(500, query="other", batch=3), id="another member, which has less batches"),
        pytest.param(commit(500, query="other", batch=9), id="another member"),
        pytest.param(commit(900, batch=8), id="a batch that the checkpoint has not: an old copy of it"),
        pytest.param(commit(100, batch=None), id="no batch"),
    ],
)
def test_any_other_commit_wins(other: CommittedOffset) -> None:
    assert place(ONE, "id", CHECKPOINT, other) == Place(Origin.COMMIT, other.offset)


def test_a_commit_wins_where_the_checkpoint_has_no_position() -> None:
    assert place(TopicPartition("t", 1), "id", CHECKPOINT, commit()) == Place(Origin.COMMIT, 280)


def test_without_a_commit_nothing_that_was_not_read_is_passed_over() -> None:
    assert place(ONE, "id", CHECKPOINT, None) == Place(Origin.CHECKPOINT, 300)
    assert place(TopicPartition("t", 1), "id", CHECKPOINT, None) == Place(Origin.NEITHER, None)


def test_neither_means_anything_for_a_topic_that_was_made_anew() -> None:
    """R-8"""
    assert place(ONE, "new", CHECKPOINT, commit()) == Place(Origin.NEITHER, None)
    assert place(ONE, "new", CHECKPOINT, commit(5, topic_id="new")) == Place(Origin.COMMIT, 5)
    assert place(ONE, "id", CHECKPOINT, commit(5, topic_id="old")) == Place(Origin.CHECKPOINT, 300)


def test_a_beginning_that_the_checkpoint_does_not_have_is_labelled_with_the_next_batch() -> None:
    assert label_of(Origin.CHECKPOINT, 7) == 7
    assert label_of(Origin.COMMIT, 7) == label_of(Origin.NEITHER, 7) == 8


def test_progress_of_an_offset() -> None:
    ranges, ids = {ONE: OffsetRange(5, 9)}, {"t": "id"}
    stamped = SourceOffset(ranges, ids, {"query": "q", "batch": 4, "generation": 2})
    assert Progress.of(stamped, "new") == Progress("q", 4, {ONE: 9}, ids)
    # A checkpoint from before the query was in a group.
    assert Progress.of(SourceOffset(ranges, ids), "new") == Progress("new", 0, {ONE: 9}, ids)


def test_a_reset_holds_through_a_crash_right_after_the_restart() -> None:
    """The query said where it begins, and crashed before the next batch was in its checkpoint."""
    found = place(ONE, "id", CHECKPOINT, commit(100, query=None, batch=None))
    said = commit(100, batch=label_of(found.origin, CHECKPOINT.batch))
    assert place(ONE, "id", CHECKPOINT, said) == Place(Origin.COMMIT, 100)
    later = Progress("q", 8, {ONE: 150}, {"t": "id"})
    assert place(ONE, "id", later, said) == Place(Origin.CHECKPOINT, 150)
