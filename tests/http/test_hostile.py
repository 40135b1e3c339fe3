"""Hostile bodies at a real service: refused with a reason or stored whole, never a 5xx, and nothing in between."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import counts
from tests.http.checks import V3, error_of, fetch
from tests.support.hostile import CALLS, Attack, attacks
from tests.support.server import Server, running

LIMIT = 8 << 20
SENDERS = 16
PARTITIONS = 3
TOPIC = "attacked"
SETTINGS = {"SLUICE_REQUEST_MAX_BYTES": str(LIMIT), "SLUICE_REQUEST_TIMEOUT_MS": "20000"}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("hostile") / "root", **SETTINGS) as found:
        body = {"topic_name": TOPIC, "partitions_count": PARTITIONS}
        assert found.client.post(f"{V3}/topics", json=body).status_code == 201
        yield found


def test_hostile_bodies(attacked: Server) -> None:
    """Every offset below the high watermark was told to exactly one request: what was refused left nothing behind."""
    stored: Counter[tuple[int, int]] = Counter()
    statuses: Counter[int] = Counter()

    async def sender(client: httpx.AsyncClient, work: Iterator[Attack]) -> None:
        for attack in work:
            answer = await client.post(
                CALLS[attack.call].path.format(t=TOPIC), content=attack.body, headers=attack.headers
            )
            statuses[answer.status_code] += 1
            stored.update(accepted(attack, answer))

    async def all_senders() -> None:
        async with httpx.AsyncClient(base_url=attacked.url, timeout=60) as client:
            work = attacks(counts.HOSTILE_BODIES)
            await asyncio.gather(*(sender(client, work) for _ in range(SENDERS)))

    pid = attacked.pid
    asyncio.run(all_senders())
    assert attacked.alive, f"the service died: {pid}"
    assert set(stored.values()) <= {1}
    for partition in range(PARTITIONS):
        end = fetch(attacked.client, TOPIC, partition=partition, max_records=1, format="binary")["high_watermark"]
        assert {offset for number, offset in stored if number == partition} == set(range(end)), partition
    # The attacks are near enough to what is right that some are, and far enough that most are not.
    assert statuses[200] > counts.HOSTILE_BODIES // 50
    assert sum(count for status, count in statuses.items() if status >= 400) > counts.HOSTILE_BODIES // 2


def accepted(attack: Attack, answer: httpx.Response) -> list[tuple[int, int]]:
    """(partition, offset) of what was stored, after checking that everything else was refused in our shape."""
    assert answer.status_code < 500, (str(attack), answer.text)
    if answer.status_code >= 400:
        refused(str(attack), error_of(answer, answer.status_code))
        return []
    found: list[tuple[int, int]] = []
    for report in reports(answer):
        if report.get("error_code") in (None, 200):
            found.append((report.get("partition", report.get("partition_id")), report["offset"]))
        elif "message" in report:
            refused(str(attack), report)
    return found


def reports(answer: httpx.Response) -> list[dict[str, Any]]:
    """One per record, whichever call it was."""
    lines = [json.loads(line) for line in answer.text.split("\n") if line]
    found: list[dict[str, Any]] = []
    for line in lines:
        if "successes" in line:
            found += [*line["successes"], *line["failures"]]
        elif "partitions" in line:
            found += [
                {"partition": part["partition"], "offset": part["base_offset"] + n}
                for part in line["partitions"]
                for n in range(part["count"])
            ]
        else:
            found += line.get("offsets", [line])
    return found


def refused(told_by: str, body: dict[str, Any]) -> None:
    """It names the field, in words or in `details`, and the rule."""
    field = (body.get("details") or {}).get("field")
    by_words = {int(str(body["error_code"])[:3])} & {404, 409, 416}  # no field is wrong: something is not there
    assert field or ": " in body["message"] or by_words, (told_by, body)
    assert len(body["message"]) < 1100, told_by
