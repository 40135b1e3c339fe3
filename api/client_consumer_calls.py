"""The HTTP calls of a consumer, each tried once: who calls decides whether and when to try again."""

from __future__ import annotations

from sluice.api.client_codec import ARROW, fetched_table
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_consumer_positions import Question
from sluice.api.client_values import FetchedTable
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection
from sluice.streaming.http_paths import topic_path
from sluice.streaming.membership.calls import MARGIN_S, GroupCalls
from sluice.streaming.membership.offsets import ONCE

MOST_RECORDS = 100_000


class ConsumerCalls(GroupCalls):
    def __init__(self, connection: Connection, options: ConsumerOptions) -> None:
        super().__init__(connection, options)
        self._fetch_min_bytes = options.fetch_min_bytes

    def fetch(self, question: Question, max_bytes: int, wait_ms: int) -> FetchedTable:
        one = question.partition
        response = self._connection.call(
            "GET",
            f"{topic_path(one.topic)}/partitions/{one.partition}/records",
            params={
                "offset": question.offset,
                "max_records": MOST_RECORDS,
                "max_bytes": max_bytes,
                "min_bytes": self._fetch_min_bytes,
                "max_wait_ms": wait_ms,
            },
            headers={"Accept": ARROW},
            timeout_s=wait_ms / 1000 + MARGIN_S,
            repeatable=False,
            policy=ONCE,
        )
        return fetched_table(response)

    def ends(self, one: TopicPartition) -> tuple[int, int]:
        """Where the partition begins and ends."""
        path = f"{topic_path(one.topic)}/partitions/{one.partition}/offset"
        found = self._json("GET", path, params={"offset_type": "earliest_and_latest"})
        return found["earliest_offset"], found["latest_offset"]
