"""A client that behaves, beside many that do not: its latencies, their answers, the memory of the service.

`python -m bench.neighbours <attack> <port>` is the attackers' end, a process of its own that ends with its stdin.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pyarrow as pa
import uvloop

from bench.figures import REPOSITORY, Findings, at_most
from bench.harness import scratch
from bench.http import MIB, Process, ask, service
from bench.http_bodies import JSON, json_body
from bench.http_load import request
from sluice.conf.settings import ServerSettings

TURNS, SECONDS, RATE, CONNECTIONS = 5, 6.0, 200, 50
SLOW, DRIP_S, FLOOD, HUGE = 500, 0.5, 4, 100_000_000
HEADER_S, BODY_S, ANSWER_S = 2, 3, 30  # the defaults, 10 s and 30 s, would not run out within a turn
SETTINGS = {"SLUICE_HEADER_TIMEOUT_MS": f"{HEADER_S}000", "SLUICE_REQUEST_TIMEOUT_MS": f"{BODY_S}000"}
ONE_BODY, ALL_BODIES = ServerSettings().request_max_bytes, ServerSettings().request_memory_max_bytes
PATH = "/topics/hostile?acks=0"  # a flood that waits for the disk would be none
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\n"
KINDS = ((f"{HEAD}X-Slow: ", HEADER_S), (f"{HEAD}Content-Length: 1000\r\n\r\n", BODY_S))
TINY = request(PATH, b'{"records":[{"value":1}]}')


async def status_of(reader: asyncio.StreamReader) -> str:
    """Of the next answer, which is read to its end."""
    try:
        async with asyncio.timeout(ANSWER_S):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            await reader.readexactly(next(int(line[15:]) for line in lines if line.startswith("content-length:")))
    except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as error:
        return type(error).__name__
    return lines[0].split()[1]


class Attackers:
    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: Counter[str] = Counter()
        self.overstayed = -float(ANSWER_S)  # seconds beyond its timeout, of the slow one that was let in longest

    async def slow(self, beginning: str, timeout_s: float) -> None:
        """The rest byte by byte, on a new connection as soon as one is closed."""
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            begun, answer = time.perf_counter(), asyncio.ensure_future(status_of(reader))
            writer.write(beginning.encode())
            try:
                while not answer.done():
                    await asyncio.wait([answer], timeout=DRIP_S)
                    writer.write(b"x")
                self.answers[answer.result()] += 1
            finally:  # those that are still open in the end count, too
                self.overstayed = max(self.overstayed, time.perf_counter() - begun - timeout_s)
                writer.close()

    async def huge(self) -> None:
        """With its length, then in chunks without end; all of it is sent, whatever is answered meanwhile."""
        chunk = b"%x\r\n%b\r\n" % (MIB, bytes(MIB))
        for framing, piece in cycle(((f"Content-Length: {HUGE}", bytes(MIB)), ("Transfer-Encoding: chunked", chunk))):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            answer = asyncio.ensure_future(status_of(reader))
            writer.write(f"{HEAD}{framing}\r\n\r\n".encode())
            with suppress(ConnectionError):  # who sends on after the refusal is cut in the end
                for _ in range(HUGE // MIB):
                    writer.write(piece)
                    await writer.drain()
            self.answers[await answer] += 1
            writer.close()

    async def repeat(self, requests: list[bytes]) -> None:
        """The next as soon as the last is answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for one in cycle(requests):
            writer.write(one)
            status = await status_of(reader)
            self.answers[status] += 1
            if not status.isdecimal():
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)


