"""The jobs at their times: one after the other, missed times once, failures told and survived."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import JobSettings
from sluice.jobs.job_metrics import JobMetrics, MetricsServer, write_metrics
from sluice.jobs.leases import LeaseHeld
from sluice.jobs.registry import MODULES
from sluice.jobs.scheduler import JobScheduler
from sluice.jobs.timetable import Entry, schedules
from sluice.jobs.work import Report
from sluice.log_store.clock import ManualClock
from sluice.log_store.errors import NotLeader

MINUTE_S = 60.0
OFF = {
    name: ""
    for name in JobSettings.__dataclass_fields__
    if name.startswith("schedule_") and name != "schedule_jitter_ms"
}
START_MS = 1_800_000_000_000  # a full minute, 08:00:00 UTC


def entries(**texts: str) -> list[Entry]:
    return schedules(JobSettings(**OFF | {f"schedule_{job}": text for job, text in texts.items()}), {})  # type: ignore[arg-type]


class Runs:
    """Jobs that do nothing but say that they ran; some take their time, or fail."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.ran: list[str] = []
        self.takes: dict[str, float] = {}
        self.fails: dict[str, Callable[[], Exception]] = {}

    def __call__(self, entry: Entry) -> Report:
        self.ran.append(entry.job)
        self.clock.advance(self.takes.get(entry.job, 0.0))
        if entry.job in self.fails:
            raise self.fails[entry.job]()
        return Report(job=entry.job, run_id="r", started_ms=self.clock.wall_ms(), records=5, seconds=1.5)


def scheduler(runs: Runs, made: list[Entry], jitter_ms: int = 0) -> JobScheduler:
    return JobScheduler(made, runs, jitter_ms=jitter_ms, clock=runs.clock)


def all_due(jobs: JobScheduler) -> None:
    while jobs.run_due():
        pass


def test_every_schedule_is_that_of_a_job() -> None:
    """And the defaults can all be parsed."""
    assert {name.removeprefix("schedule_").replace("_", "-") for name in OFF} <= set(MODULES)
    assert {entry.job for entry in schedules(JobSettings(), {})} <= set(MODULES)


def test_each_runs_at_its_time() -> None:
    runs = Runs(ManualClock(START_MS))
    jobs = scheduler(runs, entries(retention="*/5 * * * *", vacuum="15 * * * *"))
    all_due(jobs)
    assert runs.ran == []
    for _ in range(15):
        runs.clock.advance(MINUTE_S)
        all_due(jobs)
    assert runs.ran == ["retention", "retention", "retention", "vacuum"] or runs.ran[-2:] == ["vacuum", "retention"]
    assert sorted(runs.ran) == ["retention"] * 3 + ["vacuum"]


def test_times_that_passed_meanwhile_count_once() -> None:
    runs = Runs(ManualClock(START_MS))
    runs.takes = {"merge": 3_600.0}
    jobs = scheduler(runs, entries(retention="* * * * *", merge="1 * * * *"))
    runs.clock.advance(MINUTE_S)
    all_due(jobs)
    assert sorted(runs.ran[:2]) == ["merge", "retention"]
    # An hour has gone by: each was due again, and is run once, not sixty times.
    assert len(runs.ran) <= 4


def test_a_clock_that_is_set_back_does_not_stop_the_schedule() -> None:
    runs = Runs(ManualClock(START_MS + 365 * 86_400_000))
    jobs = scheduler(runs, entries(retention="*/5 * * * *"))
    runs.clock.jump(-365 * 86_400)
    all_due(jobs)
    runs.clock.advance(5 * MINUTE_S)
    all_due(jobs)
    assert runs.ran == ["retention"]


def test_jitter_is_at_most_what_was_set() -> None:
    entry = entries(retention="*/5 * * * *")[0]
    assert entry.after(START_MS, 10_000, lambda: 0.0).due_ms == START_MS + 300_000
    assert entry.after(START_MS, 10_000, lambda: 0.9999).due_ms == START_MS + 309_999


def test_failures_are_counted_and_the_others_go_on() -> None:
    runs = Runs(ManualClock(START_MS))
    runs.fails = {
        "retention": lambda: NotLeader("not reachable"),
        "vacuum": lambda: LeaseHeld("another run"),
        "merge": lambda: RuntimeError("the JVM is gone"),
    }
    jobs = scheduler(runs, entries(retention="* * * * *", vacuum="* * * * *", merge="* * * * *", orphans="* * * * *"))
    runs.clock.advance(MINUTE_S)
    all_due(jobs)
    text = jobs.metrics.text()
    assert 'sluice_job_runs_total{job="retention",outcome="failed"} 1' in text
    assert 'sluice_job_runs_total{job="vacuum",outcome="skipped"} 1' in text
    assert 'sluice_job_runs_total{job="merge",outcome="failed"} 1' in text
    assert 'sluice_job_runs_total{job="orphans",outcome="done"} 1' in text
    assert 'sluice_job_records_total{job="orphans"} 5' in text
    assert 'sluice_job_last_duration_seconds{job="orphans"} 1.5' in text
    assert f'sluice_job_last_success_timestamp_seconds{{job="orphans"}} {(START_MS + 60_000) / 1000}' in text
    assert 'sluice_job_last_success_timestamp_seconds{job="merge"} 0.0' in text


def test_a_stop_wakes_it() -> None:
    runs, stop = Runs(ManualClock(START_MS)), threading.Event()
    jobs = JobScheduler(entries(merge="30 2 * * *"), runs, jitter_ms=0, clock=runs.clock, stop=stop)
    thread = threading.Thread(target=jobs.serve)
    thread.start()
    stop.set()
    thread.join(60)
    assert not thread.is_alive()


def test_options_of_a_job_follow_its_schedule() -> None:
    found = entries(verify="0 3 * * * --quick --topic 'a b'", merge="@daily --level 9")
    assert {entry.job: entry.arguments for entry in found} == {
        "merge": ("--level", "9"),
        "verify": ("--quick", "--topic", "a b"),
    }


def test_a_schedule_that_cannot_be_names_key_and_rule() -> None:
    with pytest.raises(ConfigurationError, match=r"jobs\.schedule\.offset\.expiry.*minute '61'"):
        entries(offset_expiry="61 * * * *")


def test_metrics_on_a_port_and_in_a_file(tmp_path: Path) -> None:
    metrics = JobMetrics()
    metrics.due("retention", START_MS)
    server = MetricsServer("127.0.0.1", 0, metrics.text)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
            body = answer.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=60) as answer:
            assert answer.status == 200
    finally:
        server.close()
    assert f'sluice_job_next_run_timestamp_seconds{{job="retention"}} {START_MS / 1000}' in body
    write_metrics(tmp_path / "jobs.prom", body)
    assert (tmp_path / "jobs.prom").read_text() == body
    assert len(list(tmp_path.iterdir())) == 1
