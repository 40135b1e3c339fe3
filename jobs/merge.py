"""Deep merge: closed segments in as few, as well compressed files as `merge.target.bytes` allows (R-10).

Groups of files are rewritten beside each other: by threads of this process, or by the executors of a Spark cluster,
which read and write the files themselves. The leader commits each group as a merge plan (I-8), so that a run that is
killed keeps what it did, and the next one goes on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluice.conf.settings import SparkSettings
from sluice.jobs.cluster import StoreSpec, Target
from sluice.jobs.data_files import drop_data_files, write_data_file
from sluice.jobs.framework import TOPIC_GONE, BaseJob, JobContext
from sluice.jobs.merge_plan import TAG, MergeGroup, choose_deep_merges, deep_codec, tag_of
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store import reader
from sluice.log_store.compaction_tombstones import carried
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.log_shape import LogShape
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.store import Store

WAVE = 4
"""Groups for each worker between two rounds of commits: enough to keep them busy, few enough to lose little."""


@dataclass(frozen=True, slots=True)
class Task:
    """One group, with all that a worker on another machine needs."""

    folder: str
    files: tuple[DataFile, ...]
    codec: tuple[str, int | None]
    epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Work:
    target: Target
    group: MergeGroup
    version: int
    task: Task


class DeepMerge(BaseJob):
    name = "merge"
    summary = "Rewrite closed segments into few well compressed files of merge.target.bytes."

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--level", type=int, choices=range(1, 20), metavar="1..19", help="of zstd; default: 6")
        parser.add_argument("--include-active", action="store_true", help="also the segment that is appended to")
        parser.add_argument("--no-recompress", action="store_true", help="leave files alone that have no neighbour")
        parser.add_argument(
            "--workers",
            choices=("auto", "threads", "spark"),
            default="auto",
            help="who rewrites; auto: Spark if it has a cluster, else threads, which one machine runs faster",
        )

    def plan(self, context: JobContext) -> Intent:
        found = context.map_targets(lambda target: list(_steps(context, target)))
        return Intent([step for steps in found for step in steps])

    def act(self, context: JobContext, intent: Intent) -> None:
        workers = _workers(context)
        for at in range(0, len(intent.steps), workers.wave):
            context.check()
            works: list[Work] = [step.work for step in intent.steps[at : at + workers.wave]]
            for work, written in zip(works, workers.run([work.task for work in works]), strict=True):
                _commit(context, work, written)
                context.progress.advance()


def _steps(context: JobContext, target: Target) -> Iterator[Step]:
    options, ref = context.options, target.ref
    log = LogShape.of(context.cluster.load(ref))
    chosen = deep_codec(target.config.compression_type, options.level)
    groups = choose_deep_merges(
        log,
        target.config.merge_target_bytes,
        tag_of(chosen),
        include_active=options.include_active,
        recompress=not options.no_recompress,
    )
    for group in groups:
        task = Task(ref.folder, group.files, chosen, context.cluster.epoch, context.clock.wall_ms())
        into = f"rewrite at {tag_of(chosen)} into one of {len(group.files)}"
        lines = tuple(
            Line(
                topic=ref.topic,
                partition=ref.partition,
                subject=file.path,
                action=into,
                reason=group.reason,
                records=file.records,
                bytes=file.size,
            )
            for file in group.files
        )
        yield Step(lines, Work(target, group, log.version, task))


# --- rewriting ----------------------------------------------------------------------------------


def rewrite(store: Store, task: Task) -> DataFile | None:
    """Write the rows of a group as one file; None when an input is gone, because another plan was faster (I-9)."""
    start, end = task.files[0].base_offset, task.files[-1].end_offset
    tags = dict(carried(task.files, start)) | {TAG: tag_of(task.codec)}
    batches = reader.scan(store, task.folder, task.files, start, end)
    try:
        return write_data_file(
            store, task.folder, batches, epoch=task.epoch, codec=task.codec, now_ms=task.now_ms, tags=tags
        )
    except FileVanished:
        return None


class Threads:
    """Arrow lets go of the interpreter while it decodes and encodes: threads use all the cores of one machine."""

    def __init__(self, spec: StoreSpec, count: int) -> None:
        self._store = spec.open()
        self._count = count
        self.wave = WAVE * count

    def run(self, tasks: Sequence[Task]) -> list[DataFile | None]:
        with ThreadPoolExecutor(self._count, thread_name_prefix="sluice-deep-merge") as pool:
            return list(pool.map(lambda task: rewrite(self._store, task), tasks))


class Executors:
    def __init__(self, context: JobContext, spec: StoreSpec) -> None:
        self._spark = context.spark().sparkContext
        self._spec = spec
        self.wave = WAVE * max(1, self._spark.defaultParallelism)

    def run(self, tasks: Sequence[Task]) -> list[DataFile | None]:
        spec = self._spec
        # One group is one task: groups differ in size, and Spark hands out the next when one is done.
        return list(self._spark.parallelize(tasks, len(tasks)).map(lambda task: rewrite(spec.open(), task)).collect())


def _workers(context: JobContext) -> Threads | Executors:
    wanted = context.options.workers
    if wanted == "auto":
        wanted = "spark" if _has_cluster(context.settings.spark) else "threads"
    spec = context.cluster.store_spec
    return Executors(context, spec) if wanted == "spark" else Threads(spec, os.cpu_count() or 1)


def _has_cluster(settings: SparkSettings) -> bool:
    from sluice.conf.spark import is_submitted  # PySpark, which threads do not need

    return is_submitted(os.environ) or not settings.master.startswith("local")


# --- committing ---------------------------------------------------------------------------------


def _commit(context: JobContext, work: Work, written: DataFile | None) -> None:
    ref, report = work.target.ref, context.report
    if written is None:
        report.refused += 1
        return
    plan = Plan(
        plan_id=f"deep-{written.path[: -len('.parquet')]}",
        kind=PlanKind.MERGE,
        reason=f"deep merge: {work.group.reason}",
        base_version=work.version,
        removes=tuple(file.path for file in work.group.files),
        adds=(written,),
    )
    try:
        # Any other error leaves it open whether the plan was committed: the file stays, live or to be swept.
        version = context.cluster.apply_plan(ref, plan)
    except (PlanRefused, *TOPIC_GONE) as refused:
        # The partition moved on: retention, compaction or the service's own merge took one of the files.
        # Or its topic is gone, and nobody may come again to purge its folder.
        drop_data_files(context.cluster.store, ref.folder, [written])
        report.refused += 1
        report.notes.append(f"{ref.tp}: {refused.message}; the next run goes on")
        return
    report.done += 1
    report.count(
        records=written.records,
        bytes=work.group.bytes,
        removed=len(work.group.files),
        added=1,
        bytes_added=written.size,
    )
    report.rows.append(
        {
            "topic": ref.topic,
            "partition": ref.partition,
            "offsets": f"{written.base_offset}..{written.end_offset - 1}",
            "files": len(work.group.files),
            "bytes": work.group.bytes,
            "bytes_after": written.size,
            "version": version,
        }
    )


JOB = DeepMerge()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("merge")
