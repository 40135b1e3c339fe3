"""A real HTTP proxy on loopback in front of an S3 server, which loses, delays and invents answers on command.

::

    with faulty_proxy(server.port) as proxy:                 # clients are given proxy.endpoint
        proxy.drop("PUT", "*.parquet")                       # next data file: connection closed, nothing forwarded
        proxy.lose("PUT", "*/_delta_log/*")                  # next commit: applied, the answer is never seen
        proxy.answer(503, times=20)                          # SlowDown twenty times, nothing forwarded
        proxy.answer(409, "PUT", after=True)                 # applied and answered with 409 all the same
        proxy.hang("PUT", times=1)                           # no answer until the client gives up
        storm = proxy.drop(times=None, chance=0.1)           # one request in ten, until storm.cancel()
        with proxy.outage(): ...                             # every connection is refused
        proxy.counts, proxy.requests

Clients sign for the proxy's address and the Host header is passed on as it came, so signatures stay valid. A path
matches by shell pattern ('*' crosses '/'); it is the URL's path, with the bucket. Rules are tried oldest first and at
most one hits a request.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias
from urllib.parse import unquote

Kind: TypeAlias = Literal["drop", "answer", "hang", "delay"]
Verb: TypeAlias = Literal["put", "get", "head", "list", "delete"]

HOST = "127.0.0.1"
LIMIT = 1 << 20
"""Of a line or a head; bodies are read by their length."""
_CODES = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 429: "TooManyRequests", 503: "SlowDown"}


@dataclass(eq=False)
class Rule:
    kind: Kind
    method: str
    match: str
    times: int | None
    """How many requests it still hits; None is all of them."""
    chance: float
    after: bool
    """Only once the server has carried the request out."""
    status: int = 0
    seconds: float = 0.0
    hits: int = 0

    def cancel(self) -> None:
        self.times = 0


@dataclass(slots=True)
class Request:
    method: str
    path: str
    verb: Verb
    digest: str
    """Of the body: equal bytes, equal digest."""
    fault: Kind | None
    answered: int = 0
    """Bytes of the answer's body."""


@dataclass(slots=True)
class _Message:
    head: bytes
    body: bytes = b""

    @property
    def first(self) -> list[str]:
        return self.head.partition(b"\r\n")[0].decode("latin-1").split(" ")

    def header(self, name: str) -> str:
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return ""


@dataclass(slots=True)
class _Upstream:
    """The connection to the server that belongs to one connection of a client."""

    port: int
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None)

    async def exchange(self, request: _Message) -> _Message:
        for last in (False, True):
            try:
                return await self._once(request)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()  # the server closed an idle connection, or a request failed for good
                if last:
                    raise
        raise AssertionError

    async def _once(self, request: _Message) -> _Message:
        if self.streams is None:
            self.streams = await asyncio.open_connection(HOST, self.port, limit=LIMIT)
        reader, writer = self.streams
        writer.write(request.head + request.body)
        await writer.drain()
        answer = await _read_message(reader, no_body=request.first[0] == "HEAD")
        if answer.header("connection").lower() == "close":
            self.close()
        return answer

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


