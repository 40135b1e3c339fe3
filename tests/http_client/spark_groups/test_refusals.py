"""A refused commit never fails a query; a service that is away does not stop it; who stops says good-bye."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from sluice.api.client import SluiceClient
from sluice.log_store.errors import InvalidConfig
from sluice.streaming.http_client import Connection
from sluice.streaming.spark import group_follower
from tests.http_client.conftest import GROUPS
from tests.support.group_http import Member
from tests.support.group_workers import Cable
from tests.support.played_groups import (
    QUICK,
    Make,
    fill,
    members,
    offsets,
    once_each,
    read_by,
    until,
)
from tests.support.played_query import PlayedQuery
from tests.support.server import Server, running

# --- refused commits ------------------------------------------------------------------------------


def test_a_member_that_was_removed_finishes_its_batch_and_comes_back(
    client: SluiceClient, query: Make, server: Server, topic: str, group: str
) -> None:
    """G-10: UNKNOWN_MEMBER_ID"""
    fill(client, topic, 10)
    one = query()
    end = one.look()
    assert end is not None
    removed = client.groups.members(group)[0].member_id
    raw = Member(server.client, group, [topic])
    raw.post("members:leave", members=[{"member_id": removed}])
    one.finish(one.read(end))
    everything = fill(client, topic, 10)
    one.run()
    until(lambda: set(one.rows) == everything)
    assert read_by(one) == once_each(everything), "nobody had its partitions meanwhile, so nothing is read again"
    until(lambda: {commit.offset for commit in offsets(client, group).values()} == {20})
    assert one.failure is None
    assert client.groups.members(group)[0].member_id != removed


def test_a_member_that_was_cut_off_reads_on_and_then_takes_its_new_positions(
    client: SluiceClient, query: Make, server: Server, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-9, G-10: positions jump. UNKNOWN_MEMBER_ID, and another member has read and committed in between."""
    fill(client, topic, 10)
    cable = Cable(server)
    with monkeypatch.context() as patch:
        patch.setattr(group_follower, "Connection", partial(Connection, transport=cable))
        one = query(maxOffsetsPerTrigger="6", group_session_timeout_ms="1000")
        end = one.look()
    assert end is not None
    cable.cut = True
    one.finish(one.read(end))
    assert len(one.trigger()) == 6, "it cannot know, and reads on"
    other = query().run()
    until(
        lambda: {commit.offset for commit in offsets(client, group).values()} == {10},
        "taken over when its session ended",
    )
    assert len(other.rows) == 30
    cable.cut = False
    until(lambda: members(client, group) == 2, "it is back, in the background")
    for _ in range(3):
        assert one.trigger() == [], "the other one has done all that"
        assert {commit.offset for commit in offsets(client, group).values()} == {10}, "its own commits were dropped"
    one.run()
    everything = fill(client, topic, 5)
    until(lambda: set(read_by(one, other)) == everything)
    assert one.failure is None
    assert all(count == 1 for row, count in read_by(one, other).items() if row[2] >= 4)


def test_a_commit_in_the_middle_of_a_rebalance_is_sent_again(
    client: SluiceClient, query: Make, server: Server, topic: str, group: str
) -> None:
    """G-10: REBALANCE_IN_PROGRESS and ILLEGAL_GENERATION, while a slow leader holds up the new generation."""
    fill(client, topic, 10)
    leader = Member(server.client, group, [topic], strategy="cooperative-sticky")
    leader.enter()
    one = query()
    one.run()
    until(lambda: members(client, group) == 2)
    joined = leader.join()
    until(lambda: client.groups.describe(group).state == "COMPLETING_REBALANCE")
    commit = leader.commit(topic, 0, 1)
    assert commit.json()["error"] == "REBALANCE_IN_PROGRESS"
    leader.sync(joined)
    leader.leave()
    until(lambda: len(set(one.rows)) == 30)
    until(lambda: [commit.offset for commit in offsets(client, group).values()] == [10, 10, 10])
    assert one.failure is None
    assert read_by(one) == once_each(set(one.rows))


def test_a_fenced_instance_stands_by_until_the_other_is_gone(
    client: SluiceClient, query: Make, server: Server, topic: str, group: str
) -> None:
    """FENCED_INSTANCE_ID: throwing the other one out in turn would go on for ever."""
    fill(client, topic, 10)
    one = query(group_instance_id="i-1", maxOffsetsPerTrigger="9")
    end = one.look()
    assert end is not None
    other = query(group_instance_id="i-1")
    other.trigger()
    until(lambda: one.is_fenced, "its next heartbeat says so")
    one.finish(one.read(end))
    one.run()
    everything = fill(client, topic, 10)
    other.run()
    until(lambda: set(other.rows) == everything)
    assert len(one.rows) == 9, "only what it had begun"
    other.stop()
    assert members(client, group) == 1, "static members do not leave"
    Member(server.client, group, [topic]).post("members:leave", members=[{"group_instance_id": "i-1"}])
    everything = fill(client, topic, 10)
    until(lambda: set(read_by(one, other)) == everything)
    assert one.failure is None


