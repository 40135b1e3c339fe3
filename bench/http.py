"""The HTTP service beside a uvicorn that only parses: rates, latencies, long polls. The load is its own process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from deltalake import DeltaTable

from bench.data import VALUE_BYTES
from bench.figures import REPOSITORY, Findings, at_least, at_most, percentile
from bench.harness import scratch
from bench.http_bodies import ARROW, Body, arrow_body, json_body

PARTITIONS, ROUNDS, SECONDS, RATE = 8, 3, 2.0, 2_000
WAKE_POLLS, WAKE_ROUNDS, IDLE_POLLS, PROBES = 1_000, 12, 10_000, 150
MANY_PARTITIONS = 1_000
MIB = 1 << 20


def bodies() -> list[Body]:
    return [
        Body("single records", 1, 2_000, "application/json", [json_body(1, seed) for seed in range(100)]),
        Body("JSON × 1,000", 1_000, 128, "application/json", [json_body(1_000, seed) for seed in range(20)]),
        Body("Arrow × 10,000", 10_000, 64, ARROW, [arrow_body(10_000, seed) for seed in range(4)]),
    ]


# --- processes -------------------------------------------------------------------------------------


class Process:
    def __init__(self, port: int, pid: int, root: Path | None = None) -> None:
        self.port, self.pid, self.root = port, pid, root
        self.url = f"http://127.0.0.1:{port}"

    @property
    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MIB

    @property
    def peak_mib(self) -> float:
        """The most that the system ever saw."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _started(command: Sequence[str], port: int, root: Path | None = None, **environment: str) -> Iterator[Process]:
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=REPOSITORY,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield Process(port, process.pid, root)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    pause = threading.Event()
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}") from None
            pause.wait(0.05)
        else:
            return
    raise RuntimeError("the server did not start")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ceiling() -> Any:
    port = _free_port()
    return _started(["-m", "bench.http_ceiling", str(port)], port)


def service(root: Path, *, fsync: bool, **more: str) -> Any:
    port = _free_port()
    settings = {
        "SLUICE_FSYNC": str(fsync).lower(),
        "SLUICE_NUM_PARTITIONS": str(PARTITIONS),
        "SLUICE_LOG_LEVEL": "warning",
    } | more
    return _started(["-m", "sluice.api", "serve", "--root", str(root), "--port", str(port)], port, root, **settings)


def _load(server: Process, body: Body, *, seconds: float, rate: int | None = None, query: str = "") -> dict[str, Any]:
    return load(server.port, f"/topics/bench{query}", body, seconds, rate)


def load(port: int, path: str, body: Body, seconds: float, rate: int | None = None) -> dict[str, Any]:
    """By `python -m bench.http_load`, a process of its own that sends prepared requests; none may fail."""
    found = ask(_order(port, path, body, seconds, rate))
    if found["failures"]:
        raise RuntimeError(f"{found['failures']} requests failed: {found['first_failure']}")
    return found


def _order(port: int, path: str, body: Body, seconds: float, rate: int | None = None) -> dict[str, Any]:
    return {
        "port": port,
        "bodies": [one.decode("latin-1") for one in body.bodies],
        "media": body.media,
        "paths": [path],
        "connections": body.connections,
        "seconds": seconds,
        "rate": rate,
    }


