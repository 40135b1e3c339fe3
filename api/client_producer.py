"""The batching producer: gathers, sends in order, repeats what failed, and adds nothing twice.

One thread sends, one request at a time, because the server takes the numbered requests of a producer in order only.
While an answer is awaited the next batches fill, so throughput grows with the batches, not with the requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

import httpx
import pyarrow as pa

from sluice.api.client_buffer import Batch, Buffer, BufferLimits
from sluice.api.client_codec import ARROW, BINARY, JSON, arrow_body, arrow_of, binary_body, compressed, json_body
from sluice.api.client_produce import ProduceRequest, Stamp, deliveries, partition_deliveries, send
from sluice.api.client_values import (
    Acks,
    Compression,
    Delivery,
    Headers,
    PartitionDelivery,
    ProducerIdentity,
    Record,
)
from sluice.log_store.errors import InvalidProducerEpoch, ProducerFenced, SluiceError
from sluice.streaming.http_client import Connection, RetryPolicy
from sluice.streaming.http_errors import ProducerClosed, RequestFailed

FEW = 16
"""Records below which base64 in JSON is cheaper than an Arrow stream."""
Callback = Callable[[Delivery | None, BaseException | None], object]
"""Called by the sending thread with where the record went, or with why it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    acks: Acks = "all"
    idempotent: bool = True
    """A repeat after a lost answer adds nothing twice. Not possible with acks=0."""
    name: str | None = None
    """A named producer keeps its id over restarts, and fences whoever used the name before."""
    format: Literal["raw", "json"] = "raw"
    """raw: any bytes. json: keys and values are JSON texts, and the server checks that they are."""
    compression: Compression = "none"
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    """From `send` to the last repeat."""
    limits: BufferLimits = field(default_factory=BufferLimits)


class Producer:
    """Thread-safe. Use it as a context manager, or call `close`: what was not flushed is lost otherwise."""

    def __init__(self, connection: Connection, options: ProducerOptions | None = None) -> None:
        self._connection = connection
        self._options = options or ProducerOptions()
        self._buffer = Buffer(self._options.limits, connection.clock)
        self._identity: ProducerIdentity | None = None
        self._policy = RetryPolicy(budget_s=self._options.delivery_timeout_ms / 1000)
        self._fenced: RequestFailed | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sluice-producer", daemon=True)
        self._thread.start()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: Callback | None = None,
    ) -> Future[Delivery]:
        """Queue one record. Blocks while the buffer is full; raises BufferFull after `max_block_ms`."""
        if self._fenced is not None:
            raise self._fenced
        record = Record(value=value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        future = self._buffer.add(topic, record)
        if on_delivery is not None:
            future.add_done_callback(lambda done: _call(on_delivery, done))
        return future

    def send_arrow(self, topic: str, table: pa.Table) -> Future[list[PartitionDelivery]]:
        """Queue a table with a column `value` and optionally key, partition, timestamp, headers, as one request."""
        if self._fenced is not None:
            raise self._fenced
        return self._buffer.add_table(topic, table)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent so far is answered; the futures say how."""
        if not self._buffer.flush(timeout_s):
            raise TimeoutError("not everything was answered in time")

    def close(self, timeout_s: float | None = None) -> None:
        """Send and await what is queued. What is left after `timeout_s` fails with ProducerClosed."""
        self._buffer.close()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._stopped.set()
            self._buffer.abandon(ProducerClosed("the producer was closed before the record was sent"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the sending thread --------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._buffer.take()) is not None:
            try:
                self._deliver(batch)
            except Exception as error:  # noqa: BLE001  # whoever waits for the batch must hear of it, whatever it is
                batch.fail(error)
            finally:
                self._buffer.done(batch)

    def _deliver(self, batch: Batch) -> None:
        if self._fenced is not None:
            raise self._fenced
        connection = self._connection
        request = self._request(batch)
        try:
            response = connection.repeat(
                lambda: send(connection, request),
                self._policy,
                lambda _: not self._stopped.is_set(),
                elapsed_s=connection.clock.boottime() - batch.created,
                wait=connection.given_wait or self._stopped.wait,
            )
        except RequestFailed as error:
            self._forget_identity(error)
            if "response" not in error.fields:
                raise
            response = error.fields["response"]
        else:
            if self._identity is not None and request.stamp is not None:
                self._identity.sequences[batch.topic] = request.stamp.sequence + 1
        _resolve(batch, request, response)

    def _forget_identity(self, error: RequestFailed) -> None:
        """Whether the failed request took its sequence is not known, so the next one starts under a new identity."""
        self._identity = None
        if isinstance(error, ProducerFenced | InvalidProducerEpoch):
            self._fenced = error

    def _request(self, batch: Batch) -> ProduceRequest:
        options = self._options
        if batch.table is not None:
            plain, kind, count = arrow_body(batch.table), ARROW, batch.table.num_rows
        elif options.format == "json":
            plain, kind, count = json_body(batch.records), JSON, len(batch.records)
        elif len(batch.records) < FEW:
            plain, kind, count = binary_body(batch.records), BINARY, len(batch.records)
        else:
            plain, kind, count = arrow_body(arrow_of(batch.records)), ARROW, len(batch.records)
        content, headers = compressed(plain, options.compression)
        return ProduceRequest(
            topic=batch.topic,
            content=content,
            content_type=kind,
            count=count,
            headers=headers,
            acks=options.acks,
            timeout_ms=options.request_timeout_ms,
            stamp=self._stamp(batch.topic),
            answer="full" if batch.table is None else "summary",
        )

    def _stamp(self, topic: str) -> Stamp | None:
        if not self._options.idempotent or self._options.acks == "0":
            return None
        if self._identity is None:
            self._identity = new_identity(self._connection, self._options.name, self._policy)
        identity = self._identity
        return Stamp(
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            sequence=identity.sequences.get(topic, 0),
        )


def new_identity(connection: Connection, name: str | None, policy: RetryPolicy) -> ProducerIdentity:
    """A producer id for requests addressed to topics. Asking twice only uses up a number."""
    body = {"mode": "topic"} | ({} if name is None else {"name": name})
    answer = connection.json("POST", "/v3/clusters/-/producers", body=body, repeatable=True, policy=policy)
    return ProducerIdentity(producer_id=answer["producer_id"], producer_epoch=answer["producer_epoch"])


def _resolve(batch: Batch, request: ProduceRequest, response: httpx.Response) -> None:
    if batch.table_future is not None:
        batch.table_future.set_result(partition_deliveries(response))
        return
    for future, outcome in zip(batch.futures, deliveries(request, response), strict=True):
        if isinstance(outcome, SluiceError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _call(callback: Callback, done: Future[Delivery]) -> None:
    error = done.exception()
    callback(None if error is not None else done.result(), error)
