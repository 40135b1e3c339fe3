"""Where a query in a group goes on: checkpoint against commit, the table of docs/spark-groups.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from sluice.api.client import SluiceClient
from sluice.streaming.spark.data_loss import DataLoss
from sluice.streaming.spark.group_values import SparkMember
from tests.support.group_http import Member
from tests.support.played_groups import (
    Make,
    fill,
    id_of,
    offsets,
    once_each,
    read_by,
    until,
)
from tests.support.played_query import PlayedQuery
from tests.support.server import Server


def test_a_restarted_query_repeats_nothing_even_if_the_last_commit_is_missing(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """G-6"""
    fill(client, topic, 10)
    first = query(group_session_timeout_ms="1000")
    end = first.look()
    assert end is not None
    until(lambda: len(offsets(client, group)) == 3)
    first.crash()
    first.finish(first.read(end))  # its sink is done, and nobody told the group
    everything = fill(client, topic, 10)
    again = query(first.checkpoint)
    again.available_now()
    assert read_by(first, again) == once_each(everything)
    assert {commit.offset for commit in offsets(client, group).values()} == {20}


def test_an_unfinished_batch_is_replayed_as_it_was_logged(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """G-5"""
    fill(client, topic, 10)
    first = query(group_session_timeout_ms="1000")
    end = first.look()
    assert end is not None
    first.crash()
    everything = fill(client, topic, 10)
    again = query(first.checkpoint)
    assert Counter(again.trigger()) == Counter(first.read(end)), "not one record more"
    again.available_now()
    assert read_by(again) == once_each(everything)


def test_a_batch_that_others_have_read_since_and_that_is_gone_is_no_loss(
    client: SluiceClient, query: Make, topic: str
) -> None:
    fill(client, topic, 10)
    first = query(group_session_timeout_ms="1000")
    assert first.look() is not None
    first.crash()
    other = query()
    until(lambda: (other.trigger(), len(other.rows) == 30)[1])
    other.trigger()
    other.stop()
    client.delete_records(topic, dict.fromkeys(range(3), 10))
    everything = fill(client, topic, 1)
    again = query(first.checkpoint)
    assert again.trigger() == [], "nothing of it is left"
    again.available_now()
    assert read_by(other, again) == once_each(everything)


def test_a_batch_that_is_gone_and_that_nobody_has_read_is_a_loss(client: SluiceClient, query: Make, topic: str) -> None:
    fill(client, topic, 10)
    first = query(group_session_timeout_ms="1000")
    assert first.look() is not None
    first.crash()
    client.delete_records(topic, dict.fromkeys(range(3), 10))
    with pytest.raises(DataLoss, match="below the log start"):
        query(first.checkpoint).trigger()


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_reset_takes_effect(client: SluiceClient, query: Make, topic: str, group: str, unfinished: bool) -> None:
    """G-7"""
    fill(client, topic, 10)
    first = query()
    while first.trigger():
        pass
    if unfinished:
        fill(client, topic, 2)
        assert first.look() is not None
    first.stop()
    client.groups.reset(group, {"to_offset": 4}, topics=[topic], execute=True)
    again = query(first.checkpoint)
    if unfinished:
        assert {row[2] for row in again.trigger()} == {10, 11}, "replayed as logged, whatever was reset"
        again.rows.clear()
    again.available_now()
    assert read_by(again) == once_each({(topic, p, o) for p in range(3) for o in range(4, 12 if unfinished else 10)})
    # And it stays so: another restart goes on where this one ended.
    again.stop()
    third = query(first.checkpoint)
    assert third.available_now() == []


def test_a_reset_holds_through_a_crash_before_the_first_batch(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    first = query()
    first.available_now()
    first.stop()
    fill(client, topic, 5)
    client.groups.reset(group, {"to_latest": True}, topics=[topic], execute=True)
    second = query(first.checkpoint, group_session_timeout_ms="1000")
    assert second.look() is None, "in the group, and nothing to read"
    until(lambda: {commit.batch for commit in offsets(client, group).values()} == {2})
    second.crash()
    fill(client, topic, 1)
    third = query(first.checkpoint)
    assert {row[2] for row in third.available_now()} == {15}


def test_what_another_member_has_read_is_not_read_again(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """G-7"""
    fill(client, topic, 10)
    first = query()
    first.available_now()
    first.stop()
    fill(client, topic, 10)
    second = query()
    second.available_now()
    second.stop()
    everything = fill(client, topic, 10)
    again = query(first.checkpoint)
    again.available_now()
    assert read_by(first, second, again) == once_each(everything)


def test_a_query_goes_on_where_it_was_when_it_gets_a_group(
    server: Server, client: SluiceClient, query: Make, topic: str
) -> None:
    fill(client, topic, 10)
    alone = PlayedQuery({"server": server.url, "subscribe": topic, "startingOffsets": "earliest"})
    alone.available_now()
    everything = fill(client, topic, 10)
    member = query(alone.checkpoint, startingOffsets="latest")
    member.available_now()
    assert read_by(alone, member) == once_each(everything)


@pytest.mark.parametrize(("start", "expected"), [("earliest", 10), ("latest", 0)])
def test_without_a_commit_the_starting_offsets_decide(
    client: SluiceClient, query: Make, topic: str, start: str, expected: int
) -> None:
    fill(client, topic, 10)
    one = query(startingOffsets=start)
    assert len(one.available_now()) == expected * 3
    fill(client, topic, 1)
    assert len(one.available_now()) == 3


def test_a_topic_that_was_made_anew_has_no_commits(client: SluiceClient, query: Make, topic: str, group: str) -> None:
    """R-8"""
    fill(client, topic, 10)
    one = query(failOnDataLoss="false")
    while one.trigger():
        pass
    client.topics.delete(topic)
    client.topics.create(topic, partitions=3)
    fill(client, topic, 4)
    one.run()
    until(lambda: len(one.rows) == 42)
    assert [row[2] for row in one.rows[30:] if row[1] == 0] == [0, 1, 2, 3]
    until(lambda: {commit.offset for commit in offsets(client, group).values()} == {4})


def test_a_commit_for_a_topic_that_was_made_anew_is_refused(
    server: Server, client: SluiceClient, topic: str, group: str
) -> None:
    """R-8: a commit in flight while the topic is made again must not become a position in the new one."""
    fill(client, topic, 10)
    old = id_of(server, topic)
    client.topics.delete(topic)
    client.topics.create(topic, partitions=3)
    member = Member(server.client, group, [topic])
    answer = server.client.post(
        f"{member.url}/offsets",
        json={"offsets": [{"topic_name": topic, "partition_id": 0, "offset": 9, "topic_id": old}]},
    )
    assert answer.json()["offsets"][0]["error"] == "UNKNOWN_TOPIC_ID"
    assert offsets(client, group) == {}


def test_partitions_that_come_while_the_query_runs_are_read_from_their_first_record(
    client: SluiceClient, query: Make, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = SparkMember.of
    monkeypatch.setattr(
        SparkMember, "of", lambda options, client_id: replace(usual(options, client_id), metadata_max_age_ms=100)
    )
    one = query(startingOffsets="latest")
    assert one.trigger() == []
    client.topics.grow(topic, 5)
    fill(client, topic, 3, partitions=5)
    until(lambda: (one.trigger(), {row[1] for row in one.rows} == {0, 1, 2, 3, 4})[1])
    assert [row[2] for row in one.rows if row[1] == 4] == [0, 1, 2]


def test_partitions_that_came_between_two_runs_are_read_from_their_first_record(
    client: SluiceClient, query: Make, topic: str
) -> None:
    """`startingOffsets` are for what was there when the group began."""
    fill(client, topic, 5)
    one = query(startingOffsets="latest")
    assert one.available_now() == []
    one.stop()
    client.topics.grow(topic, 5)
    fill(client, topic, 2, partitions=5)
    again = query(one.checkpoint, startingOffsets="latest")
    assert sorted(row[1:3] for row in again.available_now()) == sorted(
        [(p, o) for p in range(3) for o in (5, 6)] + [(p, o) for p in (3, 4) for o in (0, 1)]
    )


def test_a_member_that_joins_later_reads_what_came_before_it_from_the_first_record(
    client: SluiceClient, query: Make, topic: str
) -> None:
    """It has no checkpoint: the commits of the group say what was there in the beginning."""
    fill(client, topic, 5)
    first = query(startingOffsets="latest")
    assert first.available_now() == []
    first.stop()
    client.topics.grow(topic, 4)
    fill(client, topic, 1, partitions=4)
    second = query(startingOffsets="latest")
    assert sorted(row[1:3] for row in second.available_now()) == [(0, 5), (1, 5), (2, 5), (3, 0)]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_topic_of_a_pattern_that_came_between_two_runs_is_read_from_its_first_record(
    client: SluiceClient, query: Make, topic: str, with_checkpoint: bool
) -> None:
    fill(client, topic, 1)
    pattern = {"subscribe": None, "subscribePattern": f"{topic}.*", "startingOffsets": "latest"}
    one = query(**pattern)
    assert one.available_now() == []
    one.stop()
    client.topics.create(f"{topic}-new", partitions=1)
    fill(client, f"{topic}-new", 3, partitions=1)
    again = query(one.checkpoint if with_checkpoint else None, **pattern)
    assert [row[:3] for row in again.available_now()] == [(f"{topic}-new", 0, offset) for offset in range(3)]


def test_a_topic_that_is_made_anew_while_it_is_read_is_a_loss(client: SluiceClient, query: Make, topic: str) -> None:
    """As without a group. What the new topic holds is not passed over, whatever `startingOffsets` says."""
    fill(client, topic, 2)
    one = query(startingOffsets="latest")
    assert one.trigger() == []
    fill(client, topic, 1)
    assert len(one.trigger()) == 3
    client.topics.delete(topic)
    client.topics.create(topic, partitions=3)
    fill(client, topic, 4)
    with pytest.raises(DataLoss, match="made again"):
        one.trigger()
    one.stop()
    tolerant = query(one.checkpoint, startingOffsets="latest", failOnDataLoss="false")
    tolerant.run()
    until(lambda: len(tolerant.rows) == 12)
