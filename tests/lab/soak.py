"""A long run at half of the largest rate, with every job of the service at work: nothing may grow for ever.

The first tenth finds the largest rate that four clients reach, the rest is driven at half of it. What the service uses
is sampled all the time; after warm-up the figures should be flat. The report says how the last quarter compares with
the second one, and charts everything.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from deltalake import DeltaTable

from tests.lab.chart import charts
from tests.lab.client import CLUSTER
from tests.lab.history import now
from tests.lab.producing import ARROW, arrow_body
from tests.support.server import Server

TOPIC, KEYED, PARTITIONS, BATCH = "soak", "soak-keys", 4, 2_000
CLIENTS = 2
"""Threads for each topic."""
SAMPLES = 120
SETTINGS = {
    "SLUICE_COMMIT_INTERVAL_MS": "50",
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "5000",
    "SLUICE_FILE_DELETE_DELAY_MS": "60000",
    "SLUICE_MERGE_QUIET_MS": "2000",
}
CONFIGS = {
    TOPIC: {"retention.bytes": str(8 << 20), "segment.bytes": str(1 << 20)},
    KEYED: {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.2"},
}


@dataclass(slots=True)
class Load:
    """Threads that send Arrow batches, as fast as they can or at a rate."""

    url: str
    rate: float = 0.0
    """Requests per second and thread; 0: as many as there can be."""
    acked: dict[str, int] = field(default_factory=lambda: {TOPIC: 0, KEYED: 0})
    failed: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of the requests since the last look."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self, topic: str) -> None:
        keys = [f"k{number % 200}" for number in range(BATCH)] if topic == KEYED else None
        values = [f"{number:>100}" for number in range(BATCH)]
        body = arrow_body(values, values, keys)
        due = now()
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while not self.stopping.wait(max(0.0, due - now())):
                began = now()
                try:
                    url, headers = f"/topics/{topic}?acks=all", {"Content-Type": ARROW}
                    done = http.post(url, content=body, headers=headers).is_success
                except httpx.HTTPError:
                    done = False
                with self.lock:
                    self.seconds.append(now() - began)
                    self.acked[topic] += BATCH if done else 0
                    self.failed += not done
                due = max(due + 1 / self.rate, now() - 1.0) if self.rate else now()

    def p99_ms(self) -> float:
        with self.lock:
            times, self.seconds = sorted(self.seconds), []
        return 1000 * times[int(len(times) * 0.99)] if times else 0.0


def soak(seconds: float, report: Path | None) -> int:
    with tempfile.TemporaryDirectory(prefix="sluice-soak-") as scratch:
        server = Server(Path(scratch) / "root", verify=True, **SETTINGS)
        server.start()
        try:
            return _soak(server, seconds, report)
        finally:
            server.close()


def _soak(server: Server, seconds: float, report: Path | None) -> int:
    for name, configs in CONFIGS.items():
        settings = [{"name": key, "value": value} for key, value in configs.items()]
        body = {"topic_name": name, "partitions_count": PARTITIONS, "configs": settings}
        assert server.client.post(f"{CLUSTER}/topics", json=body).is_success
    load = Load(server.url)
    threads = [threading.Thread(target=load.run, args=(topic,), daemon=True) for topic in (TOPIC, KEYED) * CLIENTS]
    for thread in threads:
        thread.start()
    began, tenth = now(), seconds / 10
    threading.Event().wait(tenth)
    most = sum(load.acked.values()) / tenth
    load.rate = most / 2 / BATCH / len(threads)
    print(f"the largest rate is {most:,.0f} records/s; going on at half of it", flush=True)
    samples: list[dict[str, float]] = []
    while (left := began + seconds - now()) > 0:
        threading.Event().wait(min(left, seconds / SAMPLES))
        samples.append({"t": now() - began} | _sample(server, load))
    load.stopping.set()
    for thread in threads:
        thread.join(60)
    wrong = _wrong(server, load)
    assert server.terminate() == 0
    found = {"seconds": round(seconds), "records_per_second": round(most / 2), "acked": load.acked, "wrong": wrong}
    _told(found, samples, report)
    return 1 if wrong else 0


def _sample(server: Server, load: Load) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{server.pid}/status").read_text().splitlines())
    folders = [server.root / "topics" / topic / str(p) for topic in (TOPIC, KEYED) for p in range(PARTITIONS)]
    folders = [folder for folder in folders if (folder / "_delta_log").exists()]
    return {
        "memory, MiB": int(status["VmRSS"].split()[0]) / 1024,
        "open files": len(os.listdir(f"/proc/{server.pid}/fd")),
        "threads": server.threads,
        "ack p99, ms": load.p99_ms(),
        "versions behind the checkpoint": max((_behind(folder) for folder in folders), default=0),
        "orphaned files": sum(_orphans(folder) for folder in folders),
        "disk, MiB": _bytes(server.root) / (1 << 20),
    }


def _behind(folder: Path) -> int:
    log = folder / "_delta_log"
    newest = max((int(path.stem) for path in log.glob("*.json")), default=0)
    hint = log / "_last_checkpoint"
    return newest - (json.loads(hint.read_text())["version"] if hint.exists() else 0)


def _orphans(folder: Path) -> int:
    """Data files that no commit names, older than what may be on its way into one."""
    listed = {path.name: path for path in folder.glob("*.parquet")}
    named = b"".join(path.read_bytes() for path in (folder / "_delta_log").glob("*.json"))
    named_too = {uri.rpartition("/")[2] for uri in DeltaTable(str(folder)).file_uris()}
    loose = [path for name, path in listed.items() if name not in named_too and name.encode() not in named]
    return sum(path.exists() and os.stat(path).st_size > 0 for path in loose)


def _bytes(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(f"{path}/{name}").st_blocks * 512
            except FileNotFoundError:
                continue  # it was cleaned up meanwhile
    return total


def _wrong(server: Server, load: Load) -> list[str]:
    """Every record that was acknowledged has its offset, and nothing else does."""
    wrong = [f"{load.failed} requests failed"] if load.failed else []
    for topic, acked in load.acked.items():
        answers = [
            server.client.get(f"{CLUSTER}/topics/{topic}/partitions/{p}/offset?at=latest").json()["offset"]
            for p in range(PARTITIONS)
        ]
        if sum(answers) != acked:
            wrong.append(f"{topic}: {acked} records were acknowledged, the log has {sum(answers)}")
    return wrong


def _told(found: dict[str, Any], samples: list[dict[str, float]], report: Path | None) -> None:
    names = [name for name in samples[0] if name != "t"]
    quarter = max(1, len(samples) // 4)
    print(f"{'':32}{'2nd quarter':>14}{'last quarter':>14}   medians")
    found["figures"] = {}
    for name in names:
        values = [sample[name] for sample in samples]
        early, late = statistics.median(values[quarter : 2 * quarter] or values), statistics.median(values[-quarter:])
        found["figures"][name] = {"second_quarter": round(early, 2), "last_quarter": round(late, 2)}
        print(f"{name:32}{early:14.1f}{late:14.1f}")
    print(f"acknowledged: {found['acked']}; wrong: {found['wrong'] or 'nothing'}")
    if report is not None:
        report.mkdir(parents=True, exist_ok=True)
        (report / "soak.json").write_text(json.dumps(found | {"samples": samples}, indent=1))
        title = f"soak: {found['records_per_second']:,} records/s for {found['seconds'] / 60:.0f} min"
        series = {name: [sample[name] for sample in samples] for name in names}
        (report / "soak.svg").write_text(charts(title, [sample["t"] for sample in samples], series))
