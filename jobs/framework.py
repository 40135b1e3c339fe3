"""How every job runs: options, lease, plan, act, report.

A job is plan and act. `plan` reads, decides with pure rules and says why; `act` does it, one step after the other,
each of which leaves a good table wherever it is killed. The frame around them is the same for all:

1. the cluster is opened: its leader is found, or this process becomes it            (a dry run only reads)
2. the job's lease is taken: a second run gives up                                     (a dry run takes none)
3. `plan` → printed and done with `--dry-run`
4. `act`, with a progress bar on a terminal
5. the report is printed and stored

Exit codes: 0 done or nothing to do, 1 failed, 2 usage.
"""

from __future__ import annotations

import argparse
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from sluice.conf.settings import Settings
from sluice.jobs.cluster import StoredCluster, Target, open_cluster
from sluice.jobs.leases import Lease, LeaseHeld, LeaseLost
from sluice.jobs.output import Output, Progress
from sluice.jobs.runs import mark_running, store_report
from sluice.jobs.work import DONE, FAILED, NOTHING, STOPPED, Intent, Report, Step
from sluice.log_store.claims import MAINTENANCE
from sluice.log_store.clock import Clock, SystemClock, WallGuard
from sluice.log_store.errors import (
    InvalidRequest,
    PlanRefused,
    SluiceError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
T = TypeVar("T")
LOOKS_AT_ONCE = 8
TOPIC_GONE = (UnknownTopicId, UnknownTopicOrPartition)
"""What a job is told about a topic that was there when it made its plan."""
TRIES = 5
"""How often the plan of one partition is made anew when the partition moved on meanwhile."""


class Stopped(Exception):
    """SIGTERM or SIGINT came: what was committed stays, the next run goes on."""


@dataclass(slots=True)
class JobContext:
    """What a job is given."""

    cluster: StoredCluster
    options: argparse.Namespace
    clock: Clock
    report: Report
    progress: Progress
    output: Output
    dry_run: bool = False
    lease: Lease | None = None
    stopping: Callable[[], bool] = field(default=lambda: False)
    _spark: Callable[[], SparkSession] | None = None

    @property
    def settings(self) -> Settings:
        return self.cluster.settings

    def spark(self) -> SparkSession:
        """The session, started at its first use: a run that finds nothing to do needs no JVM."""
        if self._spark is None:
            raise InvalidRequest("this run has no Spark session")
        return self._spark()

    def targets(self) -> list[Target]:
        """The partitions that `--topic` and `--partition` choose; without them all."""
        return self.cluster.targets(self.options.topic, self.options.partition)

    def map_targets(self, look: Callable[[Target], T]) -> list[T]:
        """`look` at each partition, in their order; several at a time, because most of it is waiting for storage."""
        with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="sluice-look") as pool:
            return list(pool.map(look, self.targets()))

    def check(self) -> None:
        """Call it between steps: LeaseLost or Stopped when this run must end."""
        if self.stopping():
            raise Stopped
        if self.lease is not None:
            self.lease.check()


class Job(Protocol):
    name: str
    summary: str
    """One line for `sluice jobs list`."""
    purpose: str
    """What it leads for when it runs offline: MAINTENANCE, or SERVICE if it must append rows."""
    selects_partitions: bool
    """Whether it takes `--topic` and `--partition`."""
    reads_only: bool
    """It needs no leader and no lease, and may run where only reading is allowed: its report is then not kept."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that only this job has."""

    def plan(self, context: JobContext) -> Intent:
        """Read and decide. Changes nothing; raises SluiceError when it cannot."""

    def act(self, context: JobContext, intent: Intent) -> None:
        """Do it, count in `context.report`, call `context.check()` and `context.progress.advance()` between steps."""


class BaseJob:
    """What most jobs do not need to say."""

    purpose = MAINTENANCE
    selects_partitions = True
    reads_only = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        pass


