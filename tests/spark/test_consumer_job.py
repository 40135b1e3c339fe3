"""The consumer job as a process against a real service: killed, stopped, in a group; its output is exactly once."""

from __future__ import annotations

import base64
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluice.streaming import register
from sluice.streaming.spark.job_batches import planned_batch
from sluice.streaming.spark.job_options import parse_options
from sluice.streaming.spark.job_run import start_query
from sluice.streaming.spark.job_stop import StopGate, stop_in_order
from tests import counts
from tests.support.s3_server import S3Server
from tests.support.server import Server, running
from tests.support.spark_buckets import bucket_environment, bucket_options
from tests.support.spark_jobs import Driver, drivers, origins, stored_rows

TOPIC, PARTITIONS = "orders", 2
GROUP, GROUP_PARTITIONS = "billing", 4
WITHIN_S = 400.0
SHORT_SESSION_MS, LONG_SESSION_MS = 4_000, 60_000
FUNCTIONS = """
from sluice.streaming import ConsumedRecord, Rejected

def doubled(record: ConsumedRecord):
    number = record.json()["n"]
    if number % 50 == 7:
        raise Rejected(f"no number {number}, please")
    return None if number % 50 == 8 else {"n": number, "twice": 2 * number}
"""


@dataclass(frozen=True)
class Site:
    """Where the root of the log is."""

    root: Path
    alone_kills: int
    group_kills: int
    service: dict[str, str] = field(default_factory=dict)
    """Settings of a service there."""
    job: tuple[str, ...] = ()
    """Arguments of a job that reads from there."""


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.full)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    if request.param == "folder":
        return Site(tmp_path / "root", counts.SPARK_JOB_KILLS, counts.DRIVER_KILLS)
    s3: S3Server = request.getfixturevalue("s3")
    keys = tuple(part for name, value in bucket_options(s3).items() for part in ("--option", f"{name}={value}"))
    url, kills = f"{s3.bucket('lake')}/{tmp_path.name}", counts.BUCKET_DRIVER_KILLS
    return Site(url, kills, kills, bucket_environment(s3, tmp_path), keys)  # type: ignore[arg-type]


def _create(server: Server, name: str, partitions: int) -> None:
    made = server.client.post("/v3/clusters/-/topics", json={"topic_name": name, "partitions_count": partitions})
    assert made.status_code == 201, made.text


def _produce(server: Server, first: int, count: int, partitions: int = PARTITIONS) -> Counter[tuple[int, int]]:
    """Partition and offset of each record."""
    records = [{"value": {"n": n}, "partition": n % partitions} for n in range(first, first + count)]
    answer = server.client.post(f"/topics/{TOPIC}", json={"records": records})
    assert answer.status_code == 200, answer.text
    return Counter((one["partition"], one["offset"]) for one in answer.json()["offsets"])


def _letters(server: Server, topic: str) -> list[dict[str, Any]]:
    answer = server.client.get(f"/v3/clusters/-/topics/{topic}/partitions/0/records?offset=0&format=string")
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["data"]
    return [
        {header["name"]: base64.b64decode(header["value"]).decode() for header in record["headers"]}
        | {"value": record["value"]}
        for record in records
    ]


