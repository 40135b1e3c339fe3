"""The Python client: topics, produce, read, over HTTP. Synchronous, typed, thread-safe.

::

    with SluiceClient("http://127.0.0.1:8080") as client:
        client.topics.create("orders", partitions=3)
        with client.producer() as producer:
            producer.send("orders", b'{"item":"lamp"}', key=b"c-7")
        for record in client.reader("orders", stop_at_end=True):
            ...
        with client.consumer(group="billing") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer: ...

Errors are those of `client_errors`; nothing of httpx gets out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import httpx
import pyarrow as pa

from sluice.api.client_buffer import BufferLimits
from sluice.api.client_codec import (
    ARROW,
    BINARY,
    arrow_body,
    binary_body,
    compressed,
    fetched_json,
    fetched_rows,
    fetched_table,
)
from sluice.api.client_consumer import ConsumedTable, Consumer
from sluice.api.client_consumer_options import ConsumerOptions
from sluice.api.client_groups import GroupInfo, Groups, MemberInfo, PartitionLag, PlannedOffset
from sluice.api.client_produce import ProduceRequest, deliveries, partition_deliveries, send
from sluice.api.client_producer import Producer, ProducerOptions
from sluice.api.client_reader import Reader, ReaderOptions
from sluice.api.client_tokens import NewToken, TokenInfo, Tokens
from sluice.api.client_topics import Topics
from sluice.api.client_values import (
    Acks,
    At,
    Compression,
    ConfigInfo,
    Delivery,
    Fetched,
    FetchedRecord,
    FetchedTable,
    Last,
    PartitionDelivery,
    PartitionOffsets,
    Record,
    TopicInfo,
)
from sluice.log_store.clock import Clock
from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection, RetryPolicy, Wait
from sluice.streaming.http_errors import (
    BufferFull,
    ConnectionFailed,
    ConsumerClosed,
    NoAnswerInTime,
    NoOffsetForPartition,
    ProducerClosed,
    RequestFailed,
    failure_of_record,
)
from sluice.streaming.http_paths import topic_path
from sluice.streaming.membership.offsets import CommittedOffset

__all__ = [
    "At",
    "BufferFull",
    "BufferLimits",
    "CommittedOffset",
    "ConfigInfo",
    "ConnectionFailed",
    "ConsumedTable",
    "Consumer",
    "ConsumerClosed",
    "ConsumerOptions",
    "Delivery",
    "Fetched",
    "FetchedRecord",
    "FetchedTable",
    "GroupInfo",
    "Last",
    "MemberInfo",
    "NewToken",
    "NoAnswerInTime",
    "NoOffsetForPartition",
    "PartitionDelivery",
    "PartitionLag",
    "PartitionOffsets",
    "PlannedOffset",
    "Producer",
    "ProducerClosed",
    "ProducerOptions",
    "Reader",
    "ReaderOptions",
    "Record",
    "RequestFailed",
    "RetryPolicy",
    "SluiceClient",
    "TokenInfo",
    "TopicInfo",
    "TopicPartition",
]

DEFAULT_SERVER = "http://127.0.0.1:8080"
POLL_MARGIN_S = 10.0


class SluiceClient:
    """`ca_file`: the authorities to trust, instead of the usual ones. `transport`, `clock` and `wait` are for tests."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        timeout: float = 30.0,
        *,
        ca_file: str | None = None,
        client_id: str | None = None,
        retry: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        wait: Wait | None = None,
    ) -> None:
        self.connection = Connection(
            server,
            token,
            ca_file=ca_file,
            client_id=client_id,
            timeout_s=timeout,
            retry=retry,
            transport=transport,
            clock=clock,
            wait=wait,
        )
        self.topics = Topics(self.connection)
        self.tokens = Tokens(self.connection)
        self.groups = Groups(self.connection)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- produce -------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        acks: Acks | None = None,
        *,
        partition: int | None = None,
        compression: Compression = "none",
        timeout_ms: int = 30_000,
    ) -> list[Delivery | RequestFailed]:
        """One request, and per record where it went or why it did not. Raises when all failed.

        Repeated only while the server refuses it; use `producer` for repeats that add nothing twice.
        """
        content, headers = compressed(binary_body(records), compression)
        request = ProduceRequest(
            topic=topic,
            content=content,
            content_type=BINARY,
            count=len(records),
            headers=headers,
            acks=acks,
            partition=partition,
            timeout_ms=timeout_ms,
        )
        return deliveries(request, self._send(request))

    def produce_arrow(
        self,
        topic: str,
        table: pa.Table,
        acks: Acks | None = None,
        *,
        partition: int | None = None,
        compression: Compression = "none",
        timeout_ms: int = 30_000,
    ) -> list[PartitionDelivery]:
        """One Arrow request: a column `value`, and optionally `key`, `partition`, `timestamp`, `headers`."""
        content, headers = compressed(arrow_body(table), compression)
        request = ProduceRequest(
            topic=topic,
            content=content,
            content_type=ARROW,
            count=table.num_rows,
            headers=headers,
            acks=acks,
            partition=partition,
            timeout_ms=timeout_ms,
            answer="summary",
        )
        return partition_deliveries(self._send(request))

    def producer(self, options: ProducerOptions | None = None, **changes: Any) -> Producer:
        """A batching producer. `changes` are fields of ProducerOptions: `client.producer(acks="1")`."""
        return Producer(self.connection, options or ProducerOptions(**changes))

    def _send(self, request: ProduceRequest) -> httpx.Response:
        connection = self.connection
        return connection.repeat(lambda: send(connection, request), connection.retry, lambda error: error.refused)

    # --- read ----------------------------------------------------------------------------------

    def reader(self, topic: str, options: ReaderOptions | None = None, **changes: Any) -> Reader:
        """An iterator over records. `changes` are fields of ReaderOptions: `client.reader("t", start="latest")`."""
        return Reader(self, topic, options or ReaderOptions(**changes))

    def consumer(self, options: ConsumerOptions | None = None, **changes: Any) -> Consumer:
        """A member of a consumer group. `changes` are fields of ConsumerOptions: `client.consumer(group="g")`."""
        return Consumer(self.connection, options or ConsumerOptions(**changes))

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_records: int = 5_000,
        max_bytes: int = 8 << 20,
        max_wait_ms: int = 0,
        response_format: Literal["arrow", "json"] = "arrow",
    ) -> Fetched:
        """Records from `offset`; waits up to `max_wait_ms` when there are none yet. Arrow is the faster way."""
        params = {"offset": offset, "max_records": max_records, "max_bytes": max_bytes, "max_wait_ms": max_wait_ms}
        if response_format == "json":
            response = self._fetch(topic, partition, params | {"format": "binary"}, "application/json", max_wait_ms)
            return fetched_json(topic, partition, response)
        return fetched_rows(topic, partition, self._fetch(topic, partition, params, ARROW, max_wait_ms))

    def fetch_arrow(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_records: int = 100_000,
        max_bytes: int = 32 << 20,
        max_wait_ms: int = 0,
    ) -> FetchedTable:
        """The same as a table of offset, timestamp, key, value and headers: nothing is done per record."""
        params = {"offset": offset, "max_records": max_records, "max_bytes": max_bytes, "max_wait_ms": max_wait_ms}
        return fetched_table(self._fetch(topic, partition, params, ARROW, max_wait_ms))

    def _fetch(
        self, topic: str, partition: int, params: Mapping[str, str | int], accept: str, max_wait_ms: int
    ) -> httpx.Response:
        return self.connection.call(
            "GET",
            f"{topic_path(topic)}/partitions/{partition}/records",
            params=params,
            headers={"Accept": accept},
            timeout_s=max_wait_ms / 1000 + POLL_MARGIN_S + self.connection.timeout_s,
            repeatable=True,
        )

    # --- offsets -------------------------------------------------------------------------------

    def offsets(self, topic: str) -> list[PartitionOffsets]:
        """Where each partition begins and ends."""
        return [self._offsets_of(topic, number) for number in range(self.topics.describe(topic).partitions)]

    def _offsets_of(self, topic: str, partition: int) -> PartitionOffsets:
        path = f"{topic_path(topic)}/partitions/{partition}/offset"
        found = self.connection.json("GET", path, params={"offset_type": "earliest_and_latest"}, repeatable=True)
        return PartitionOffsets(partition=partition, earliest=found["earliest_offset"], latest=found["latest_offset"])

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Of the first record that is not older; the end of the partition when there is none."""
        path = f"{topic_path(topic)}/partitions/{partition}/offset"
        found = self.connection.json("GET", path, params={"at": timestamp_ms}, repeatable=True)["offset"]
        return found if found is not None and found >= 0 else self._offsets_of(topic, partition).latest

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete what lies before the given offset, per partition."""
        body = {"offsets": [{"partition": number, "before_offset": offset} for number, offset in before.items()]}
        answer = self.connection.json("POST", f"{topic_path(topic)}/records:delete", body=body, repeatable=True) or {}
        for entry in answer.get("offsets", ()):
            if code := entry.get("error_code"):
                raise failure_of_record(code, f"{entry.get('error')}: {entry.get('message')}")