def ask(order: dict[str, Any]) -> dict[str, Any]:
    line = json.dumps(order) + "\n"
    done = subprocess.run(
        [sys.executable, "-m", "bench.http_load"],
        cwd=REPOSITORY,
        input=line,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- the parts -------------------------------------------------------------------------------------


def run() -> Findings:
    findings = Findings(
        "http",
        f"produce of {VALUE_BYTES} B records, acks=all, {PARTITIONS} partitions, beside a uvicorn that only parses",
        {"partitions": PARTITIONS, "rounds": ROUNDS, "seconds_per_round": SECONDS, "rate": RATE},
        notes=[
            "ceiling: the same uvicorn, uvloop and httptools; the body is received and parsed by orjson, or by pyarrow,"
            " and nothing is stored",
            "as many connections for the ceiling as for us: 1,000 for single records, 96 for JSON, 16 for Arrow",
            "latencies are measured from the moment a request was due; the load waits at most 1 ms longer",
            "latencies and polls are measured on services of their own, which have no work left over from the rates",
            "a poll is woken after its commit; measured from the acknowledgement of the commit, in the same process",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        top = stack.enter_context(ceiling())
        plain = stack.enter_context(service(folder / "plain", fsync=False))
        synced = stack.enter_context(service(folder / "synced", fsync=True))
        _rates(findings, top, plain, synced)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        fresh = stack.enter_context(service(folder / "paced", fsync=True))
        _load(fresh, bodies()[0], seconds=1, rate=RATE)
        _latencies(findings, fresh)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        fresh = stack.enter_context(service(folder / "polls", fsync=True))
        _polls(findings, fresh)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        wide = stack.enter_context(service(folder / "wide", fsync=True, SLUICE_NUM_PARTITIONS=str(MANY_PARTITIONS)))
        _everything_at_once(findings, wide)
    return findings


def _rates(findings: Findings, top: Process, plain: Process, synced: Process) -> None:
    servers = {"ceiling": top, "fsync off": plain, "fsync on": synced}
    rates: dict[tuple[str, str], list[float]] = {}
    kinds = bodies()
    for server in (plain, synced):
        _load(server, kinds[0], seconds=0.5)
    for _ in range(ROUNDS):
        for kind in kinds:
            for name, server in servers.items():
                before = server.cpu_s
                found = _load(server, kind, seconds=SECONDS)
                records = found["requests"] * kind.records
                rates.setdefault((kind.name, name), []).append(records / found["seconds"])
                spent = (server.cpu_s - before) / found["requests"]
                rates.setdefault((kind.name, f"{name}, processor time"), []).append(spent * 1e6)
    for kind in kinds:
        for name in servers:
            findings.add(f"{kind.name}: {name}", "records/s", rates[kind.name, name])
            findings.add(
                f"{kind.name}: {name}, processor time", "µs/request", rates[kind.name, f"{name}, processor time"]
            )
    single, json_, arrow = (kind.name for kind in kinds)
    findings.ratio(
        f"{single}: fsync off / ceiling", rates[single, "fsync off"], rates[single, "ceiling"], at_least(0.6)
    )
    findings.ratio(f"{json_}: fsync off / ceiling", rates[json_, "fsync off"], rates[json_, "ceiling"], at_least(0.35))
    findings.ratio(f"{arrow}: fsync off / JSON", rates[arrow, "fsync off"], rates[json_, "fsync off"], at_least(3))
    for kind in kinds:
        findings.ratio(f"{kind.name}: fsync on / off", rates[kind.name, "fsync on"], rates[kind.name, "fsync off"])


def _latencies(findings: Findings, server: Process) -> None:
    single = replace(bodies()[0], connections=400)
    found: dict[str, list[dict[str, Any]]] = {"1": [], "all": []}
    for _ in range(ROUNDS):
        for acks, rounds in found.items():
            rounds.append(_load(server, single, seconds=SECONDS, rate=RATE, query=f"?acks={acks}"))
    for acks, target in (("1", at_most(10)), ("all", at_most(120))):
        for share, limit in (("p50", None), ("p99", target), ("p99.9", None)):
            times = [one[share] * 1e3 for one in found[acks]]
            findings.add(f"acks={acks} at {RATE:,}/s, fsync on: {share}", "ms", times, limit)
    visible = _visible(server, single)
    findings.add(f"produce to visible for delta-rs at {RATE:,}/s: p50", "ms", [percentile(visible, 50) * 1e3])
    findings.add(
        f"produce to visible for delta-rs at {RATE:,}/s: p99", "ms", [percentile(visible, 99) * 1e3], at_most(120)
    )


def _visible(server: Process, single: Body) -> list[float]:
    """From sending a record until `DeltaTable` shows it, with the other load going on."""
    assert server.root is not None
    times: list[float] = []
    load = threading.Thread(target=lambda: _load(server, single, seconds=8, rate=RATE))
    with httpx.Client(base_url=server.url) as client:
        path, content = "/topics/probe/partitions/0", '{"records":[{"value":1}]}'
        client.post(path, content=content).raise_for_status()
        table = DeltaTable(str(server.root / "topics/probe/0"))
        load.start()
        while load.is_alive() and len(times) < PROBES:
            begun = time.perf_counter()
            offset = client.post(path, content=content).raise_for_status().json()["offsets"][0]["offset"]
            while _rows(table) <= offset:
                table.update_incremental()
            times.append(time.perf_counter() - begun)
    load.join()
    return times


def _rows(table: DeltaTable) -> int:
    version = table.transaction_version("sluice.end")
    return 0 if version is None else version


def _polls(findings: Findings, server: Process) -> None:
    order = {"port": server.port, "topic": "polled", "rounds": WAKE_ROUNDS, "settle_s": 0.5}
    path = "/topics/polled/partitions/0"
    httpx.post(server.url + path, content='{"records":[{"value":1}]}').raise_for_status()
    woken = ask(order | {"polls": "wake", "connections": WAKE_POLLS, "first": 1})
    findings.add(f"{WAKE_POLLS:,} long polls woken by a commit: p50", "ms", [woken["p50"] * 1e3])
    findings.add(f"{WAKE_POLLS:,} long polls woken by a commit: p99", "ms", [woken["p99"] * 1e3], at_most(30))
    single = replace(bodies()[0], connections=400)
    _load(server, single, seconds=1, rate=RATE)
    alone = _load(server, single, seconds=4, rate=RATE)
    findings.add(f"produce p99 at {RATE:,}/s, nobody waiting", "ms", [alone["p99"] * 1e3])
    before = server.rss_mib
    with _idle_polls(server, "polled", first=1 + WAKE_ROUNDS):
        crowded = _load(server, single, seconds=4, rate=RATE)
        findings.add(f"{IDLE_POLLS:,} idle long polls: memory of the service", "MiB", [server.rss_mib], at_most(1024))
        findings.add(
            f"{IDLE_POLLS:,} idle long polls: memory of one", "KiB", [(server.rss_mib - before) * 1024 / IDLE_POLLS]
        )
    findings.add(f"produce p99 at {RATE:,}/s, {IDLE_POLLS:,} waiting", "ms", [crowded["p99"] * 1e3])
    findings.ratio("produce p99: polls waiting / none", [crowded["p99"]], [alone["p99"]], at_most(2))


@contextmanager
def _idle_polls(server: Process, topic: str, *, first: int) -> Iterator[None]:
    """Many polls at an offset that never comes, by a process of its own."""
    order = {"polls": "idle", "port": server.port, "topic": topic, "connections": IDLE_POLLS, "first": first}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.http_load"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        waiting.stdin.write(json.dumps(order) + "\n")
        waiting.stdin.flush()
        if waiting.stdout.readline().strip() != "waiting":
            raise RuntimeError("the polls did not start")
        yield
        waiting.stdin.close()
        waiting.wait(60)


def _everything_at_once(findings: Findings, server: Process) -> None:
    """The memory of a service with many partitions, many polls and as much load as it takes."""
    httpx.post(server.url + "/topics/polled/partitions/0", content='{"records":[{"value":1}]}').raise_for_status()
    what = f"{MANY_PARTITIONS:,} partitions written flat out, {IDLE_POLLS:,} idle long polls"
    with _idle_polls(server, "polled", first=1):
        for kind in bodies()[1:]:
            # Each body goes to every partition: what is more than storage takes is refused, as it should be.
            found = ask(_order(server.port, "/topics/bench", kind, 2 * SECONDS))
            findings.add(f"{what}: {kind.name} refused", "%", [100 * found["failures"] / found["requests"]])
        findings.add(f"{what}: peak memory", "MiB", [server.peak_mib], at_most(1024))