def test_what_another_try_does_not_mend_ends_the_query(
    client: SluiceClient, query: Make, topic: str, group: str
) -> None:
    with client.consumer(group=group, partition_assignment_strategy=("range",)) as consumer:
        consumer.subscribe([topic])
        until(lambda: (consumer.poll(0.05), members(client, group) == 1)[1])
        one = query().run()
        until(lambda: one.failure is not None)
    assert one.failure is not None
    assert one.failure.error == "INCONSISTENT_GROUP_PROTOCOL"


# --- the service is away, the end -----------------------------------------------------------------


def test_a_query_reads_on_while_the_service_is_away_and_commits_later(tmp_path: Path) -> None:
    with running(tmp_path / "root", **GROUPS) as server, SluiceClient(server.url) as client:
        server.port = int(server.url.rsplit(":", 1)[1])
        client.topics.create("t", partitions=3)
        everything = fill(client, "t", 40)
        options = {"server": server.url, "subscribe": "t", "group.id": "g", "maxOffsetsPerTrigger": "12"}
        one = PlayedQuery(options | QUICK)
        one.trigger()
        server.kill()
        while one.trigger():
            pass
        assert read_by(one) == once_each(everything), "from storage"
        server.start()
        until(lambda: {commit.offset for commit in offsets(client, "g").values()} == {40})
        assert {commit.batch for commit in offsets(client, "g").values()} == {10}, "the newest, not all in turn"
        everything = fill(client, "t", 4)
        one.trigger()
        assert read_by(one) == once_each(everything)
        generation = one.checkpoint.logged[-1]["@"]["generation"]
        assert generation == one.checkpoint.logged[0]["@"]["generation"], "it was a member all the time"
        one.stop()


def test_a_query_that_starts_while_the_service_is_away_waits_for_it(tmp_path: Path) -> None:
    with running(tmp_path / "root", **GROUPS) as server, SluiceClient(server.url) as client:
        server.port = int(server.url.rsplit(":", 1)[1])
        client.topics.create("t", partitions=3)
        everything = fill(client, "t", 4)
        server.kill()
        options = {"path": str(tmp_path / "root"), "server": server.url, "subscribe": "t", "group.id": "g"}
        one = PlayedQuery(options | QUICK).run()
        server.start()
        until(lambda: set(one.rows) == everything)
        one.stop()


def test_a_stopped_query_leaves_at_once(client: SluiceClient, query: Make, topic: str, group: str) -> None:
    fill(client, topic, 5)
    one = query()
    one.trigger()
    assert members(client, group) == 1
    one.stop()
    assert members(client, group) == 0
    assert client.groups.describe(group).state == "EMPTY"


FAREWELL = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("chained", flush=True), os._exit(7)))
from tests.support.played_query import PlayedQuery
one = PlayedQuery(dict(pair.split("=", 1) for pair in sys.argv[1:]))
one.trigger(); one.trigger()
print("in", flush=True)
time.sleep(60)
"""


def test_sigterm_leaves_the_group_and_then_does_what_it_did_before(
    server: Server, client: SluiceClient, topic: str, group: str
) -> None:
    """G-3: Spark sends it twice, and says nothing else."""
    fill(client, topic, 5)
    options = {"server": server.url, "subscribe": topic, "group.id": group} | QUICK
    command = [sys.executable, "-c", FAREWELL, *(f"{name}={value}" for name, value in options.items())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": "."}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        assert members(client, group) == 1
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "chained\n"
        assert process.wait(60) == 7
    assert members(client, group) == 0
    assert {commit.offset for commit in offsets(client, group).values()} == {5}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"path": "/tmp", "group.id": "g", "subscribe": "t"}, "group.id"),
        ({"server": "http://h", "group.id": "g", "assign": '{"t":[0]}'}, "assign"),
        ({"server": "http://h", "group.instance.id": "i", "subscribe": "t"}, "group.instance.id"),
        ({"server": "http://h", "group.id": "g", "subscribe": "t", "partition.assignment.strategy": "x"}, "strategy"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        PlayedQuery(options)
