"""The other end of the HTTP benchmarks, a process of its own: plain sockets, prepared requests, latencies.

`python -m bench.http_load` reads one line of JSON from stdin and prints one: what it takes from a core is not the
server's, and it does as little as a client can.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import uvloop

from bench.figures import percentile

TICK_S = 0.001
DRAIN_S = 120


def request(path: str, body: bytes, media: str = "application/json", host: str = "127.0.0.1") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._received = b""
        self._transport: asyncio.WriteTransport
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's own class

    def send(self, content: bytes, due: float) -> None:
        self._due = due
        self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._received[:end].lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 :].split(b"\r\n", 1)[0])
        if len(self._received) < end + 4 + length:
            return
        ok = head.startswith((b"http/1.1 200", b"http/1.1 202"))
        if not ok:
            self._load.first_failure = self._load.first_failure or self._received[:500].decode("latin-1")
        self._received = b""
        self._load.answered(self, time.perf_counter() - self._due, ok)

    def connection_lost(self, _error: Exception | None) -> None:
        self._load.lost()


class Load:
    def __init__(self, requests: Sequence[bytes]) -> None:
        self._requests = requests
        self._next = 0
        self.latencies: list[float] = []
        self.failures = 0
        self.first_failure = ""
        self.idle: deque[Connection] = deque()
        self._waiting: deque[float] = deque()
        self._stopping = False
        self._closed_loop = False
        self._at_work = 0
        self._drained = asyncio.Event()

    async def connect(self, port: int, connections: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", port)
            self.idle.append(connection)

    def _send(self, connection: Connection, due: float) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._at_work += 1
        connection.send(self._requests[self._next], due)

    def answered(self, connection: Connection, seconds: float, ok: bool) -> None:
        self._at_work -= 1
        self.failures += not ok
        self.latencies.append(seconds)
        if self._stopping:
            if not self._at_work and not self._waiting:
                self._drained.set()
        elif self._closed_loop:
            self._send(connection, time.perf_counter())
            return
        if self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self.idle.append(connection)

    def lost(self) -> None:
        if not self._stopping:
            raise RuntimeError("the server closed a connection")

    async def _drain(self) -> None:
        """Until everything that was sent is answered, which may be the case already."""
        self._stopping = True
        if self._at_work or self._waiting:
            await asyncio.wait_for(self._drained.wait(), DRAIN_S)

    async def flat_out(self, seconds: float) -> float:
        """Every connection sends as soon as it is answered. Returns the seconds that it took."""
        self._closed_loop = True
        begun = time.perf_counter()
        while self.idle:
            self._send(self.idle.popleft(), time.perf_counter())
        await asyncio.sleep(seconds)
        await self._drain()
        return time.perf_counter() - begun

    async def paced(self, rate: float, seconds: float) -> float:
        """Requests at fixed moments, whatever the answers do; measured from the moment each was due."""
        begun = time.perf_counter()
        sent, total = 0, int(rate * seconds)
        while sent < total:
            now = time.perf_counter()
            while sent < total and (due := begun + sent / rate) <= now:
                if self.idle:
                    self._send(self.idle.popleft(), due)
                else:
                    self._waiting.append(due)
                sent += 1
            # Not busily until the next is due: the processors are shared with the server.
            await asyncio.sleep(TICK_S)
        await self._drain()
        return time.perf_counter() - begun


class Poll(asyncio.Protocol):
    """A long poll, woken again and again."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport
        self.answered: asyncio.Future[float]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def send(self, content: bytes) -> None:
        self.answered = asyncio.get_running_loop().create_future()
        self._transport.write(content)

    def data_received(self, _data: bytes) -> None:
        """The answers are small: the first piece is the answer."""
        if not self.answered.done():
            self.answered.set_result(time.perf_counter())


async def polls(order: dict[str, Any]) -> dict[str, Any]:
    """How long after the acknowledgement of a commit each of many waiting polls is answered."""
    loop, port, topic = asyncio.get_running_loop(), order["port"], order["topic"]
    waiting = [(await loop.create_connection(Poll, "127.0.0.1", port))[1] for _ in range(order["connections"])]
    _, producer = await loop.create_connection(Poll, "127.0.0.1", port)
    delays: list[float] = []
    for offset in range(order["first"], order["first"] + order["rounds"]):
        path = f"/v3/clusters/-/topics/{topic}/partitions/0/records?offset={offset}&max_wait_ms=60000"
        content = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for poll in waiting:
            poll.send(content)
        await asyncio.sleep(order["settle_s"])
        if any(poll.answered.done() for poll in waiting):
            raise RuntimeError("a poll did not wait")
        producer.send(request(f"/topics/{topic}/partitions/0", b'{"records":[{"value":1}]}'))
        committed = await producer.answered
        times = await asyncio.wait_for(asyncio.gather(*(poll.answered for poll in waiting)), 60)
        delays += [max(0.0, moment - committed) for moment in times]
    return {f"p{share:g}": percentile(delays, share) for share in (50, 99, 100)}


async def idle(order: dict[str, Any]) -> dict[str, Any]:
    """Polls that wait until stdin is closed."""
    loop, port, topic = asyncio.get_running_loop(), order["port"], order["topic"]
    path = f"/v3/clusters/-/topics/{topic}/partitions/0/records?offset={order['first']}&max_wait_ms=60000"
    content = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    for _ in range(order["connections"]):
        _, poll = await loop.create_connection(Poll, "127.0.0.1", port)
        poll.send(content)
    print("waiting", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    return {}


async def run(order: dict[str, Any]) -> dict[str, Any]:
    if "polls" in order:
        return await {"wake": polls, "idle": idle}[order["polls"]](order)
    pairs = order.get("requests") or [(path, body) for body in order["bodies"] for path in order["paths"]]
    media = order.get("media", "application/json")
    load = Load([request(path, body.encode("latin-1"), media) for path, body in pairs])
    await load.connect(order["port"], order["connections"])
    cpu = time.process_time()
    took = await (load.paced(order["rate"], order["seconds"]) if order.get("rate") else load.flat_out(order["seconds"]))
    return {
        "requests": len(load.latencies),
        "seconds": took,
        "failures": load.failures,
        "first_failure": load.first_failure,
        "own_cores": (time.process_time() - cpu) / took,
        **{f"p{share:g}": percentile(load.latencies, share) for share in (50, 99, 99.9)},
        **({"latencies": load.latencies} if order.get("latencies") else {}),
    }


def main() -> None:
    print(json.dumps(uvloop.run(run(json.loads(sys.stdin.readline())))))


if __name__ == "__main__":
    main()
