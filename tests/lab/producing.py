"""Producers of every kind. Each has one request at a time; idempotent ones repeat it until they hear its end."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import pyarrow as pa

from sluice.api.client import Delivery, SluiceClient
from tests.lab.client import ACK_MS, CLUSTER, EVENTS, KEYS, ORDERS, Client, Refusal, Surroundings, Unknown
from tests.lab.history import Operation, now
from tests.lab.storage import NAME

KEY_COUNT = 15
GIVE_UP_S = 8.0
"""How long a repeat may go on once all is to end."""
ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Kind:
    topic: str
    acks: Literal["0", "1", "all"]
    body: Literal["json", "binary", "arrow"] = "json"
    partition: int | None = None
    mode: Literal["partition", "topic"] | None = None
    """Of its idempotence."""
    keyed: bool = False


KINDS = {
    "json-all": Kind(ORDERS, "all"),
    "json-1": Kind(ORDERS, "1", partition=0),
    "json-0": Kind(ORDERS, "0"),
    "arrow-all": Kind(ORDERS, "all", "arrow", partition=1),
    "arrow-1": Kind(EVENTS, "1", "arrow"),
    "each-all": Kind(ORDERS, "all", "binary", partition=0, mode="partition"),
    "each-1": Kind(ORDERS, "1", partition=1, mode="partition"),
    "spread-all": Kind(ORDERS, "all", "arrow", mode="topic"),
    "spread-1": Kind(EVENTS, "1", mode="topic"),
    "keyed-all": Kind(KEYS, "all", mode="topic", keyed=True),
    "keyed-plain": Kind(KEYS, "all", keyed=True),
    "keyed-1": Kind(KEYS, "1", "arrow", keyed=True),
}
_LOST = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


class Producing(Client):
    pause_s = 0.06

    def __init__(self, around: Surroundings, name: str) -> None:
        super().__init__(around, name)
        self._kind = KINDS[name]
        self._identities = itertools.count()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Another producer id, under another name: its numbers and sequences start again."""
        self._producer = f"{self.name}.{next(self._identities)}"
        self._identity: dict[str, str] | None = None
        self._number = self._sequence = 0

    def once(self) -> None:
        kind = self._kind
        if kind.mode is not None and self._identity is None:
            made = self.send("POST", f"{CLUSTER}/producers", json={"mode": kind.mode}).json()
            self._identity = {
                "Sluice-Producer-Id": str(made["producer_id"]),
                "Sluice-Producer-Epoch": str(made["producer_epoch"]),
            }
        count = self.dice.randint(1, 4)
        fields: dict[str, Any] = {}
        if kind.keyed:
            fields["keys"] = [f"k{self.dice.randrange(KEY_COUNT)}" for _ in range(count)]
            fields["tombstones"] = [index for index in range(count) if self.dice.random() < 0.1]
        number = self._number
        names = [f"{self._producer}:{number}:{index}" for index in range(count)]
        values = [None if index in fields.get("tombstones", ()) else name for index, name in enumerate(names)]
        operation = self.recorder.invoke(
            self.name,
            "produce",
            topic=kind.topic,
            partition=kind.partition,
            producer=self._producer,
            number=number,
            count=count,
            acks=kind.acks,
            idempotent=kind.mode is not None,
            **fields,
        )
        self._number += 1
        content, media = _body(kind, names, values, fields.get("keys"))
        if kind.mode is None:
            self._once(operation, content, media)
        else:
            self._until_told(operation, content, media)
            self._sequence += count if kind.mode == "partition" else 1

    def _post(self, content: bytes, media: str) -> Told:
        kind = self._kind
        path = f"/topics/{kind.topic}" + ("" if kind.partition is None else f"/partitions/{kind.partition}")
        headers = {"Content-Type": media}
        if self._identity is not None:
            headers |= self._identity | {"Sluice-Sequence": str(self._sequence)}
        params = {"acks": kind.acks, "timeout_ms": str(ACK_MS), "response": "full"}
        answer = self.send("POST", path, content=content, headers=headers, params=params).json()
        return told_of(answer["offsets"], kind.acks)

    def _once(self, operation: Operation, content: bytes, media: str) -> None:
        try:
            operation.ok(**self._post(content, media))
        except Refusal as error:
            operation.fail(error.error)
        except Unknown as error:
            operation.info(str(error))

    def _until_told(self, operation: Operation, content: bytes, media: str) -> None:
        given_up = None
        while True:
            why = "some partitions refused"
            try:
                told = self._post(content, media)
                if all(one is not None and one[1] >= 0 for one in told["at"]):
                    operation.ok(**told)
                    return
            except Refusal as error:
                why = str(error)
                if error.error in _LOST:
                    operation.info(why)
                    self._begin_anew()
                    raise
            except Unknown as error:
                why = str(error)
            if self.stopping.is_set():
                given_up = given_up or now() + GIVE_UP_S
                if now() > given_up:
                    operation.info(why)
                    raise Unknown(why)
            self.stopping.wait(0.05)


Told = dict[str, list[Any]]