class FaultyProxy:
    def __init__(self, upstream_port: int, seed: int = 1) -> None:
        self._upstream_port = upstream_port
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._refuse = False
        self._loop = asyncio.new_event_loop()
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-proxy", daemon=True)
        self.port = 0
        self.requests: list[Request] = []
        """Every request that arrived, in order."""

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def counts(self) -> Counter[Verb]:
        with self._lock:
            return Counter(request.verb for request in self.requests)

    # --- programming ----------------------------------------------------------------------------

    def drop(
        self, method: str = "*", match: str = "*", *, times: int | None = 1, chance: float = 1.0, after: bool = False
    ) -> Rule:
        """Close the connection, before anything is forwarded or in place of the answer."""
        return self._add(Rule("drop", method, match, times, chance, after))

    def lose(self, method: str = "*", match: str = "*", *, times: int | None = 1, chance: float = 1.0) -> Rule:
        return self.drop(method, match, times=times, chance=chance, after=True)

    def answer(
        self,
        status: int,
        method: str = "*",
        match: str = "*",
        *,
        times: int | None = 1,
        chance: float = 1.0,
        after: bool = False,
    ) -> Rule:
        """An error of the proxy's own making."""
        return self._add(Rule("answer", method, match, times, chance, after, status=status))

    def hang(
        self, method: str = "*", match: str = "*", *, times: int | None = 1, chance: float = 1.0, after: bool = False
    ) -> Rule:
        """No answer at all, for as long as the client waits."""
        return self._add(Rule("hang", method, match, times, chance, after))

    def delay(
        self, seconds: float, method: str = "*", match: str = "*", *, times: int | None = 1, chance: float = 1.0
    ) -> Rule:
        return self._add(Rule("delay", method, match, times, chance, after=False, seconds=seconds))

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Nobody is let in, and those who are in are thrown out."""
        self._refuse = True
        self._loop.call_soon_threadsafe(self._throw_out)
        try:
            yield
        finally:
            self._refuse = False

    def clear(self) -> None:
        """Forget all rules; counts stay. Hanging requests stay unanswered."""
        with self._lock:
            for rule in self._rules:
                rule.cancel()
            self._rules.clear()

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    # --- serving --------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0, limit=LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._clients)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _throw_out(self) -> None:
        for writer in self._clients.values():
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = writer
        upstream = _Upstream(self._upstream_port)
        try:
            while not self._refuse and await self._one(reader, writer, upstream):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side went away, or all ends
        finally:
            del self._clients[task]
            upstream.close()
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: _Upstream) -> bool:
        """One request and its answer; False: the connection is to be closed."""
        request = await _read_message(reader, no_body=False)
        noted, rule = self._note(request)
        if rule is not None and rule.kind == "delay":
            await asyncio.sleep(rule.seconds)
            rule = None
        answer = None
        if rule is None or rule.after:
            answer = await upstream.exchange(request)
        if rule is not None:
            if rule.kind == "drop":
                return False
            if rule.kind == "hang":
                await reader.read(1)  # until the client closes
                return False
            answer = _error(rule.status, head_only=request.first[0] == "HEAD")
        assert answer is not None
        noted.answered = len(answer.body)
        writer.write(answer.head + answer.body)
        await writer.drain()
        return "close" not in (answer.header("connection").lower(), request.header("connection").lower())

    def _note(self, request: _Message) -> tuple[Request, Rule | None]:
        method, target = request.first[0], request.first[1]
        path, _, query = target.partition("?")
        path = unquote(path)
        with self._lock:
            rule = next((rule for rule in self._rules if self._hits(rule, method, path)), None)
            digest = hashlib.sha256(request.body).hexdigest() if request.body else ""
            kind = None if rule is None else rule.kind
            noted = Request(method, path, _verb(method, query), digest, kind)
            self.requests.append(noted)
        return noted, rule

    def _hits(self, rule: Rule, method: str, path: str) -> bool:
        if rule.times == 0 or rule.method not in ("*", method) or not fnmatchcase(path, rule.match):
            return False
        if rule.chance < 1 and self._dice.random() >= rule.chance:
            return False
        rule.hits += 1
        if rule.times is not None:
            rule.times -= 1
        return True


@contextmanager
def faulty_proxy(upstream_port: int, seed: int = 1) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream_port, seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


def _verb(method: str, query: str) -> Verb:
    if method == "GET":
        return "list" if "list-type" in query or "prefix=" in query else "get"
    if method == "POST" and "delete" in query:
        return "delete"
    verbs: dict[str, Verb] = {"PUT": "put", "POST": "put", "HEAD": "head", "DELETE": "delete"}
    return verbs[method]


def _error(status: int, *, head_only: bool) -> _Message:
    code = _CODES.get(status, "InternalError")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    headers = f"Content-Type: application/xml\r\nContent-Length: {len(body)}"
    head = f"HTTP/1.1 {status} Injected\r\n{headers}\r\n\r\n".encode()
    return _Message(head, b"" if head_only else body)


async def _read_message(reader: asyncio.StreamReader, *, no_body: bool) -> _Message:
    message = _Message(await reader.readuntil(b"\r\n\r\n"))
    first = message.first
    status = int(first[1]) if first[0].startswith("HTTP/") else 0
    if 100 <= status < 200:
        return await _read_message(reader, no_body=no_body)
    if no_body or status in (204, 304):
        return message
    if "chunked" in message.header("transfer-encoding").lower():
        message.body = await _read_chunks(reader)
    elif length := message.header("content-length"):
        message.body = await reader.readexactly(int(length))
    elif status:
        message.body = await reader.read()  # until the server closes
    return message


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """As they stand, framing included: they are passed on as they came."""
    parts = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)]
        if size == 0:
            return b"".join(parts)
