"""A service that does what a test tells it, below a real client: records, a group of one, errors on demand."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from typing import Any
from urllib.parse import unquote

import httpx
import pyarrow as pa

from sluice.api.client_codec import ARROW
from sluice.log_store.errors import SluiceError
from sluice.log_store.records import STORED_SCHEMA, make_batch

PREFIX = "/v3/clusters/-/"
Partition = tuple[str, int]


class ScriptedService(httpx.BaseTransport):
    def __init__(self, **topics: int) -> None:
        self.changed = threading.Condition()
        self.topics = dict(topics)
        self.logs: dict[Partition, list[bytes]] = {(t, p): [] for t, n in topics.items() for p in range(n)}
        self.starts: dict[Partition, int] = defaultdict(int)
        self.committed: dict[Partition, int] = {}
        self.commits: list[dict[str, Any]] = []
        self.joins: list[dict[str, Any]] = []
        self.leaves: list[str] = []
        self.generation = 0
        self.assignment: list[Partition] | None = None
        """None: everything."""
        self.errors: dict[str, deque[SluiceError]] = defaultdict(deque)
        """By the end of the path: answered first, one each."""
        self.down = False
        self.hold_joins = threading.Event()
        self.hold_joins.set()

    # --- for tests -------------------------------------------------------------------------------

    def fill(self, topic: str, partition: int, count: int) -> None:
        with self.changed:
            log = self.logs[topic, partition]
            log.extend(b"%s-%d-%d" % (topic.encode(), partition, len(log) + n) for n in range(count))
            self.changed.notify_all()

    def grow(self, topic: str, partitions: int) -> None:
        with self.changed:
            self.topics[topic] = partitions
            for number in range(partitions):
                self.logs.setdefault((topic, number), [])

    def refuse(self, call: str, *errors: SluiceError) -> None:
        self.errors[call].extend(errors)

    # --- HTTP ------------------------------------------------------------------------------------

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("nobody listens", request=request)
        path = request.url.path.removeprefix(PREFIX)
        call = path.rpartition("/")[2].rpartition(":")[2]
        if self.errors[call]:
            return _refusal(self.errors[call].popleft())
        body = json.loads(request.read() or b"{}")
        parts = [unquote(part) for part in path.split("/")]
        if parts == ["topics"]:
            rows = [{"topic_name": name, "partitions_count": count} for name, count in self.topics.items()]
            return httpx.Response(200, json={"data": rows})
        if parts[0] == "topics":
            return self._partition(request, (parts[1], int(parts[3])), parts[4])
        with self.changed:
            return httpx.Response(200, json=getattr(self, f"_{call}")(request.method, body))

    def _partition(self, request: httpx.Request, one: Partition, what: str) -> httpx.Response:
        if what == "offset":
            ends = {"earliest_offset": self.starts[one], "latest_offset": len(self.logs[one])}
            return httpx.Response(200, json=ends)
        offset, wait_ms = int(request.url.params["offset"]), int(request.url.params["max_wait_ms"])
        with self.changed:
            if not self.starts[one] <= offset <= len(self.logs[one]):
                return httpx.Response(416, json={"error": "OFFSET_OUT_OF_RANGE", "message": "gone", "error_code": 416})
            self.changed.wait_for(lambda: len(self.logs[one]) > offset or self.down, wait_ms / 1000)
            found = self.logs[one][offset:]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, STORED_SCHEMA) as writer:
            if found:
                writer.write_batch(stored(found, offset))
        following = offset + len(found)
        headers = {
            "Content-Type": ARROW,
            "Sluice-High-Watermark": str(following),
            "Sluice-Log-Start-Offset": str(self.starts[one]),
            "Sluice-Next-Offset": str(following),
        }
        return httpx.Response(200, content=sink.getvalue().to_pybytes(), headers=headers)

    def _join(self, _method: str, body: dict[str, Any]) -> dict[str, Any]:
        self.changed.wait_for(self.hold_joins.is_set, 20)
        self.joins.append(body)
        self.generation += 1
        member_id = body["member_id"] or f"member-{len(self.joins)}"
        protocol = body["protocols"][0]
        members = [{"member_id": member_id, "group_instance_id": None, "metadata": protocol["metadata"]}]
        return {
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": protocol["name"],
            "leader": member_id,
            "member_id": member_id,
            "skip_assignment": False,
            "members": members,
        }

    def _sync(self, _method: str, body: dict[str, Any]) -> dict[str, Any]:
        topics = self.joins[-1]["protocols"][0]["metadata"]["topics"]
        everything = [(t, p) for t in topics for p in range(self.topics.get(t, 0))]
        found = everything if self.assignment is None else self.assignment
        return {"protocol_type": "consumer", "protocol_name": body["protocol_name"], "assignment": found}

    def _heartbeat(self, _method: str, _body: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _leave(self, _method: str, body: dict[str, Any]) -> dict[str, Any]:
        self.leaves += [member["member_id"] for member in body["members"]]
        return {"members": []}

    def _offsets(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        if method == "GET":
            rows = [{"topic_name": t, "partition_id": p, "offset": o} for (t, p), o in self.committed.items()]
            return {"offsets": rows}
        self.commits.append(body)
        for entry in body["offsets"]:
            self.committed[entry["topic_name"], entry["partition_id"]] = entry["offset"]
        return {"offsets": []}


def stored(values: list[bytes], first: int) -> pa.RecordBatch:
    batch = make_batch([{"value": value} for value in values], default_ms=1_000)
    offsets = pa.array(range(first, first + len(values)), pa.int64())
    return pa.RecordBatch.from_arrays([offsets, *batch.columns], schema=STORED_SCHEMA)


def _refusal(error: SluiceError) -> httpx.Response:
    body = {
        "error_code": 409,
        "message": error.message,
        "error": error.error,
        "retriable": error.retriable,
        "details": error.fields,
    }
    return httpx.Response(503 if error.retriable else 409, json=body, headers={"Retry-After": "0"})
