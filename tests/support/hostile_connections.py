"""Connections that behave badly, beside ones that behave well, all with small produce requests to one topic.

Each is a script that is played against a service and says what must have become of its records.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

WAIT_S = 60.0
Place = tuple[int, int]


@dataclass
class Story:
    """What the scripts were told, by the value of each record."""

    stored: dict[str, Place] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    """Sent whole, but nobody stayed for the answer."""


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0.002)  # so that each arrives on its own

    async def answer(self) -> tuple[int, Any]:
        async with asyncio.timeout(WAIT_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await self._reader.readexactly(int(lines.get("content-length", "0")))
        return int(head.split()[1]), json.loads(body) if body else None

    async def closed(self) -> None:
        async with asyncio.timeout(WAIT_S):
            assert await self._reader.read() == b""


@asynccontextmanager
async def wired(host: str, port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def request(topic: str, body: bytes, *, path: str = "", more: bytes = b"", version: str = "1.1") -> bytes:
    head = f"POST /topics/{topic}{path} HTTP/{version}\r\nHost: sluice\r\nContent-Type: application/json\r\n"
    return head.encode() + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def good(*values: str) -> bytes:
    return json.dumps({"records": [{"key": value, "value": value} for value in values]}).encode()


WRONG: tuple[Callable[[str], dict[str, Any]], ...] = (
    lambda value: {"value": value},  # the topic is compacted: it needs a key
    lambda value: {"key": "k", "value": value, "partition": 99},
    lambda value: {"key": "k", "value": value, "partition": -1},
    lambda value: {"key": "k", "value": value, "timestamp": 2**63 - 1},
    lambda value: {"key": "k", "value": value, "timestamp": "now"},
    lambda value: {"key": "k", "value": value, "headers": [{"name": "h", "value": "*"}]},
    lambda value: {"key": "k", "value": value + "x" * 3000},  # above max.message.bytes of the topic
    lambda value: {"key": "k", "value": value, "more": 1},
)


def wrong(value: str, rng: random.Random) -> bytes:
    """A body that is refused; with records before and after that would be right."""
    kind = rng.randrange(len(WRONG) + 3)
    if kind < len(WRONG):
        rows = [{"key": "k", "value": value}] * rng.randrange(3) + [WRONG[kind](value)]
        rng.shuffle(rows)
        return json.dumps({"records": rows}).encode()
    whole = good(value)
    return (whole[:-3], whole.replace(b'"value"', b'"value\xff"'), b'{"records":' + b"[" * 300)[kind - len(WRONG)]


# --- scripts -------------------------------------------------------------------------------------


def _took(story: Story, values: list[str], told: tuple[int, Any]) -> None:
    status, body = told
    assert status == 200, (values, told)
    for value, place in zip(values, body["offsets"], strict=True):
        story.stored[value] = (place["partition"], place["offset"])


def _refused(story: Story, value: str, told: tuple[int, Any]) -> None:
    status, body = told
    assert 400 <= status < 500, (value, told)
    assert body["message"], told
    story.refused.add(value)


async def one_after_the_other(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    for number in range(4):
        value = f"{name}.{number}"
        if rng.random() < 0.5:
            await wire.send(request(topic, wrong(value, rng)))
            _refused(story, value, await wire.answer())
        else:
            values = [f"{value}.{part}" for part in range(rng.choice((1, 1, 3)))]
            await wire.send(request(topic, good(*values), path=rng.choice(("", "?acks=all", "?timeout_ms=20000"))))
            _took(story, values, await wire.answer())


async def all_at_once(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    """Pipelined: answers come in order."""
    kinds = [rng.random() < 0.5 for _ in range(5)]
    values = [f"{name}.{number}" for number in range(5)]
    bodies = [good(value) if right else wrong(value, rng) for right, value in zip(kinds, values, strict=True)]
    wire.writer.write(b"".join(request(topic, body) for body in bodies))
    for right, value in zip(kinds, values, strict=True):
        told = await wire.answer()
        _took(story, [value], told) if right else _refused(story, value, told)


async def slowly(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    sent = request(topic, good(name))
    cuts = sorted(rng.sample(range(1, len(sent)), 5))
    await wire.send(*(sent[low:high] for low, high in zip([0, *cuts], [*cuts, len(sent)], strict=True)))
    _took(story, [name], await wire.answer())


async def cut_off(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    sent = request(topic, good(name))
    await wire.send(sent[: rng.randrange(1, len(sent))])
    story.refused.add(name)
    if rng.random() < 0.5:
        wire.writer.transport.abort()


async def gone_before_the_answer(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    await wire.send(request(topic, good(name)))
    story.unknown.add(name)
    wire.writer.transport.abort() if rng.random() < 0.5 else wire.writer.write_eof()


async def as_in_1996(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    await wire.send(request(topic, good(name), version="1.0"))
    _took(story, [name], await wire.answer())
    await wire.closed()


async def asks_first(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    sent = request(topic, good(name), more=b"Expect: 100-continue\r\n")
    head, end, body = sent.partition(b"\r\n\r\n")
    await wire.send(head + end)
    status, _ = await wire.answer()
    assert status == 100
    await wire.send(body)
    _took(story, [name], await wire.answer())


async def in_chunks(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: sluice\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    await wire.send(head, *(b"1\r\n%c\r\n" % byte for byte in good(name)), b"0\r\n\r\n")
    _took(story, [name], await wire.answer())


async def polls(wire: Wire, topic: str, name: str, story: Story, rng: random.Random) -> None:
    """Long polls with odd questions, one of them given up."""
    records = f"/v3/clusters/-/topics/{topic}/partitions/{rng.randrange(3)}/records"
    for query in (
        "offset=0&max_wait_ms=5",
        "offset=-1",
        "offset=0&offset=1",
        "offset=9999999&max_wait_ms=5",
        "max_bytes=0",
    ):
        await wire.send(f"GET {records}?{query} HTTP/1.1\r\nHost: sluice\r\n\r\n".encode())
        status, _ = await wire.answer()
        assert status in (200, 400, 416), (query, status)
    await wire.send(f"GET {records}?offset=0&min_bytes=99999999&max_wait_ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())


Script = Callable[[Wire, str, str, Story, random.Random], Awaitable[None]]
SCRIPTS: tuple[Script, ...] = (
    one_after_the_other, one_after_the_other, one_after_the_other, all_at_once, all_at_once, slowly, cut_off,
    gone_before_the_answer, as_in_1996, asks_first, in_chunks, polls,
)  # fmt: skip


async def play(host: str, port: int, topic: str, count: int, at_once: int) -> Story:
    story, numbers = Story(), iter(range(count))

    async def player() -> None:
        for number in numbers:
            rng = random.Random(f"connection {number}")
            script = SCRIPTS[number % len(SCRIPTS)]
            try:
                async with wired(host, port) as wire:
                    await script(wire, topic, f"v{number}", story, rng)
            except Exception as error:
                raise AssertionError(f"connection {number}, {script.__name__}: {error!r}") from error

    await asyncio.gather(*(player() for _ in range(at_once)))
    return story
