"""Retention: whole segments by log start, size and age, one plan per partition (R-10).

The service does the same by itself every `retention.check.interval.ms`; the job is for clusters that are not served,
for a run right now, and for a look at what would go.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.jobs.cluster import Target
from sluice.jobs.framework import BaseJob, JobContext, act_on_each
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store.log_shape import LogShape
from sluice.log_store.plans import Plan
from sluice.log_store.retention import Retention, decide_retention
from sluice.log_store.values import PartitionRef

DISTRUST = "wall time jumped or differs from the leader's: nothing goes by its age until that is settled (R-13)"


@dataclass(frozen=True, slots=True)
class Work:
    target: Target
    decided: Retention
    plan: Plan


class RetentionJob(BaseJob):
    name = "retention"
    summary = "Delete whole segments past retention.ms or retention.bytes, or below the log start."

    def plan(self, context: JobContext) -> Intent:
        trusted = context.cluster.wall_trusted()
        now_ms = context.clock.wall_ms() if trusted else None
        found = context.map_targets(lambda target: _step(context, target, now_ms))
        return Intent([step for step in found if step is not None], [] if trusted else [DISTRUST])

    def act(self, context: JobContext, intent: Intent) -> None:
        def act(step: Step) -> None:
            work: Work = step.work
            version = context.cluster.apply_plan(work.target.ref, work.plan)
            _count(context, work, version)

        def again(step: Step) -> Step | None:
            now_ms = context.clock.wall_ms() if context.cluster.wall_trusted() else None
            return _step(context, step.work.target, now_ms)

        act_on_each(context, intent, act, again)


def _step(context: JobContext, target: Target, now_ms: int | None) -> Step | None:
    log = LogShape.of(context.cluster.load(target.ref))
    decided = decide_retention(log, target.config, now_ms)
    if decided is None:
        return None
    lines = tuple(
        Line(
            topic=target.ref.topic,
            partition=target.ref.partition,
            subject=file.path,
            action=f"delete, log start becomes {decided.log_start}",
            reason=f"segment {one.segment.offsets.start}..{one.segment.offsets.end - 1}, {one.reason}: {one.why}",
            records=file.records,
            bytes=file.size,
        )
        for one in decided.expired
        for file in one.segment.files
    )
    # Compaction may have left segments without a file: there is still the log start to move.
    return Step(lines or (_only_start(target.ref, decided),), Work(target, decided, decided.to_plan(log.version)))


def _only_start(ref: PartitionRef, decided: Retention) -> Line:
    return Line(
        topic=ref.topic,
        partition=ref.partition,
        subject=f"log start {decided.log_start}",
        action="move the log start",
        reason=decided.reason,
    )


def _count(context: JobContext, work: Work, version: int) -> None:
    files = work.decided.files
    records, size = sum(file.records for file in files), sum(file.size for file in files)
    context.report.count(records=records, bytes=size, removed=len(files))
    context.report.rows.append(
        {
            "topic": work.target.ref.topic,
            "partition": work.target.ref.partition,
            "log_start": work.decided.log_start,
            "segments": len(work.decided.expired),
            "files": len(files),
            "records": records,
            "bytes": size,
            "version": version,
            "reason": work.decided.reason,
        }
    )


JOB = RetentionJob()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("retention")
