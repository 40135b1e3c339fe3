"""Key compaction: the last record of each key, one plan per partition (I-8, R-7).

What is small the driver does by itself, as the service would; everything else is done by Spark, whatever its size.
"""

from __future__ import annotations

import argparse
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.jobs.cluster import StoredCluster, Target
from sluice.jobs.framework import BaseJob, JobContext, act_on_each
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store.compaction import Cleanable, LogView, cleanable, dirtiest_first, file_reasons
from sluice.log_store.compaction_run import Compaction, LocalPasses, Passes, compact
from sluice.log_store.compaction_service import fits
from sluice.log_store.merger import lower_priority
from sluice.log_store.plans import Plan
from sluice.log_store.store import Store
from sluice.log_store.values import PartitionRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DISTRUST = "wall time jumped or differs from the leader's: lags and horizons go by it, so nothing is cleaned (R-13)"
SHOWN_NOTES = 20


@dataclass(frozen=True, slots=True)
class Look:
    """A partition and what a cleaning would do to it."""

    target: Target
    view: LogView
    chosen: Cleanable
    now_ms: int

    def wanted(self, *, force: bool) -> bool:
        return self.chosen.due or (force and self.chosen.dirty_bytes > 0)


class PlannedPartition:
    """A partition of the cluster, as a cleaning needs it: read from storage, committed by the leader."""

    def __init__(self, cluster: StoredCluster, ref: PartitionRef) -> None:
        self._cluster = cluster
        self._ref = ref

    @property
    def store(self) -> Store:
        return self._cluster.store

    @property
    def folder(self) -> str:
        return self._ref.folder

    @property
    def epoch(self) -> int:
        return self._cluster.epoch

    def view(self) -> LogView:
        return LogView.of(self._cluster.load(self._ref))

    def apply_plan(self, plan: Plan) -> int:
        return self._cluster.apply_plan(self._ref, plan)


class CompactionJob(BaseJob):
    name = "compaction"
    summary = "Keep the last record of each key in topics with cleanup.policy=compact."

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--force", action="store_true", help="clean what may be cleaned, however little of it is dirty"
        )
        parser.add_argument(
            "--driver-max-bytes",
            type=int,
            metavar="N",
            help="size up to which the driver cleans a partition itself; "
            "default: the setting compaction.in.process.max.bytes; 0: Spark does all",
        )

    def plan(self, context: JobContext) -> Intent:
        if not context.cluster.wall_trusted():
            return Intent((), [DISTRUST])
        looks = [_look(context, target) for target in context.targets() if target.config.compact]
        force = context.options.force
        wanted = [look for look in looks if look.wanted(force=force)]
        order = dirtiest_first([look.chosen for look in wanted], every=force)
        notes = [f"{look.target.ref.tp}: {look.chosen.reason}" for look in looks if not look.wanted(force=force)]
        if len(notes) > SHOWN_NOTES:
            notes = [*notes[:SHOWN_NOTES], f"and {len(notes) - SHOWN_NOTES} more that are not due"]
        return Intent([_step(wanted[place]) for place in order], notes)

    def act(self, context: JobContext, intent: Intent) -> None:
        act_on_each(context, intent, lambda step: _clean(context, step.work.target), lambda step: step)
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        context.report.facts["driver_peak_mib"] = peak_kib // 1024


def _look(context: JobContext, target: Target) -> Look:
    view, now_ms = LogView.of(context.cluster.load(target.ref)), context.clock.wall_ms()
    return Look(target, view, cleanable(view, target.config, now_ms), now_ms)


def _step(look: Look) -> Step:
    ref, chosen = look.target.ref, look.chosen
    whole = Line(
        topic=ref.topic,
        partition=ref.partition,
        subject=f"offsets {chosen.first_dirty}..{chosen.end - 1}",
        action="compact",
        reason=f"{chosen.reason}; the range ends where it does because {chosen.limit}",
        bytes=chosen.dirty_bytes,
    )
    lines = [
        Line(
            topic=ref.topic,
            partition=ref.partition,
            subject=one.file.path,
            action=one.action,
            reason=one.reason,
            records=one.file.records,
            bytes=one.file.size,
        )
        for one in file_reasons(look.view, chosen, look.now_ms)
    ]
    return Step((whole, *lines), look)


def _clean(context: JobContext, target: Target) -> None:
    """From what is there now: the plan of a long run may be an hour old."""
    look = _look(context, target)
    if not look.wanted(force=context.options.force):
        context.report.notes.append(f"{target.ref.tp} was cleaned by another meanwhile")
        return
    begun = context.clock.boottime()
    most = context.options.driver_max_bytes
    most = context.settings.log.compaction_in_process_max_bytes if most is None else most
    if fits(look.view, look.chosen, most):
        engine, done = "driver", _compact(context, look, LocalPasses(context.cluster.store))
    else:
        from sluice.jobs.compaction_spark import SparkPasses  # PySpark, which small partitions do not need

        with SparkPasses(_spark_behind_producers(context), context.cluster.store_spec) as passes:
            engine, done = "spark", _compact(context, look, passes)
    _count(context, target.ref, done, engine, context.clock.boottime() - begun)


def _spark_behind_producers(context: JobContext) -> SparkSession:
    """On the machine of the service the JVM, and the workers that it starts, inherit the priority of this thread."""
    with ThreadPoolExecutor(1, initializer=lower_priority) as starter:
        return starter.submit(context.spark).result()


def _compact(context: JobContext, look: Look, passes: Passes) -> Compaction:
    partition = PlannedPartition(context.cluster, look.target.ref)
    config, chosen = look.target.config, look.chosen
    return compact(partition, passes, config, chosen, look.view, look.now_ms, between=context.check)


def _count(context: JobContext, ref: PartitionRef, done: Compaction, engine: str, seconds: float) -> None:
    report = context.report
    report.count(
        records=done.records_before - done.records_after,
        bytes=done.bytes_before,
        removed=done.files_removed,
        added=done.files_added,
        bytes_added=done.bytes_after,
    )
    report.refused += done.tries - 1
    report.rows.append(
        {
            "topic": ref.topic,
            "partition": ref.partition,
            "clean_up_to": done.end,
            "records_read": done.records_before,
            "records_kept": done.records_after,
            "files_removed": done.files_removed,
            "files_added": done.files_added,
            "files_left": done.files_left,
            "tombstones_met": done.stamped,
            "tombstones_gone": done.expired,
            "by": engine,
            "tries": done.tries,
            "seconds": round(seconds, 3),
            "version": done.version,
        }
    )


JOB = CompactionJob()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("compaction")
