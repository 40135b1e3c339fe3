"""`sluice jobs schedule`: the jobs at their times, one after the other, in one process with one Spark session.

One after the other, because offline they would fight for the leadership, and because two of them rarely finish sooner
than one and then the other. A time that passed while another job ran counts once. What a job needs to be safe it has
by itself: its lease, and plans that the leader checks.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import Settings, load_settings_with_origins
from sluice.jobs.command_line import OK, job_parser, spark_factory, stop_on_signals
from sluice.jobs.framework import run_job
from sluice.jobs.job_metrics import JobMetrics, MetricsServer, write_metrics
from sluice.jobs.leases import LeaseHeld
from sluice.jobs.output import Output, summary
from sluice.jobs.registry import MODULES, job_named
from sluice.jobs.timetable import Entry, schedules
from sluice.jobs.work import FAILED as RUN_FAILED
from sluice.jobs.work import Report
from sluice.log_store.clock import Clock, SystemClock, WallGuard
from sluice.log_store.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
LOOK_S = 20.0
"""The longest sleep: wall time may jump, and a machine may be suspended."""
SKIPPED = "skipped"

Run = Callable[[Entry], Report]


class JobScheduler:
    """Runs what is due until it is told to stop. `run` and `clock` are for tests."""

    def __init__(
        self,
        entries: Sequence[Entry],
        run: Run,
        *,
        jitter_ms: int,
        clock: Clock | None = None,
        stop: threading.Event | None = None,
        metrics: JobMetrics | None = None,
        after_run: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._run = run
        self._jitter_ms = jitter_ms
        self._stop = stop or threading.Event()
        self.metrics = metrics or JobMetrics()
        self._after_run = after_run
        self._entries = {entry.job: self._next(entry) for entry in entries}

    def _next(self, entry: Entry) -> Entry:
        entry = entry.after(self._clock.wall_ms(), self._jitter_ms, random.random)
        self.metrics.due(entry.job, entry.due_ms)
        return entry

    def serve(self) -> None:
        while not self._stop.is_set():
            if not self.run_due():
                self._stop.wait(self._sleep_s())

    def _sleep_s(self) -> float:
        first_ms = min((entry.due_ms for entry in self._entries.values()), default=2**53)
        return min(LOOK_S, max(0.0, (first_ms - self._clock.wall_ms()) / 1000))

    def run_due(self) -> bool:
        """Run the job that waits for longest, if there is one."""
        due = [entry for entry in self._entries.values() if entry.due_ms <= self._clock.wall_ms()]
        if not due:
            self._notice_jumps()
            return False
        entry = min(due, key=lambda one: one.due_ms)
        self._run_one(entry)
        # From now on, not from when it was due: whatever passed meanwhile is done with.
        self._entries[entry.job] = self._next(entry)
        return True

    def _notice_jumps(self) -> None:
        """Wall time was set back: a job that is due in a year would otherwise wait for it."""
        for entry in self._entries.values():
            fresh = entry.after(self._clock.wall_ms(), self._jitter_ms, random.random)
            if entry.due_ms > fresh.due_ms + self._jitter_ms:
                self._entries[entry.job] = fresh
                self.metrics.due(entry.job, fresh.due_ms)

    def _run_one(self, entry: Entry) -> None:
        self.metrics.began(entry.job, self._clock.wall_ms())
        report: Report | None = None
        outcome = RUN_FAILED
        try:
            report = self._run(entry)
            outcome = report.outcome
            _log.info("%s", summary(report))
        except LeaseHeld as held:
            outcome = SKIPPED
            _log.info("%s is left out: %s", entry.job, held.message)
        except SluiceError as error:
            _log.warning("%s could not run: %s (%s)", entry.job, error.message, error.error)
        except Exception:  # noqa: BLE001 - Spark, or a bug: the other jobs go on
            _log.exception("%s failed", entry.job)
        self.metrics.ended(entry.job, outcome, self._clock.wall_ms(), report)
        self._after_run()


@dataclass(slots=True)
class SharedSession:
    """One Spark session for all runs, started when the first job needs it."""

    start: Callable[[], SparkSession]
    session: SparkSession | None = None

    def get(self) -> SparkSession:
        # Spark answers the one that runs, or starts another where that was stopped by a failure.
        self.session = self.start()
        return self.session

    def close(self) -> None:
        if self.session is not None:
            self.session.stop()
            self.session = None


def schedule_command(options: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT; the exit code. ConfigurationError before anything was started."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    settings, origins = load_settings_with_origins(options.config, os.environ)
    if options.root is not None:
        settings = replace(settings, storage=replace(settings.storage, root=options.root))
    entries = schedules(settings.jobs, origins)
    parsed = {entry.job: _options_of(entry, options, origins) for entry in entries}
    stop, metrics = stop_on_signals(), JobMetrics()
    wall = WallGuard(SystemClock())  # one for all runs: a jump between two of them counts
    session = SharedSession(spark_factory(settings, "sluice jobs"))
    server = _metrics_server(options, settings, metrics)

    def run(entry: Entry) -> Report:
        return run_job(
            job_named(entry.job),
            parsed[entry.job],
            settings,
            output=_Silent(),
            spark=session.get,
            stopping=stop.is_set,
            wall=wall,
        )

    def after_run() -> None:
        if settings.jobs.metrics_file:
            write_metrics(Path(settings.jobs.metrics_file), metrics.text())

    scheduler = JobScheduler(
        entries, run, jitter_ms=settings.jobs.schedule_jitter_ms, stop=stop, metrics=metrics, after_run=after_run
    )
    _log.info("jobs on their schedules: %s", ", ".join(entry.job for entry in entries) or "none")
    try:
        scheduler.serve()
    finally:
        session.close()
        if server is not None:
            server.close()
    _log.info("stopped")
    return OK


def _options_of(entry: Entry, options: argparse.Namespace, origins: Mapping[str, str]) -> argparse.Namespace:
    """The options of the schedule itself say which cluster; those in the setting say the rest."""
    key = f"jobs.schedule.{entry.job.replace('-', '.')}"
    if entry.job not in MODULES:
        raise _wrong(key, entry, origins, "there is no such job")
    parser = job_parser(job_named(entry.job), entry.job)
    try:
        parsed = parser.parse_args(entry.arguments)
    except SystemExit as error:
        raise _wrong(key, entry, origins, "these options are not the job's") from error
    for name in ("config", "root", "server", "token", "ca_file"):
        setattr(parsed, name, getattr(options, name))
    return parsed


def _wrong(key: str, entry: Entry, origins: Mapping[str, str], rule: str) -> ConfigurationError:
    origin = origins.get(key, "default")
    return ConfigurationError(key=key, value=" ".join(entry.arguments) or entry.job, origin=origin, rule=rule)


def _metrics_server(options: argparse.Namespace, settings: Settings, metrics: JobMetrics) -> MetricsServer | None:
    port = settings.jobs.metrics_port if options.metrics_port is None else options.metrics_port
    if not port and options.metrics_port is None:
        return None
    server = MetricsServer(settings.jobs.metrics_host, port, metrics.text)
    _log.info("metrics on http://%s:%d/metrics", settings.jobs.metrics_host, server.port)
    return server


class _Silent(Output):
    """A scheduled run is told by one line of the log and by its stored report."""

    def report(self, report: Report) -> None:
        pass
