"""Metrics of scheduled jobs as Prometheus text: served on a port, written to a file, or both."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sluice.jobs.work import DONE, NOTHING, Report

OUTCOMES_GOOD = (DONE, NOTHING)


@dataclass(slots=True)
class JobFigures:
    runs: dict[str, int] = field(default_factory=dict)
    """By outcome."""
    records: int = 0
    bytes: int = 0
    files_removed: int = 0
    files_added: int = 0
    seconds: float = 0.0
    last_seconds: float = 0.0
    last_start_ms: int = 0
    last_good_ms: int = 0
    next_ms: int = 0
    running: bool = False


_COUNTERS = {
    "records": "Records that runs of the job deleted or rewrote.",
    "bytes": "Bytes of the files that runs of the job took out of the log.",
    "files_removed": "Files that runs of the job took out of the log, or deleted.",
    "files_added": "Files that runs of the job put into the log.",
    "seconds": "Time that runs of the job took.",
}
_TIMES = {
    "last_start_ms": ("last_start_timestamp_seconds", "When the last run began."),
    "last_good_ms": ("last_success_timestamp_seconds", "When the last run that did not fail ended."),
    "next_ms": ("next_run_timestamp_seconds", "When the next run is due."),
}


class JobMetrics:
    """From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, JobFigures] = {}

    def due(self, job: str, next_ms: int) -> None:
        with self._lock:
            self._of(job).next_ms = next_ms

    def began(self, job: str, now_ms: int) -> None:
        with self._lock:
            figures = self._of(job)
            figures.running, figures.last_start_ms = True, now_ms

    def ended(self, job: str, outcome: str, now_ms: int, report: Report | None) -> None:
        with self._lock:
            figures = self._of(job)
            figures.running = False
            figures.runs[outcome] = figures.runs.get(outcome, 0) + 1
            if outcome in OUTCOMES_GOOD:
                figures.last_good_ms = now_ms
            if report is not None:
                for name in _COUNTERS:
                    setattr(figures, name, getattr(figures, name) + getattr(report, name))
                figures.last_seconds = report.seconds

    def _of(self, job: str) -> JobFigures:
        return self._jobs.setdefault(job, JobFigures())

    def text(self) -> str:
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        jobs = sorted(self._jobs.items())
        yield from _head("sluice_job_runs_total", "counter", "Runs by outcome.")
        for job, one in jobs:
            for outcome, count in sorted(one.runs.items()):
                yield f'sluice_job_runs_total{{job="{job}",outcome="{outcome}"}} {count}'
        for name, doc in _COUNTERS.items():
            yield from _head(f"sluice_job_{name}_total", "counter", doc)
            yield from (f'sluice_job_{name}_total{{job="{job}"}} {getattr(one, name)}' for job, one in jobs)
        for attribute, (name, doc) in _TIMES.items():
            yield from _head(f"sluice_job_{name}", "gauge", doc)
            yield from (f'sluice_job_{name}{{job="{job}"}} {getattr(one, attribute) / 1000}' for job, one in jobs)
        yield from _head("sluice_job_last_duration_seconds", "gauge", "How long the last run took.")
        yield from (f'sluice_job_last_duration_seconds{{job="{job}"}} {one.last_seconds}' for job, one in jobs)
        yield from _head("sluice_job_running", "gauge", "1 while the job runs.")
        yield from (f'sluice_job_running{{job="{job}"}} {int(one.running)}' for job, one in jobs)


def _head(name: str, kind: str, doc: str) -> Iterator[str]:
    yield f"# HELP {name} {doc}"
    yield f"# TYPE {name} {kind}"


def write_metrics(path: Path, text: str) -> None:
    """At once and whole: a collector may read at any moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


class MetricsServer:
    """`GET /metrics` and `GET /healthz`."""

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        pages: dict[str, Callable[[], str]] = {"/metrics": text, "/healthz": lambda: "ok\n"}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                if body:
                    self.wfile.write(body().encode())

            def log_message(self, format: str, *_: object) -> None:
                """A collector that comes every few seconds is no news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="sluice-job-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
