"""Spark queries as members of consumer groups, with Delta output."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sluice.api.client import Record, SluiceClient
from sluice.log_store.errors import GroupIdNotFound
from sluice.streaming import register
from sluice.streaming.spark.job_finished import told_what_is_finished
from sluice.streaming.spark.job_options import parse_options
from sluice.streaming.spark.job_run import run_query
from sluice.streaming.spark.job_stop import StopGate
from tests.support.server import Server, running
from tests.support.spark_members import Row, start_query, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 240.0
PARTITIONS = 4
OFTEN = {"processingTime": "200 milliseconds"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    groups = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100", "SLUICE_OFFSETS_TOPIC_NUM_PARTITIONS": "2"}
    with running(tmp_path_factory.mktemp("groups") / "root", **groups) as found:
        found.port = int(found.url.rsplit(":", 1)[1])
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[SluiceClient]:
    with SluiceClient(server.url) as found:
        yield found


@pytest.fixture
def topic(client: SluiceClient) -> str:
    return client.topics.create(f"t-{uuid.uuid4().hex[:8]}", partitions=PARTITIONS).name


def fill(client: SluiceClient, topic: str, count: int) -> Counter[Row]:
    """`count` more in each partition; all that there are now, once each."""
    client.produce(topic, [Record(value=b"x", partition=p) for p in range(PARTITIONS) for _ in range(count)])
    return Counter((found.partition, o) for found in client.offsets(topic) for o in range(found.latest))


def until(condition: Callable[[], object], what: str = "", patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def members(client: SluiceClient, group: str) -> list[str]:
    with suppress(GroupIdNotFound):
        return [member.member_id for member in client.groups.members(group)]
    return []


def lag(client: SluiceClient, group: str) -> list[int | None]:
    return [found.lag for found in client.groups.lags(group)]


def test_available_now_commits_its_last_batch_leaves_and_follows_a_reset(
    spark: SparkSession, server: Server, client: SluiceClient, topic: str, tmp_path: Path
) -> None:
    def run(trigger: str = "availableNow") -> None:
        query = start_query(spark, server.url, topic, "nightly", tmp_path, {trigger: True}, maxOffsetsPerTrigger="60")
        assert query.awaitTermination(int(PATIENCE_S))

    everything = fill(client, topic, 40)
    run()
    assert written(tmp_path) == everything
    assert lag(client, "nightly") == [0] * PARTITIONS
    until(lambda: members(client, "nightly") == [], "it left", patience_s=60)

    everything = fill(client, topic, 5)
    assert lag(client, "nightly") == [5] * PARTITIONS
    run()
    assert written(tmp_path) == everything, "went on where it was"

    until(lambda: members(client, "nightly") == [], "it left", patience_s=60)
    client.groups.reset("nightly", {"to_offset": 43}, topics=[topic], execute=True)
    run()
    again = Counter((partition, offset) for partition in range(PARTITIONS) for offset in (43, 44))
    assert written(tmp_path) == everything + again
    assert lag(client, "nightly") == [0] * PARTITIONS

    # Spark looks at nothing after the only batch of Trigger.Once: it is committed by the next run.
    everything = fill(client, topic, 5)
    run("once")
    assert written(tmp_path) == everything + again
    assert lag(client, "nightly") == [5] * PARTITIONS
    run()
    assert written(tmp_path) == everything + again
    assert lag(client, "nightly") == [0] * PARTITIONS


def test_a_job_that_stops_commits_its_last_batch_long_before_the_next_trigger(
    spark: SparkSession, server: Server, client: SluiceClient, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 10)
    register(spark)
    checkpoint = str(tmp_path / "checkpoint")
    arguments = [
        *("--topics", topic, "--group", "hourly", "--server", server.url, "--to", f"parquet:{tmp_path / 'out'}"),
        *("--checkpoint", checkpoint, "--starting-offsets", "earliest", "--trigger", "processingTime=1h"),
    ]
    gate = StopGate()
    with told_what_is_finished(parse_options(arguments, {})) as options:
        job = threading.Thread(target=run_query, args=(spark, options, checkpoint, gate))
        job.start()
        until(lambda: gate.last_batch == 0, "the first batch is written")
        gate.request("the test")
        job.join(PATIENCE_S)
    assert not job.is_alive()
    # The planner is another process, which the query does not wait for, but the job does.
    assert lag(client, "hourly") == [0] * PARTITIONS
    assert members(client, "hourly") == []


def test_queries_share_the_partitions_while_others_come_go_and_the_service_is_away(
    spark: SparkSession, server: Server, client: SluiceClient, topic: str, tmp_path: Path
) -> None:
    group, folders = "shared", [tmp_path / "first", tmp_path / "second"]
    everything = fill(client, topic, 20)
    first = start_query(spark, server.url, topic, group, folders[0], OFTEN)
    until(lambda: written(*folders) == everything)
    second = start_query(spark, server.url, topic, group, folders[1], OFTEN)
    until(lambda: len(members(client, group)) == 2)

    def both_read() -> bool:
        """Partitions move at the end of a batch, so not all of the first ones."""
        expected = fill(client, topic, 2)
        until(lambda: written(*folders) == expected, "everything, and nothing twice")
        newest = {row for row in expected if row not in everything}
        return all(newest & set(written(folder)) for folder in folders)

    until(both_read)

    # The service is away: both read what is there from storage, and go on being members afterwards.
    before = members(client, group)
    everything = fill(client, topic, 30)
    server.kill()
    until(lambda: written(*folders) == everything, "read while the service was away")
    server.start()
    until(lambda: lag(client, group) == [0] * PARTITIONS, "committed later")
    assert members(client, group) == before

    second.stop()
    until(lambda: len(members(client, group)) == 1, "stop() leaves the group", patience_s=60)
    everything = fill(client, topic, 10)
    until(lambda: written(*folders) == everything, "the first one has all partitions")
    assert first.isActive
    first.stop()
    until(lambda: members(client, group) == [], "nobody is left", patience_s=60)
