"""What tests of played queries in groups look at."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from sluice.api.client import CommittedOffset, Record, SluiceClient, TopicPartition
from sluice.log_store.errors import GroupIdNotFound
from tests.support.played_query import PlayedQuery, Row
from tests.support.server import Server

PATIENCE_S = 60.0
QUICK = {"group.heartbeat.interval.ms": "50", "group.session.timeout.ms": "20000", "startingOffsets": "earliest"}
Make = Callable[..., PlayedQuery]


def fill(client: SluiceClient, topic: str, count: int, partitions: int = 3) -> set[Row]:
    """`count` more records in each partition; all that there are now."""
    client.produce(topic, [Record(value=b"x", partition=number) for number in range(partitions) for _ in range(count)])
    return {(topic, found.partition, o) for found in client.offsets(topic) for o in range(found.latest)}


def until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def offsets(client: SluiceClient, group: str) -> dict[TopicPartition, CommittedOffset]:
    return client.groups.offsets(group)


def members(client: SluiceClient, group: str) -> int:
    with suppress(GroupIdNotFound):
        return len(client.groups.members(group))
    return 0


def id_of(server: Server, topic: str) -> str:
    found: str = server.client.get(f"/v3/clusters/-/topics/{topic}").json()["topic_id"]
    return found


def read_by(*queries: PlayedQuery) -> Counter[Row]:
    return Counter(row for query in queries for row in query.rows)


def once_each(rows: set[Row]) -> Counter[Row]:
    return Counter(dict.fromkeys(rows, 1))
