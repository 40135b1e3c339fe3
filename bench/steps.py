"""Where the time of a produce request goes: processor time of each step, alone, in one process and one thread."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import uvicorn
from uvicorn.server import ServerState

from bench.figures import Findings
from bench.harness import cluster, scratch
from bench.http import PARTITIONS, bodies
from bench.http_bodies import Body
from sluice.api.appending import Outcome, PartOutcome
from sluice.api.produce import ROUTES, answer
from sluice.api.service import Service
from sluice.api.shortcuts import Reply, protocol_class
from sluice.conf.settings import Settings
from sluice.ingest import arrow_body, json_v2, partitioner
from sluice.ingest.limits import DEFAULT_LIMITS
from sluice.ingest.request import Decoded
from sluice.ingest.validate import validate
from sluice.log_store import parquet
from sluice.log_store.engine import LogStore
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.records import stored_table
from sluice.log_store.topic import TopicConfig

ROUNDS, TOGETHER = 40, 100
NOW_MS = 1_750_000_000_000


def run() -> Findings:
    findings = Findings(
        "steps",
        "processor time of the steps of a produce request, each alone",
        {"partitions": PARTITIONS, "single records gathered": TOGETHER, "fsync": False},
        notes=[
            "each request is committed alone, a version in each of its partitions: a service under load commits many"
            " requests in one version, so that these shares are not its own; what a request costs there is the"
            " processor time in [http](#http)",
            "one thread and nothing else: beside other threads each step also waits for the interpreter",
            "sockets, and the switches between threads, are not in it",
            f"{TOGETHER} single records are gathered into one batch; the figures are per request",
            "commits: files and versions of all partitions of a request, answers to waiters, the tail cache",
        ],
    )
    with scratch() as folder, cluster(folder / "steps", fsync=False, merge=False) as log:
        log.create_topic("bench", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            log.partition("bench", number).prepare()
        for body in bodies():
            _show(findings, body, _Steps(log, body).measure())
    return findings


def _show(findings: Findings, body: Body, found: dict[str, list[float]]) -> None:
    total = sum(float(np.median(times)) for times in found.values())
    for step, times in found.items():
        findings.add(f"{body.name}: {step}", "µs/request", [t * 1e6 for t in times])
        findings.add(f"{body.name}: {step}, share", "%", [100 * float(np.median(times)) / total])


class _Steps:
    def __init__(self, log: LogStore, body: Body) -> None:
        self._log = log
        self._body = body
        self._single = body.records == 1
        self._requests = TOGETHER if self._single else 1
        """That go through each step together."""

    def measure(self) -> dict[str, list[float]]:
        sent = [self._body.bodies[n % len(self._body.bodies)] for n in range(self._requests)]
        found = {"head, body and answer in the protocol": _protocol(self._log, sent[0])} if self._small else {}
        if self._small:
            found["JSON parsed"] = self._time(lambda: [json_v2.records_of(one, DEFAULT_LIMITS) for one in sent])
            records = [record for one in sent for record in json_v2.records_of(one, DEFAULT_LIMITS)]
            found["columns"] = self._time(lambda: json_v2.columns_of(records, NOW_MS, DEFAULT_LIMITS))
            decoded = json_v2.columns_of(records, NOW_MS, DEFAULT_LIMITS)
        else:
            found["Arrow checked and read"] = self._time(lambda: self._arrow(sent[0]))
            decoded = self._arrow(sent[0])
        config = TopicConfig.parse({})
        found["rules of the topic"] = self._time(lambda: validate(decoded.batch, config, NOW_MS))
        parts = _split(decoded)
        found["partitions"] = self._time(lambda: _split(decoded))
        whole = self._time(lambda: self._append(parts))
        tables = [stored_table([part.batch], 0) for part in parts.values()]
        encoding = self._time(lambda: [parquet.encode(table) for table in tables])
        found["Parquet encoded"] = encoding
        found["queues, commits, acknowledgements"] = [max(0.0, w - float(np.median(encoding))) for w in whole]
        if not self._single:
            found["answer"] = self._time(lambda: _answer(parts, decoded))
        return found

    @property
    def _small(self) -> bool:
        """It takes the shortcut past ASGI."""
        return self._body.media == "application/json"

    @staticmethod
    def _arrow(body: bytes) -> Decoded:
        return arrow_body.decode(body, now_ms=NOW_MS, limits=DEFAULT_LIMITS)

    def _append(self, parts: Any) -> None:
        futures = [self._log.append("bench", number, part.batch, size=1000) for number, part in parts.items()]
        for future in futures:
            future.result()

    def _time(self, work: Callable[[], object]) -> list[float]:
        """Of all threads: a commit is done by others."""
        times = []
        work()
        for _ in range(ROUNDS):
            gc.collect(0)
            begun = time.process_time()
            work()
            times.append((time.process_time() - begun) / self._requests)
        return times


def _split(decoded: Decoded) -> Any:
    return partitioner.split(decoded.batch, partitioner.assign(decoded.batch, None, PARTITIONS, 3))


def _answer(parts: Any, decoded: Decoded) -> object:
    told = {
        number: PartOutcome(part.indices, AppendResult(0, len(part.indices), 0, 0)) for number, part in parts.items()
    }
    return answer(Outcome(decoded.count, Acks.ALL, told), summary=decoded.count > 1_000)


# --- the protocol, without a socket ----------------------------------------------------------------


class _NoSocket:
    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)


class _AtOnce:
    """A shortcut that answers what `small_produce` would, without the log."""

    method = "POST"

    def __init__(self, route: Any) -> None:
        self.route = route
        self.params = {"t": "bench"}

    def begin(self, _body: bytes, reply: Callable[[Reply | None], None]) -> None:
        reply(Reply(200, b"content-type: application/json\r\n", b'{"offsets":[]}'))


def _protocol(log: LogStore, body: bytes) -> list[float]:
    return asyncio.run(_fed(log, body))


async def _fed(log: LogStore, body: bytes) -> list[float]:
    service = Service(log, Settings())
    shortcut = _AtOnce(ROUTES[0])
    made = protocol_class(service, {b"POST": lambda _url, _headers: shortcut})
    config = uvicorn.Config(_nobody, http=made, lifespan="off", interface="asgi3", log_config=None)
    config.load()
    protocol = made(config=config, server_state=ServerState(), app_state={})
    protocol.connection_made(_NoSocket())  # type: ignore[arg-type]
    head = b"POST /topics/bench HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    pieces = _pieces(head % len(body) + body)
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(100):
            for piece in pieces:
                protocol.data_received(piece)
        times.append((time.process_time() - begun) / 100)
    protocol.connection_lost(None)
    service.close()
    return times


async def _nobody(*_asgi: object) -> None:
    raise RuntimeError("nothing takes the ordinary way here")


def _pieces(data: bytes, size: int = 64 << 10) -> Sequence[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
