"""Vacuum: delete files that left the log, once `file.delete.delay.ms` is over (I-9, R-6).

The service does this by itself; the job is for clusters that are not served, and for an operator who needs room now.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.jobs.cluster import Swept, Target
from sluice.jobs.framework import BaseJob, JobContext, act_on_each
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store.sweep import SweepChoice, choose_sweep

DISTRUST = "wall time jumped or differs from the leader's: nothing is deleted by it until that is settled (R-13)"


@dataclass(frozen=True, slots=True)
class Work:
    target: Target
    sizes: dict[str, int]


class Vacuum(BaseJob):
    """The leader decides again before it deletes anything: what the plan shows is what it will find."""

    name = "vacuum"
    summary = "Delete files that left the log, after file.delete.delay.ms."
    orphans = False

    def plan(self, context: JobContext) -> Intent:
        if not context.cluster.wall_trusted():
            return Intent(notes=[DISTRUST])
        now_ms = context.clock.wall_ms()
        found = context.map_targets(lambda target: self._step(context, target, now_ms))
        steps = [step for step, _ in found if step is not None]
        waiting = sum(late for _, late in found)
        return Intent(steps, [f"{waiting} files left the log too lately to be deleted"] if waiting else [])

    def _step(self, context: JobContext, target: Target, now_ms: int) -> tuple[Step | None, int]:
        """What can go, and how many removed files must wait."""
        cluster, settings = context.cluster, context.settings.log
        listing = cluster.store.list(target.ref.folder)
        state = cluster.load(target.ref)  # after the listing: a file that came in between is live
        choice = choose_sweep(
            listing,
            {file.path for file in state.files},
            state.removed,
            now_ms=now_ms,
            delete_delay_ms=max(target.config.file_delete_delay_ms, settings.file_delete_delay_ms),
            orphan_retention_ms=settings.orphan_retention_ms if self.orphans else None,
        )
        sizes = {item.name: item.size for item in listing}
        waiting = sum(name in sizes for name in state.removed) - len(choice.removed)
        lines = tuple(self._line(target, name, sizes[name]) for name in self.chosen(choice))
        return (Step(lines, Work(target, sizes)) if lines else None), 0 if self.orphans else waiting

    def chosen(self, choice: SweepChoice | Swept) -> tuple[str, ...]:
        return choice.removed

    why = "removed by a commit, file.delete.delay.ms is over"

    def _line(self, target: Target, name: str, size: int) -> Line:
        ref = target.ref
        return Line(
            topic=ref.topic, partition=ref.partition, subject=name, action="delete", reason=self.why, bytes=size
        )

    def act(self, context: JobContext, intent: Intent) -> None:
        def act(step: Step) -> None:
            work: Work = step.work
            swept = context.cluster.sweep(work.target.ref, orphans=self.orphans)
            gone = (*swept.removed, *swept.orphans)
            freed = sum(work.sizes.get(name, 0) for name in gone)
            context.report.count(bytes=freed, removed=len(gone))
            ref = work.target.ref
            context.report.rows.append(
                {"topic": ref.topic, "partition": ref.partition, "files": len(gone), "bytes": freed}
            )

        act_on_each(context, intent, act, lambda step: step)


JOB = Vacuum()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("vacuum")
