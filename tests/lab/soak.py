"""A long run at half of the largest rate, with every job at work, in the service and as processes: nothing may grow for
ever.

At first the largest rate is found that the clients reach; then half of it is driven for as long as was asked for. What
the service uses is sampled all the time. The exit code is 1 if a figure is not flat, see `flatness`, if a job failed,
if the rate was not held, if an offset was acknowledged twice or not at all, or if what is stored in the end is not what
was acknowledged; the report charts everything.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.lab.administering import JOBS, verified
from tests.lab.chart import charts
from tests.lab.client import CLUSTER
from tests.lab.flatness import Figure, judged
from tests.lab.history import now
from tests.lab.producing import ARROW, arrow_body
from tests.lab.soak_acks import Acks, Place
from tests.lab.soak_files import Orphans, behind, mebibytes, stored_otherwise
from tests.support.server import Server

TOPIC, KEYED, PARTITIONS, BATCH = "soak", "soak-keys", 4, 10_000
CLIENTS = 4
"""Threads for each topic: with more of them the rate does not rise."""
SEARCH_S = 60.0
"""How long the largest rate is looked for; of a short run a fifth."""
SAMPLES = 120
HELD = 0.95
"""The share of the rate that must have been acknowledged …"""
JUDGED_FROM_S = 240.0
"""… in a run of at least so long."""
JOB_PAUSE_S = 5.0
# What is kept for a while is kept as briefly as the settings allow, so that disk use can become flat.
SETTINGS = {
    "SLUICE_COMMIT_INTERVAL_MS": "50",
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "5000",
    "SLUICE_FILE_DELETE_DELAY_MS": "60000",
    "SLUICE_LOG_JSON_RETENTION_MS": "3600000",
    "SLUICE_ORPHAN_RETENTION_MS": "3600000",
    "SLUICE_MERGE_QUIET_MS": "2000",
}
BOUNDED = {"segment.bytes": str(1 << 20), "file.delete.delay.ms": "60000"}
CONFIGS = {
    TOPIC: BOUNDED | {"retention.bytes": str(8 << 20), "retention.ms": "60000"},
    KEYED: BOUNDED | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"},
}


@dataclass(slots=True)
class Load:
    """Threads that send Arrow batches, as fast as they can or at a rate."""

    url: str
    rate: float = 0.0
    """Requests per second and thread; 0: as many as there can be."""
    acked: dict[str, int] = field(default_factory=lambda: {TOPIC: 0, KEYED: 0})
    acks: Acks = field(default_factory=Acks)
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
                # From when it was due, so that a service which holds requests up does not look fast.
                began = due if self.rate else now()
                try:
                    url, headers = f"/topics/{topic}?acks=all", {"Content-Type": ARROW}
                    answer = http.post(url, content=body, headers=headers)
                    parts = answer.json()["partitions"] if answer.is_success else []
                except httpx.HTTPError:
                    parts = []
                with self.lock:
                    self.seconds.append(now() - began)
                    self.acked[topic] += BATCH if parts else 0
                    self.acks.add(topic, parts)
                    self.failed += not parts
                due = max(due + 1 / self.rate, now() - 1.0) if self.rate else now()

    def p99_ms(self) -> float:
        with self.lock:
            times, self.seconds = sorted(self.seconds), []
        return 1000 * times[int(len(times) * 0.99)] if times else 0.0


@dataclass(slots=True)
class Jobs:
    """The maintenance jobs as processes, one after the other, beside what the service does by itself."""

    root: Path
    runs: int = 0
    failed: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    _process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        for job, *arguments in itertools.cycle(JOBS):
            if self.stopping.wait(JOB_PAUSE_S):
                return
            command = [sys.executable, "-m", "sluice.jobs", "run", job, "--root", str(self.root), *arguments]
            with subprocess.Popen(
                command, env=os.environ | SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as self._process:
                said = self._process.communicate()[0]
            self.runs += 1
            if self._process.returncode:
                self.failed.append(f"{job}: {said[-800:]}")

    def end(self) -> None:
        """At once, whatever is at work: after a run nothing is, but it may be ended before."""
        self.stopping.set()
        if self._process is not None:
            self._process.kill()


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
    jobs = Jobs(server.root)
    try:
        return _driven(server, jobs, seconds, report)
    finally:
        jobs.end()


def _driven(server: Server, jobs: Jobs, seconds: float, report: Path | None) -> int:
    load, watch = Load(server.url), Watch(server)
    threads = [threading.Thread(target=load.run, args=(topic,), daemon=True) for topic in (TOPIC, KEYED) * CLIENTS]
    for thread in threads:
        thread.start()
    most = _largest_rate(load, min(SEARCH_S, seconds / 5))
    began, before = now(), sum(load.acked.values())
    load.rate = most / 2 / BATCH / len(threads)
    print(f"the largest rate is {most:,.0f} records/s; going on at half of it", flush=True)
    threads.append(threading.Thread(target=jobs.run, daemon=True))
    threads[-1].start()
    samples: list[dict[str, float]] = []
    while (left := began + seconds - now()) > 0:
        threading.Event().wait(min(left, seconds / SAMPLES))
        samples.append({"t": now() - began} | watch.sample(load))
    held = (sum(load.acked.values()) - before) / (now() - began)
    load.stopping.set()
    jobs.stopping.set()
    for thread in threads:
        thread.join(120)
    ends = _ends(server)
    wrong = [f"{load.failed} requests failed"] if load.failed else []
    wrong += load.acks.wrong(ends) + jobs.failed
    wrong += not_held(held, most / 2, seconds)
    assert server.terminate() == 0
    wrong += stored_otherwise(server.root, ends, {KEYED})
    wrong += [told] if (told := verified(str(server.root), SETTINGS)) else []
    figures = judged(samples, seconds)
    wrong += [f"{one.name} grew from {one.early:.1f} to {one.late:.1f}" for one in figures if one.grew]
    found = {"seconds": round(seconds), "largest_rate": round(most), "records_per_second": round(held)}
    found |= {"acked": load.acked, "jobs": jobs.runs}
    _told(found | {"wrong": wrong}, figures, samples, report)
    return 1 if wrong else 0


def _largest_rate(load: Load, seconds: float) -> float:
    """Its second half counts: a service that has just started is still warming up."""
    threading.Event().wait(seconds / 2)
    began, before = now(), sum(load.acked.values())
    threading.Event().wait(seconds / 2)
    return (sum(load.acked.values()) - before) / (now() - began)


def not_held(held: float, wanted: float, seconds: float) -> list[str]:
    """Of a short run a single slow moment is a large share: it is not judged."""
    if seconds < JUDGED_FROM_S or held >= HELD * wanted:
        return []
    return [f"{held:,.0f} records/s were acknowledged, {wanted:,.0f} were to be"]


class Watch:
    def __init__(self, server: Server) -> None:
        self._server = server
        folders = [server.root / "topics" / topic / str(p) for topic in (TOPIC, KEYED) for p in range(PARTITIONS)]
        self._orphans = {folder: Orphans(folder) for folder in folders}

    def sample(self, load: Load) -> dict[str, float]:
        pid = self._server.pid
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        commits, rest = mebibytes(self._server.root)
        return {
            "memory, MiB": int(status["VmRSS"].split()[0]) / 1024,
            "open files": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": self._server.threads,
            "ack p99, ms": load.p99_ms(),
            "versions behind the checkpoint": max(map(behind, self._orphans)),
            "orphaned files": sum(orphans.count() for orphans in self._orphans.values()),
            "data and WAL, MiB": rest,
            "commit files, MiB": commits,
        }


def _ends(server: Server) -> dict[Place, int]:
    places = [(topic, partition) for topic in CONFIGS for partition in range(PARTITIONS)]
    paths = {place: f"{CLUSTER}/topics/{place[0]}/partitions/{place[1]}/offset?at=latest" for place in places}
    return {place: int(server.client.get(path).json()["offset"]) for place, path in paths.items()}


def _told(found: dict[str, Any], figures: list[Figure], samples: list[dict[str, float]], report: Path | None) -> None:
    print(f"{'medians':32}{'2nd quarter':>14}{'last quarter':>14}")
    for one in figures:
        print(one)
    print(f"acknowledged: {found['acked']}; {found['jobs']} jobs were run")
    for line in found["wrong"] or ["nothing"]:
        print(f"wrong: {line}")
    if report is None:
        return
    report.mkdir(parents=True, exist_ok=True)
    found["figures"] = {
        one.name: {"second_quarter": round(one.early, 2), "last_quarter": round(one.late, 2), "verdict": one.verdict}
        for one in figures
    }
    (report / "soak.json").write_text(json.dumps(found | {"samples": samples}, indent=1))
    title = f"soak: {found['records_per_second']:,} records/s for {found['seconds'] / 60:.0f} min"
    series = {one.name: [sample[one.name] for sample in samples] for one in figures}
    (report / "soak.svg").write_text(charts(title, [sample["t"] for sample in samples], series))
