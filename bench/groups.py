"""Consumer groups over HTTP: how long members take from joining to their partitions, and how fast they commit."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import httpx

from bench.figures import Findings, at_least, at_most
from bench.harness import scratch, seconds
from bench.http import Process, ask, service

SIZES, PARTITIONS, ROUNDS, SECONDS, DELAY_MS = (10, 100, 500), 1_000, 3, 2.0, 500
BASE = "/v3/clusters/-"


class Member:
    """One connection of its own."""

    def __init__(self, port: int, group: str) -> None:
        self._port = port
        self._path = f"{BASE}/consumer-groups/{group}"
        self.member_id = ""
        self.generation = -1
        self.assignment: list[list[Any]] = []

    async def join(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        try:
            while not await self._synced(reader, writer, await self._joined(reader, writer)):
                pass  # somebody came after the rebalance had begun
        finally:
            writer.close()

    async def _synced(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, joined: dict[str, Any]) -> bool:
        self.generation = joined["generation_id"]
        sync = {"generation_id": self.generation, "member_id": self.member_id, "protocol_name": "range"}
        if joined["leader"] == self.member_id:
            sync["strategy"] = "range"
        status, found = await _post(reader, writer, f"{self._path}/members:sync", sync)
        if status != 200 and found["error"] != "REBALANCE_IN_PROGRESS":
            raise RuntimeError(str(found))
        self.assignment = found.get("assignment", [])
        return status == 200

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        wish = {"name": "range", "metadata": {"topics": ["bench"], "owned_partitions": []}}
        while True:
            body = {"member_id": self.member_id, "session_timeout_ms": 300_000, "protocols": [wish]}
            status, found = await _post(reader, writer, f"{self._path}/members:join", body)
            if status == 200:
                self.member_id = found["member_id"]
                return found
            if found["error"] != "MEMBER_ID_REQUIRED":
                raise RuntimeError(str(found))
            self.member_id = found["details"]["member_id"]

    def commit(self, number: int) -> tuple[str, str]:
        topic, partition = self.assignment[number % len(self.assignment)] if self.assignment else ("bench", 0)
        offset = {"topic_name": topic, "partition_id": partition, "offset": number}
        body = {"generation_id": self.generation, "member_id": self.member_id, "offsets": [offset]}
        return f"{self._path}/offsets", json.dumps(body, separators=(",", ":"))


async def _post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length"))
    return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))


async def _all_join(members: list[Member]) -> None:
    await asyncio.gather(*(member.join() for member in members))
    given, generations = sum(len(member.assignment) for member in members), {m.generation for m in members}
    if given != PARTITIONS or len(generations) != 1:
        raise RuntimeError(f"{given} of {PARTITIONS} partitions were assigned, in generations {generations}")


def run() -> Findings:
    findings = Findings(
        "groups",
        f"a group on a topic of {PARTITIONS:,} partitions, over HTTP",
        {
            "members": list(SIZES),
            "partitions": PARTITIONS,
            "rounds": ROUNDS,
            "group.initial.rebalance.delay.ms": DELAY_MS,
        },
        notes=[
            "from the first join to the last assignment, all members at once, with the initial delay of the rebalance;"
            " the service computes the assignment",
            "a commit is one partition's offset; beside it, produce of one record in a body of that size, to a topic"
            " of one partition, as the commits of a group go to one",
            "members and load are processes of their own; fsync on, acks=all for both",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        delay = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": str(DELAY_MS)}
        server = stack.enter_context(service(folder / "groups", fsync=True, **delay))
        for name, partitions in (("bench", PARTITIONS), ("raw", 1)):
            topic = {"topic_name": name, "partitions_count": partitions}
            httpx.post(f"{server.url}{BASE}/topics", json=topic, timeout=60).raise_for_status()
        _measure(findings, server)
    return findings


def _measure(findings: Findings, server: Process) -> None:
    joins: dict[int, list[float]] = {size: [] for size in SIZES}
    commits: dict[int, list[float]] = {size: [] for size in SIZES}
    produced: dict[int, list[float]] = {size: [] for size in SIZES}
    for number in range(ROUNDS):
        for size in SIZES:
            members = [Member(server.port, f"group-{size}-{number}") for _ in range(size)]
            joins[size].append(seconds(partial(asyncio.run, _all_join(members))))
            wanted = [members[n % size].commit(n) for n in range(max(size, 200))]
            commits[size].append(_rate(server, size, wanted))
            produced[size].append(_rate(server, size, [("/topics/raw", _record_of(len(body))) for _, body in wanted]))
    for size in SIZES:
        findings.add(f"{size} members: from join to assigned", "ms", [t * 1e3 for t in joins[size]])
    for few, many in pairwise(SIZES):
        findings.ratio(f"join to assigned: {many} / {few} members", joins[many], joins[few], at_most(many / few))
    for size in SIZES:
        findings.add(f"{size} members: commits", "requests/s", commits[size])
        findings.add(f"{size} connections: produce of as many bytes", "requests/s", produced[size])
        findings.ratio(f"{size} members: commits / produce", commits[size], produced[size], at_least(0.5))


def _record_of(size: int) -> str:
    around = len('{"records":[{"value":""}]}')
    return '{"records":[{"value":"' + "x" * (size - around) + '"}]}'


def _rate(server: Process, connections: int, requests: list[tuple[str, str]]) -> float:
    found = ask({"port": server.port, "requests": requests, "connections": connections, "seconds": SECONDS})
    if found["failures"]:
        raise RuntimeError(f"{found['failures']} requests failed: {found['first_failure']}")
    return float(found["requests"] / found["seconds"])
