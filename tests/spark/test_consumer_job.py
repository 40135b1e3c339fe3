"""The consumer job as a process against a real service: killed, stopped, in a group; its output is exactly once."""

from __future__ import annotations

import base64
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import counts
from tests.support.server import Server, running
from tests.support.spark_jobs import Driver, drivers, origins, stored_rows

TOPIC, PARTITIONS = "orders", 2
FUNCTIONS = """
from sluice.streaming import ConsumedRecord, Rejected

def doubled(record: ConsumedRecord):
    number = record.json()["n"]
    if number % 50 == 7:
        raise Rejected(f"no number {number}, please")
    return None if number % 50 == 8 else {"n": number, "twice": 2 * number}
"""


def _create(server: Server, name: str, partitions: int) -> None:
    made = server.client.post("/v3/clusters/-/topics", json={"topic_name": name, "partitions_count": partitions})
    assert made.status_code == 201, made.text


def _produce(server: Server, first: int, count: int) -> Counter[tuple[int, int]]:
    """Partition and offset of each record."""
    records = [{"value": {"n": n}, "partition": n % PARTITIONS} for n in range(first, first + count)]
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


@pytest.mark.timeout(900)
def test_alone_and_killed_the_table_and_the_dead_letters_are_exactly_once(tmp_path: Path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    table = tmp_path / "out"
    arguments = [
        *("--topics", TOPIC, "--path", str(tmp_path / "root"), "--to", f"delta:{table}"),
        *("--checkpoint", str(tmp_path / "checkpoint"), "--starting-offsets", "earliest"),
        *("--each", "functions:doubled", "--json-schema", "n INT, twice INT", "--dead-letter", "dead"),
    ]
    with running(tmp_path / "root") as server, drivers() as started:
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
        for _ in range(counts.SPARK_JOB_KILLS):
            driver = Driver([*arguments, "--max-offsets-per-trigger", "25", "--trigger", "processingTime"], tmp_path)
            started.append(driver)
            driver.wait_for("started")
            driver.wait_for("progress", chance.choice((0, 1, 1, 2)))
            threading.Event().wait(chance.uniform(0, 2))
            driver.kill()
        metrics = tmp_path / "job.prom"
        last = Driver([*arguments, "--trigger", "availableNow", "--metrics-file", str(metrics)], tmp_path)
        started.append(last)
        assert last.wait() == 0, last.text
        assert last.count("done") == 1

        # 7, 57, … are rejected and 8, 58, … left out.
        rows = stored_rows(table)
        wanted = sorted(n for n in range(200) if n % 50 not in (7, 8))
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
        assert f'sluice_job_lag{{job="sluice-consumer",topic="{TOPIC}",partition="0"}} 0' in metrics.read_text()


@pytest.mark.timeout(900)
def test_two_members_one_killed_the_other_takes_over_and_leaves_in_order(tmp_path: Path):
    table = tmp_path / "out"
    with running(tmp_path / "root", SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS="500") as server, drivers() as started:
        _create(server, TOPIC, PARTITIONS)
        made = _produce(server, 0, 40)
        arguments = [
            *("--topics", TOPIC, "--group", "billing", "--server", server.url, "--to", f"delta:{table}"),
            *("--starting-offsets", "earliest", "--max-offsets-per-trigger", "40", "--trigger", "processingTime=200ms"),
            *("--option", "group.session.timeout.ms=6000", "--option", "group.heartbeat.interval.ms=500"),
        ]
        members = [Driver(arguments, tmp_path), Driver(arguments, tmp_path)]
        started.extend(members)
        _until(lambda: _members(server) == 2, members)
        for number in range(4):
            made += _produce(server, 40 + 40 * number, 40)
        _until(lambda: all(member.count("progress") for member in members), members)
        victim = random.randrange(2)
        members[victim].kill()
        made += _produce(server, 200, 40)
        survivor = members[1 - victim]
        _until(lambda: origins(stored_rows(table)).total() >= made.total(), [survivor])
        assert origins(stored_rows(table)) == made

        # The last batch is committed, the group is left, and nothing of the run remains.
        assert survivor.terminate() == 0, survivor.text
        assert [event["event"] for event in survivor.events if event["event"] in ("stopping", "done")] == [
            "stopping",
            "done",
        ]
        assert origins(stored_rows(table)) == made
        group = server.client.get("/v3/clusters/-/consumer-groups/billing").json()
        assert group["state"] == "EMPTY"
        lags = server.client.get("/v3/clusters/-/consumer-groups/billing/lags").json()["data"]
        assert {(lag["partition_id"], lag["lag"]) for lag in lags} == {(0, 0), (1, 0)}


def _members(server: Server) -> int:
    answer = server.client.get("/v3/clusters/-/consumer-groups/billing/consumers")
    return len(answer.json()["data"]) if answer.status_code == 200 else 0


def _until(condition: Any, watched: list[Driver], within_s: float = 200.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        for driver in watched:
            assert driver.process.poll() is None, driver.text
        assert time.monotonic() < deadline, "\n".join(driver.text for driver in watched)
        threading.Event().wait(0.2)
