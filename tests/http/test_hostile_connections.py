"""Right and wrong small requests at once, on connections that behave badly: each gets its own answer and no other's.

Small requests are gathered and appended together; none may fail, or succeed, because of its company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests import counts
from tests.http.checks import V3, fetch
from tests.support.hostile_connections import play
from tests.support.logs import eventually
from tests.support.server import running

AT_ONCE = 64
PARTITIONS = 3
CONFIGS = {"cleanup.policy": "compact", "max.message.bytes": "2000"}


def all_records(http: httpx.Client, partition: int) -> Iterator[dict[str, Any]]:
    offset = 0
    while True:
        page = fetch(http, "busy", offset, partition=partition, max_records=1000)
        yield from page["data"]
        if page["next_offset"] == page["high_watermark"]:
            return
        offset = page["next_offset"]


def test_each_request_gets_its_own_answer(tmp_path: Path) -> None:
    with running(tmp_path / "root", SLUICE_REQUEST_TIMEOUT_MS="20000") as server:
        configs = [{"name": name, "value": value} for name, value in CONFIGS.items()]
        body = {"topic_name": "busy", "partitions_count": PARTITIONS, "configs": configs}
        assert server.client.post(f"{V3}/topics", json=body).status_code == 201
        url = httpx.URL(server.url)
        story = asyncio.run(play(url.host, url.port or 80, "busy", counts.HOSTILE_CONNECTIONS, AT_ONCE))
        stored = {
            (partition, record["offset"]): record["value"]
            for partition in range(PARTITIONS)
            for record in all_records(server.client, partition)
        }
        assert server.client.get("/readyz").status_code == 200
        # Nothing is left over of those that went away.
        for gauge in ("request_memory_bytes 0", "long_polls_waiting 0", "http_requests_active 1"):
            eventually(lambda gauge=gauge: f"sluice_{gauge}\n" in server.client.get("/metrics").text, 5)
    assert len(story.stored) > counts.HOSTILE_CONNECTIONS // 2
    assert len(set(story.stored.values())) == len(story.stored)
    assert {value: stored[place] for value, place in story.stored.items()} == {value: value for value in story.stored}
    others = set(stored.values()) - story.stored.keys()
    assert others <= story.unknown
    assert len(stored) == len(story.stored) + len(others)
