"""What was there when a group began, by what its commits note."""

from __future__ import annotations

import pytest

from sluice.streaming.membership.offsets import CommittedOffset
from sluice.streaming.spark.group_beginnings import Beginning

NOBODY = Beginning.of([])


def commit(topic_id: str = "a", at_ms: int = 1_000, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(offset=1, topic_id=topic_id, commit_timestamp_ms=at_ms, metadata=metadata)


def test_a_group_without_commits_begins_now_with_all_that_is_seen() -> None:
    assert NOBODY.partitions_then("a", created_ms=9_999, partitions=3, resumed=False) == 3


def test_a_topic_that_is_younger_than_the_group_was_not_there() -> None:
    group = Beginning.of([commit(at_ms=5_000), commit("b", at_ms=1_000)])
    assert group.partitions_then("c", created_ms=1_001, partitions=3, resumed=False) == 0
    assert group.partitions_then("c", created_ms=1_000, partitions=3, resumed=False) == 3


def test_what_is_noted_outlives_later_commits() -> None:
    first = NOBODY.note(3, now_ms=100)
    later = Beginning.of([commit(at_ms=9_000, metadata=first)])
    assert later.note(2, now_ms=10_000) == '{"partitions":2,"since":100}'
    assert later.partitions_then("a", created_ms=50, partitions=5, resumed=True) == 3
    assert later.partitions_then("b", created_ms=101, partitions=5, resumed=False) == 0


def test_members_that_saw_different_counts_pass_nothing_over() -> None:
    group = Beginning.of([commit(metadata=NOBODY.note(count, now_ms=1)) for count in (4, 3, 5)])
    assert group.partitions_then("a", created_ms=0, partitions=9, resumed=False) == 3


def test_a_query_that_goes_on_knows_a_topic_without_commits_to_be_new() -> None:
    group = Beginning.of([commit("b", at_ms=5_000)])
    assert group.partitions_then("a", created_ms=0, partitions=3, resumed=True) == 0
    assert group.partitions_then("b", created_ms=0, partitions=3, resumed=True) == 3


@pytest.mark.parametrize(
    "metadata", ["", "mine", "[1]", "null", '{"partitions":"3","since":true}', '{"partitions":null}']
)
def test_the_metadata_of_others_is_theirs(metadata: str) -> None:
    group = Beginning.of([commit(metadata=metadata)])
    assert group.since_ms == 1_000
    assert group.partitions_then("a", created_ms=0, partitions=3, resumed=False) == 3