def bombs(size: int) -> list[bytes]:
    """One record, valid and wide: where it may be unpacked it must be parsed as well, which costs more."""
    plain = b'{"records":[{"value":[' + b"[]," * (size // 3) + b"0]}]}"
    packed = {"gzip": gzip.compress(plain), "zstd": pa.compress(plain, codec="zstd", asbytes=True)}
    assert all(len(body) * 1000 <= size for body in packed.values())
    return [request(PATH, body, f"{JSON}\r\nContent-Encoding: {coding}") for coding, body in packed.items()]


def wrong_end(size: int) -> list[bytes]:
    """Records, all of them good, and behind the last a byte that is no JSON."""
    record = b'{"value":"' + b"x" * 700 + b'"},'
    body = pa.compress(b'{"records":[' + record * (size // len(record)) + b"!]}", codec="zstd", asbytes=True)
    return [request(PATH, body, f"{JSON}\r\nContent-Encoding: zstd")]


ATTACKS: dict[str, tuple[set[str], Callable[[Attackers], list[Coroutine[Any, Any, None]]]]] = {
    f"{SLOW} slow connections": ({"408"}, lambda here: [here.slow(*kind) for kind in KINDS for _ in range(SLOW // 2)]),
    "bodies of 100 MB": ({"413"}, lambda here: [here.huge()]),
    "bombs of 100 MB": ({"413"}, lambda here: [here.repeat(bombs(HUGE))]),
    "bombs within the limit": ({"413"}, lambda here: [here.repeat(bombs(ONE_BODY - MIB))]),
    "bombs with a wrong end": ({"400"}, lambda here: [here.repeat(wrong_end(ONE_BODY - MIB))]),
    f"a flood on {FLOOD} connections": ({"202", "429"}, lambda here: [here.repeat([TINY]) for _ in range(FLOOD)]),
}
"""What each is to be answered, and who they are."""


async def attack(name: str, port: int) -> dict[str, Any]:
    here = Attackers(port)
    at_work = [asyncio.ensure_future(one) for one in ATTACKS[name][1](here)]
    await asyncio.sleep(0.5)  # until all are connected
    print("at work", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    assert not any(one.done() for one in at_work), "attackers that gave up prove nothing"
    for one in at_work:
        one.cancel()
    await asyncio.wait(at_work)
    return {"answers": here.answers, "overstayed_s": here.overstayed}


def run() -> Findings:
    findings = Findings(
        "neighbours",
        f"{RATE} single-record JSON requests/s with acks=1, alone and beside clients that behave badly",
        {"turns": TURNS, "seconds_per_turn": SECONDS, "header.timeout.ms": HEADER_S * 1000}
        | {"request.timeout.ms": BODY_S * 1000, "request.max.bytes": ONE_BODY, "request.memory.max.bytes": ALL_BODIES},
        notes=[
            f"client, attackers and service share {os.cpu_count()} cores; the flood takes all of them that it can get",
            "alone and attacked in turns, on one service for each attack; latencies from the moment a request was due",
            f"slow: half of a header, half of a body, a byte every {DRIP_S} s; opened, refused and reopened together",
            "one body of 100 MB at a time, with a length, then in chunks; one bomb, gzip, then zstd, at least 1000:1",
            "a wrong end: 63 MiB of good records in a few KB of zstd, and one wrong byte behind the last of them",
            "growth: of all turns, the highest peak above the memory right before that attack",
        ],
    )
    for name in ATTACKS:
        with scratch() as folder, service(folder / "root", fsync=True, **SETTINGS) as server:
            _beside(findings, name, server)
    return findings


def _beside(findings: Findings, name: str, server: Process) -> None:
    alone, attacked, told, grown = [], [], [], []
    _client(server, 1)  # makes the topic
    peak = 0.0
    for _ in range(TURNS):
        alone.append(_client(server))
        before = server.rss_mib  # what the client's own records take grows with every turn
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # forgets the peak
        with _attackers(name, server.port) as found:
            attacked.append(_client(server))
        told.append(found)
        grown.append(server.peak_mib - before)
        peak = max(peak, server.peak_mib)
    for share in ("p50", "p99"):
        findings.add(f"{name}: {share} alone", "ms", [one[share] * 1e3 for one in alone])
        findings.add(f"{name}: {share}", "ms", [one[share] * 1e3 for one in attacked])
    findings.ratio(f"{name}: p99 / alone", [one["p99"] for one in attacked], [one["p99"] for one in alone], at_most(2))
    # Of all turns together, or of the worst: what may never happen is not for a median.
    findings.add(f"{name}: refused to the client", "requests", [sum(one["failures"] for one in attacked)], at_most(0))
    expected, worst = ATTACKS[name][0], max(grown)
    for status in sorted(expected.union(*(one["answers"] for one in told))):
        count = sum(one["answers"].get(status, 0) for one in told)
        findings.add(f"{name}: {status}", "answers", [count], None if status in expected else at_most(0))
    if "408" in expected:
        findings.add(f"{name}: beyond the timeout", "s", [max(one["overstayed_s"] for one in told)], at_most(1))
    findings.add(f"{name}: peak memory", "MiB", [peak])
    findings.add(f"{name}: growth / request.max.bytes", "×", [worst * MIB / ONE_BODY], at_most(2))
    findings.add(f"{name}: growth / request.memory.max.bytes", "×", [worst * MIB / ALL_BODIES], at_most(2))


def _client(server: Process, seconds: float = SECONDS) -> dict[str, Any]:
    order = {"port": server.port, "paths": ["/topics/bench?acks=1"], "connections": CONNECTIONS, "rate": RATE}
    return ask(order | {"seconds": seconds, "bodies": [json_body(1, seed).decode() for seed in range(100)]})


@contextmanager
def _attackers(name: str, port: int) -> Iterator[dict[str, Any]]:
    """At work within the block; what they were answered is known behind it."""
    told: dict[str, Any] = {}
    command = [sys.executable, "-m", "bench.neighbours", name, str(port)]
    with Popen(command, cwd=REPOSITORY, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "at work":
            raise RuntimeError(f"{name}: the attackers did not start")
        yield told
        told |= json.loads(process.communicate()[0])  # closes its stdin first


if __name__ == "__main__":
    print(json.dumps(uvloop.run(attack(sys.argv[1], int(sys.argv[2])))))
