"""Queries in consumer groups: the real planner and a real service, with Spark's calls played by the test."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from sluice.api.client import SluiceClient
from sluice.streaming.spark.offsets import SourceOffset
from tests.support.played_groups import (
    PATIENCE_S,
    Make,
    fill,
    id_of,
    members,
    offsets,
    once_each,
    read_by,
    until,
)
from tests.support.played_query import Row
from tests.support.server import Server

# --- commits --------------------------------------------------------------------------------------


def test_finished_batches_are_committed_the_last_one_included(
    server: Server, client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """G-2, G-4: the label of a commit is the stamp of the batch."""
    everything = fill(client, topic, 40)
    one = query(maxOffsetsPerTrigger="30")
    assert Counter(one.available_now()) == once_each(everything)
    found = offsets(client, group)
    assert {at.partition: commit.offset for at, commit in found.items()} == {0: 40, 1: 40, 2: 40}
    assert {commit.topic_id for commit in found.values()} == {id_of(server, topic)}
    last = one.checkpoint.logged[-1]["@"]
    assert {(commit.query, commit.batch) for commit in found.values()} == {(last["query"], last["batch"])}
    assert last["batch"] == len(one.checkpoint.logged)
    assert [lag.lag for lag in client.groups.lags(group)] == [0, 0, 0]


def test_commits_end_in_the_internal_topic_and_offsets_say_who_planned_them(
    server: Server, client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """G-1, G-8"""
    fill(client, topic, 10)
    one = query(maxOffsetsPerTrigger="15")
    one.available_now()
    for number, end in enumerate(one.checkpoint.logged, 1):
        found = SourceOffset.from_json(end)
        assert {tp.partition for tp in found.ranges} == {0, 1, 2}
        assert found.topic_ids == {topic: id_of(server, topic)}
        assert (found.stamp["generation"], found.stamp["batch"]) == (1, number)
    first, second = map(SourceOffset.from_json, one.checkpoint.logged[:2])
    assert all(second.ranges[tp].start == found.end for tp, found in first.ranges.items())
    stored = [record for record in _internal_records(client) if f'"{group}"' in record and f'"{topic}"' in record]
    assert stored, "the commits of the query are records of __consumer_offsets"


def _internal_records(client: SluiceClient) -> list[str]:
    """Keys and values of what the groups have written."""
    parts = [at.partition for at in client.offsets("__consumer_offsets") if at.latest]
    pages = [client.fetch("__consumer_offsets", partition, 0) for partition in parts]
    return [f"{record.key!r} {record.value!r}" for page in pages for record in page.records]


def test_a_batch_that_is_not_finished_is_not_committed(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    one = query()
    end = one.look()
    assert end is not None
    until(lambda: len(offsets(client, group)) == 3)
    assert {commit.offset for commit in offsets(client, group).values()} == {0}, "only where it began"
    one.finish(one.read(end))
    assert one.trigger() == []
    until(lambda: {commit.offset for commit in offsets(client, group).values()} == {10})


@pytest.mark.parametrize(("noted", "committed"), [("batch", 10), ("another", 0), ("nothing", 0)])
def test_a_stop_in_order_commits_the_last_batch_without_another_trigger(
    client: SluiceClient, query: Make, topic: str, group: str, tmp_path: Path, noted: str, committed: int
) -> None:
    """Which may be hours away. What the one who stops the query knows to be finished is in `group.finished.file`."""
    fill(client, topic, 10)
    file = tmp_path / "batch.json"
    one = query(group_finished_file=str(file))
    end = one.look()
    assert end is not None
    one.finish(one.read(end))
    stamp = SourceOffset.from_json(end).stamp
    if noted != "nothing":
        file.write_text(json.dumps(dict(stamp) if noted == "batch" else {**stamp, "batch": 7}))
    until(lambda: len(offsets(client, group)) == 3)
    one.stop()
    assert {commit.offset for commit in offsets(client, group).values()} == {committed}
    assert members(client, group) == 0
    assert not file.exists()  # the job waits for that


def test_idle_triggers_commit_nothing_again(client: SluiceClient, query: Make, topic: str, group: str) -> None:
    """G-2"""
    fill(client, topic, 5)
    one = query()
    one.available_now()
    first = offsets(client, group)
    for _ in range(5):
        assert one.trigger() == []
    assert offsets(client, group) == first


# --- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", "sticky"])
def test_members_share_the_partitions_and_follow_rebalances(
    client: SluiceClient, query: Make, topic: str, group: str, strategy: str
) -> None:
    everything = fill(client, topic, 20)
    first = query(partition_assignment_strategy=strategy, maxOffsetsPerTrigger="7").run()
    until(lambda: len(first.rows) > 10)
    second = query(partition_assignment_strategy=strategy, maxOffsetsPerTrigger="7").run()
    until(lambda: members(client, group) == 2)
    everything = fill(client, topic, 100)
    until(lambda: set(read_by(first, second)) == everything)
    assert first.failure is second.failure is None
    latest = fill(client, topic, 5)
    new = latest - everything
    until(lambda: set(read_by(first, second)) == latest)
    assert {row for row in new if row in first.rows}, "both have a share"
    assert {row for row in new if row in second.rows}
    assert read_by(first, second) == once_each(latest), "nothing twice: what moved was committed before"


def test_what_a_batch_reads_is_given_up_after_the_batch(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    first = query()
    end = first.look()
    assert end is not None
    second = query().run()
    # The second one is in without having to wait for the batch of the first.
    until(lambda: members(client, group) == 2 and client.groups.describe(group).state == "STABLE")
    everything = fill(client, topic, 10)
    for _ in range(10):
        time.sleep(0.02)
        assert second.rows == []
    first.finish(first.read(end))
    first.run()
    until(lambda: set(read_by(first, second)) == everything)
    assert read_by(first, second) == once_each(everything)
    assert second.rows


def test_what_came_and_went_during_one_batch_goes_on_to_who_waits_for_it(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """A long batch: one member goes, its partitions come to the reader, and another member comes for them. They are
    not held back by the reader's claim, neither for ever nor until the end of its batch."""
    everything = fill(client, topic, 5)
    leaver = query().run()
    until(lambda: leaver.rows)
    reader = query().run()
    until(lambda: fill(client, topic, 1) and reader.rows, "a share for the second one")
    everything = fill(client, topic, 5)
    until(lambda: set(read_by(leaver, reader)) == everything)
    leaver.rest()
    reader.rest()
    assert leaver.trigger() == reader.trigger() == []
    everything = fill(client, topic, 5)
    end = reader.look()
    assert end is not None
    reading = {at.partition for at in SourceOffset.from_json(end).ranges}
    assert len(reading) < 3
    leaver.stop()
    until(lambda: members(client, group) == 1 and client.groups.describe(group).state == "STABLE")
    comers = [query().run(), query().run()]
    # Of the two partitions that came one is passed on at least, whichever of the three the reader is to keep.
    until(lambda: read_by(*comers), "reads of others during the batch")
    assert not {row[1] for row in read_by(*comers)} & reading
    reader.finish(reader.read(end))
    until(lambda: not reader.trigger() and set(read_by(leaver, reader, *comers)) == everything)
    assert read_by(leaver, reader, *comers) == once_each(everything)