def run_job(
    job: Job,
    options: argparse.Namespace,
    settings: Settings,
    *,
    output: Output,
    clock: Clock | None = None,
    spark: Callable[[], SparkSession] | None = None,
    stopping: Callable[[], bool] | None = None,
    wall: WallGuard | None = None,
) -> Report:
    """One run, whose outcome is in the report. Raises SluiceError only for what went wrong before it began."""
    clock = clock or SystemClock()
    began = clock.boottime()
    report = Report(job=job.name, run_id=uuid.uuid4().hex[:12], started_ms=clock.wall_ms())
    cluster = open_cluster(
        options.root,
        options.server,
        options.token,
        settings=settings,
        ca_file=options.ca_file,
        clock=clock,
        read_only=options.dry_run or job.reads_only,
        purpose=job.purpose,
        wall=wall,
    )
    with cluster:
        context = JobContext(
            cluster=cluster,
            options=options,
            clock=clock,
            report=report,
            progress=Progress(output, job.name),
            output=output,
            dry_run=options.dry_run,
            stopping=stopping or (lambda: False),
            _spark=spark,
        )
        report.mode, report.leader = cluster.mode, cluster.leader
        if options.dry_run:
            intent = job.plan(context)
            output.plan(job.name, intent)
            report.planned = len(intent.steps)
            return report
        with nullcontext() if job.reads_only else Lease(cluster.store, clock, job.name) as lease:
            context.lease = lease
            mark_running(cluster.store, report, needed=not job.reads_only)
            _run(job, context)
            report.seconds = round(clock.boottime() - began, 3)
            store_report(cluster.store, report, needed=not job.reads_only)
    output.report(report)
    return report


def _run(job: Job, context: JobContext) -> None:
    report = context.report
    try:
        intent = job.plan(context)
        report.planned = len(intent.steps)
        report.notes += intent.notes
        if not intent.steps:
            report.outcome = NOTHING
            return
        with context.progress.over(len(intent.steps)):
            job.act(context, intent)
    except Stopped:
        report.outcome, report.error = STOPPED, "stopped by a signal; the next run goes on"
    except LeaseLost as error:
        report.outcome, report.error = STOPPED, error.message
    except SluiceError as error:
        report.outcome, report.error = FAILED, f"{error.message} ({error.error})"
    except BaseException as error:
        # A bug, or Spark: it leaves as it is, and the status must not show the run before it.
        report.outcome, report.error = FAILED, f"{type(error).__name__}: {error}"[:2_000]
        store_report(context.cluster.store, report, needed=not job.reads_only)
        raise


def act_on_each(
    context: JobContext,
    intent: Intent,
    act: Callable[[Step], None],
    again: Callable[[Step], Step | None],
) -> None:
    """The usual `act`: step by step. A plan that came too late is made anew from what is there now.

    One partition that fails does not keep the others waiting: the run goes on and fails at its end. A topic that was
    deleted meanwhile needs nothing any more.
    """
    errors: list[str] = []
    for first in intent.steps:
        for attempt in range(TRIES):
            context.check()
            try:
                step = first if attempt == 0 else again(first)
                if step is not None:
                    act(step)
                    context.report.done += 1
                break
            except PlanRefused as refused:
                context.report.refused += 1
                _log.info("a plan came too late, it is made anew: %s", refused.message)
            except (LeaseHeld, LeaseLost):
                raise
            except TOPIC_GONE as gone:
                context.report.notes.append(f"{_where(first)}: {gone.message}; the next run goes on")
                break
            except SluiceError as error:
                errors.append(f"{_where(first)}: {error.message}")
                break
        else:
            context.report.notes.append(f"{_where(first)} moved on {TRIES} times: left to the next run")
        context.progress.advance()
    if errors:
        raise SluiceError("; ".join(errors[:5]) + (f" and {len(errors) - 5} more" if len(errors) > 5 else ""))


def _where(step: Step) -> str:
    line = step.lines[0] if step.lines else None
    return "a step" if line is None else f"{line.topic}-{line.partition}" if line.topic else line.subject


__all__ = [
    "DONE",
    "FAILED",
    "NOTHING",
    "STOPPED",
    "TOPIC_GONE",
    "BaseJob",
    "Job",
    "JobContext",
    "Stopped",
    "act_on_each",
    "run_job",
]