@pytest.mark.timeout(1800)
def test_alone_and_killed_the_table_and_the_dead_letters_are_exactly_once(site: Site, tmp_path: Path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    table = tmp_path / "out"
    wanted = [n for n in range(200) if n % 50 not in (7, 8)]  # 7, 57, … are rejected and 8, 58, … left out
    arguments = [
        *("--topics", TOPIC, "--path", str(site.root), "--to", f"delta:{table}"),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--starting-offsets", "earliest"),
        *("--each", "functions:doubled", "--json-schema", "n INT, twice INT", "--dead-letter", "dead"),
        *site.job,
    ]
    with running(site.root, **site.service) as server, drivers() as started:
        _create(server, TOPIC, PARTITIONS)
        _create(server, "dead", 1)
        made = _produce(server, 0, 200)
        server.client.post(
            f"/topics/{TOPIC}/partitions/0",
            headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
            json={"records": [{"key": "aw==", "value": base64.b64encode(b"{").decode()}]},
        )
        arguments += ["--server", server.url]
        seed = random.randrange(1 << 30)
        chance = random.Random(seed)
        for _ in range(site.alone_kills):
            driver = Driver([*arguments, "--max-offsets-per-trigger", "25", "--trigger", "processingTime"], tmp_path)
            started.append(driver)
            driver.wait_for("started")
            batches = chance.choice((0, 1, 1, 2))
            # After many kills there may be nothing left to make progress with.
            _until(lambda: driver.count("progress") >= batches or len(stored_rows(table)) == len(wanted), [driver])  # noqa: B023
            threading.Event().wait(chance.uniform(0, 2))
            driver.kill()
        # There may be nothing left to read by now, and a job publishes its lag with a batch.
        made += _produce(server, 200, PARTITIONS)
        wanted += range(200, 200 + PARTITIONS)
        metrics = tmp_path / "job.prom"
        last = Driver([*arguments, "--trigger", "processingTime=200ms", "--metrics-file", str(metrics)], tmp_path)
        started.append(last)
        lag = f'sluice_job_lag{{job="sluice-consumer",topic="{TOPIC}",partition="%d"}} 0'
        ends = [lag % partition for partition in range(PARTITIONS)]
        _until(lambda: metrics.exists() and all(end in metrics.read_text() for end in ends), [last])
        assert last.terminate() == 0, last.text
        said = [event["event"] for event in last.events]
        assert [event for event in said if event in ("stopping", "done")] == ["stopping", "done"]

        rows = stored_rows(table)
        assert sorted(row["n"] for row in rows) == wanted, f"seed {seed}"
        assert all(row["twice"] == 2 * row["n"] for row in rows)
        assert not origins(rows) - made
        assert set(origins(rows).values()) == {1}

        letters = _letters(server, "dead")
        rejected = {int(letter["value"][5:-1]): letter for letter in letters if letter["value"] != "{"}
        assert (len(letters), sorted(rejected)) == (5, [7, 57, 107, 157]), f"seed {seed}"
        assert rejected[57] == {
            "value": '{"n":57}',
            "__sluice.errors.topic": TOPIC,
            "__sluice.errors.partition": "1",
            "__sluice.errors.offset": "28",
            "__sluice.errors.timestamp": rejected[57]["__sluice.errors.timestamp"],
            "__sluice.errors.message": "no number 57, please",
        }


@pytest.mark.timeout(1800)
def test_members_are_killed_and_the_table_of_the_group_is_exactly_once(spark: SparkSession, site: Site, tmp_path: Path):
    """Drivers of their own are killed, the whole of them or their JVM alone; a job in this session is left, and takes
    over from what they have committed. The repeats that this brings are no rows (an insert-only MERGE)."""
    table, mine, kills = tmp_path / "out", tmp_path / "mine", site.group_kills
    groups = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100", "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000"}
    with running(site.root, **groups, **site.service) as server, drivers() as started:
        _create(server, TOPIC, GROUP_PARTITIONS)
        made = _produce(server, 0, 40, GROUP_PARTITIONS)
        arguments = [
            *("--topics", TOPIC, "--group", GROUP, "--server", server.url, "--to", f"delta:{table}"),
            *("--starting-offsets", "earliest", "--max-offsets-per-trigger", "40", "--trigger", "processingTime=200ms"),
            *("--option", "group.heartbeat.interval.ms=200"),
            *site.job,
        ]

        def join(number: int) -> Driver:
            # A JVM that is killed alone says good-bye, which must not be taken for the end of its session.
            session = SHORT_SESSION_MS if _whole(number) else LONG_SESSION_MS
            started.append(Driver([*arguments, "--option", f"group.session.timeout.ms={session}"], tmp_path))
            return started[-1]

        victims = {number: join(number) for number in range(min(2, counts.DRIVER_KILLS))}
        gate, survivor = _in_session(spark, [*arguments, "--checkpoint", str(mine)])
        try:
            for number in range(kills):
                victim, watched = victims.pop(number), list(victims.values())
                deadline = time.monotonic() + WITHIN_S
                while not victim.count("progress"):
                    assert time.monotonic() < deadline, victim.text
                    made += _produce(server, made.total(), 8, GROUP_PARTITIONS)
                    _until_stored(table, made, [victim, *watched])
                made += _produce(server, made.total(), 40, GROUP_PARTITIONS)
                threading.Event().wait(random.uniform(0, 1))
                before, planned = _members(server), _planned(mine)
                committed = _committed(server)
                if _whole(number):
                    victim.kill()
                else:
                    victim.kill_jvm()
                    _until_one_has_left(server, before, watched)
                if number + 2 < kills:
                    victims[number + 2] = join(number + 2)
                made += _produce(server, made.total(), 40, GROUP_PARTITIONS)
                _until_stored(table, made, watched)
                assert origins(stored_rows(table)) == made
                for batch in range(planned + 1, _planned(mine) + 1):
                    ranges = planned_batch(spark, str(mine), batch).ranges
                    early = {tp: found for tp, found in ranges.items() if found.start < committed.get(tp.partition, 0)}
                    assert not early, f"read again though it was committed: {early}, {committed}"
            _until(lambda: sum(_lags(server)) == 0, [])
        finally:
            # In order: Spark answers a stop in the middle of a function's batch with a StackOverflowError of its own.
            gate.request("the test is over")
            stop_in_order(survivor, gate, lambda _: None)
        assert survivor.exception() is None or gate.refused
        assert gate.last_batch >= 0


def _until_stored(table: Path, made: Counter[tuple[int, int]], watched: list[Driver]) -> None:
    _until(lambda: origins(stored_rows(table)).total() >= made.total(), watched)


def _until_one_has_left(server: Server, members: set[str], watched: list[Driver]) -> None:
    """Long before a session ends. Not counted: the next one may join in the same moment."""
    _until(lambda: not members <= _members(server), watched, LONG_SESSION_MS / 2000)


def _whole(number: int) -> bool:
    return number % 2 == 0


def _in_session(spark: SparkSession, arguments: list[str]) -> tuple[StopGate, StreamingQuery]:
    register(spark)
    gate, options = StopGate(), parse_options(arguments, {})
    assert options.checkpoint is not None
    return gate, start_query(spark, options, options.checkpoint, gate)


def _planned(checkpoint: Path) -> int:
    """The number of the newest batch that was decided."""
    return max((int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")), default=-1)


def _members(server: Server) -> set[str]:
    answer = server.client.get(f"/v3/clusters/-/consumer-groups/{GROUP}/consumers")
    assert answer.status_code == 200, answer.text
    return {member["consumer_id"] for member in answer.json()["data"]}


def _committed(server: Server) -> dict[int, int]:
    answer = server.client.get(f"/v3/clusters/-/consumer-groups/{GROUP}/lags")
    return {lag["partition_id"]: lag["current_offset"] or 0 for lag in answer.json()["data"]}


def _lags(server: Server) -> list[int]:
    answer = server.client.get(f"/v3/clusters/-/consumer-groups/{GROUP}/lags")
    return [lag["lag"] for lag in answer.json()["data"]]


def _until(condition: Any, watched: list[Driver], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        for driver in watched:
            assert driver.process.poll() is None, driver.text
        assert time.monotonic() < deadline, "\n".join(driver.text for driver in watched)
        threading.Event().wait(0.2)