def test_the_group_of_an_eager_strategy_waits_for_the_batch(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    first = query(partition_assignment_strategy="range")
    end = first.look()
    assert end is not None
    second = query(partition_assignment_strategy="range").run()
    until(lambda: client.groups.describe(group).state == "PREPARING_REBALANCE")
    everything = fill(client, topic, 10)
    first.finish(first.read(end))
    first.run()
    until(lambda: set(read_by(first, second)) == everything)
    assert read_by(first, second) == once_each(everything)


def test_the_others_take_over_from_the_commits_of_one_that_was_killed(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    everything = fill(client, topic, 20)
    session = {"group_session_timeout_ms": "2000"}
    first, second = query(**session).run(), query(**session).run()
    until(lambda: members(client, group) == 2 and set(read_by(first, second)) == everything)
    first.rest()
    first.trigger()
    everything = fill(client, topic, 20)
    first.crash()
    until(lambda: set(read_by(first, second)) == everything)
    assert read_by(first, second) == once_each(everything)


def test_members_of_other_kinds_are_in_the_same_group(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    """A consumer of the Python client reads beside a query, and goes on where it was."""
    everything = fill(client, topic, 10)
    one = query().run()
    until(lambda: set(one.rows) == everything)
    until(lambda: {commit.offset for commit in offsets(client, group).values()} == {10})
    one.stop()
    everything |= fill(client, topic, 10)
    with client.consumer(group=group, auto_offset_reset="none") as consumer:
        consumer.subscribe([topic])
        found: list[Row] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < 30 and time.monotonic() < deadline:
            found += [(record.topic, record.partition, record.offset) for record in consumer.poll(0.1)]
    assert Counter(found) + read_by(one) == once_each(everything)