def told_of(entries: Sequence[Mapping[str, Any]], acks: str) -> Told:
    """Where the records of an answer are. One with an error of 4xx was refused, of others nobody knows."""
    at: list[list[int] | None] = []
    unplaced = []
    for index, one in enumerate(entries):
        if code := one["error_code"]:
            refused = int(str(code)[:3]) < httpx.codes.INTERNAL_SERVER_ERROR
            at.append(None if refused else [-1, -1])
        elif acks == "0" or one["offset"] >= 0:
            at.append([one["partition"], one["offset"]])
        else:
            at.append([-1, -1])
            unplaced.append(index)
    return {"at": at} | ({"unplaced": unplaced} if unplaced else {})


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_body(names: Sequence[str], values: Sequence[str | None], keys: Sequence[str] | None) -> bytes:
    columns = {"value": pa.array([None if value is None else value.encode() for value in values], pa.binary())}
    if keys is not None:
        # As JSON has them, so that a key is the same key and in the same partition whoever sends it.
        columns["key"] = pa.array([json.dumps(key).encode() for key in keys], pa.binary())
        # A tombstone is known by its header, also in a file that was set aside.
        named = [[{"key": NAME, "value": json.dumps(name).encode()}] for name in names]
        unnamed = [None if value is not None else one for value, one in zip(values, named, strict=True)]
        columns["headers"] = pa.array(unnamed, HEADERS)
    table, sink = pa.table(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _body(kind: Kind, names: list[str], values: list[str | None], keys: list[str] | None) -> tuple[bytes, str]:
    if kind.body == "arrow":
        return arrow_body(names, values, keys), ARROW
    records: list[dict[str, Any]] = [{"value": value} for value in values]
    for record, name, key in zip(records, names, keys or (), strict=False):
        record["key"] = key
        if record["value"] is None:
            record["headers"] = [{"name": NAME, "value": base64.b64encode(name.encode()).decode()}]
    if kind.body == "binary":
        for record in records:
            record["value"] = base64.b64encode(record["value"].encode()).decode()
        return json.dumps({"records": records}).encode(), "application/vnd.kafka.binary.v2+json"
    return json.dumps({"records": records}).encode(), "application/json"


class ThePythonProducer(Client):
    """The producer of our own client: it gathers, sends and repeats by itself."""

    pause_s = 0.02

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, "python")
        self._client = SluiceClient(around.url)
        self._inner = self._client.producer(delivery_timeout_ms=8_000, request_timeout_ms=ACK_MS)
        self._number = 0

    def once(self) -> None:
        number, self._number = self._number, self._number + 1
        operation = self.recorder.invoke(
            self.name,
            "produce",
            topic=ORDERS,
            producer=f"{self.name}.0",
            number=number,
            count=1,
            acks="all",
            idempotent=True,  # its default; one thread sends, so the numbers are in the order of sending
        )

        def done(future: Future[Delivery]) -> None:
            if (error := future.exception()) is not None:
                operation.info(repr(error)[:200])
            else:
                found = future.result()
                operation.ok(
                    **told_of([{"error_code": None, "partition": found.partition, "offset": found.offset}], "all")
                )

        self._inner.send(ORDERS, f"{self.name}.0:{number}:0".encode()).add_done_callback(done)

    def end(self) -> None:
        self._inner.close(GIVE_UP_S)
        self._client.close()


class Slow(Client):
    """Sends a request piece by piece, and now and then gives up in the middle of it: that one must leave no trace."""

    pause_s = 0.3

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, "slow")
        self._number = 0

    def once(self) -> None:
        number, self._number = self._number, self._number + 1
        value = f"{self.name}.0:{number}:0"
        operation = self.recorder.invoke(
            self.name, "produce", topic=ORDERS, partition=0, producer=f"{self.name}.0", number=number, count=1, acks="1"
        )
        body = json.dumps({"records": [{"value": value}]}).encode()
        head = (
            f"POST /topics/{ORDERS}/partitions/0?acks=1 HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        gives_up = self.dice.random() < 0.4
        try:
            answer = self._exchange(head + body, len(head) + len(body) // 2 if gives_up else None)
        except (OSError, Unknown) as error:
            # Without its last bytes it was no request, however the connection ended.
            operation.fail("given up") if gives_up else operation.info(repr(error))
            return
        if gives_up:
            operation.fail("given up")
        elif answer is None:
            operation.info("no whole answer")
        else:
            operation.ok(**told_of(answer["offsets"], "1"))

    def _exchange(self, request: bytes, until: int | None) -> dict[str, Any] | None:
        url = httpx.URL(self.around.url)
        with socket.create_connection((url.host, url.port or 80), timeout=6.0) as connection:
            pieces = max(2, self.dice.randint(2, 8))
            size = -(-len(request) // pieces)
            for begin in range(0, len(request[:until]), size):
                connection.sendall(request[:until][begin : begin + size])
                self.stopping.wait(self.dice.uniform(0.0, 0.15))
            if until is not None:
                return None
            answer = b""
            with contextlib.suppress(TimeoutError):
                while piece := connection.recv(64):
                    answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Unknown(head[:30].decode("latin-1"))
        with contextlib.suppress(ValueError):
            found: dict[str, Any] = json.loads(body)
            return found
        return None
