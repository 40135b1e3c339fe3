"""Assignment: what Range, RoundRobin and Sticky would give the members of a group, from its stored state.

The result of one strategy goes to the table `_sluice/assignments` below the root, a Delta table with one row for each
partition; the comparison of all of them is printed. The group itself is left alone: its own members decide.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sluice.jobs.assignment_plan import Proposal, propose
from sluice.jobs.framework import BaseJob, JobContext
from sluice.jobs.stored_groups import stored_group
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store.errors import GroupIdNotFound
from sluice.streaming.assignors import Strategy

TABLE = "_sluice/assignments"
SCHEMA = (
    "group STRING, generation INT, strategy STRING, member_id STRING, instance_id STRING, topic STRING, "
    "partition INT, previous_member_id STRING, moved BOOLEAN, computed_at TIMESTAMP, run_id STRING"
)


class AssignmentJob(BaseJob):
    name = "assignment"
    summary = "Compute the assignment of a group by a strategy, compare all strategies, store it in a table."
    selects_partitions = False

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--group", required=True, help="the consumer group")
        parser.add_argument(
            "--strategy", choices=[str(one) for one in Strategy], help="default: the group's own, else range"
        )

    def plan(self, context: JobContext) -> Intent:
        group_id = context.options.group
        stored = stored_group(context.cluster, group_id)
        if stored is None:
            raise GroupIdNotFound(f"there is no group {group_id!r} in {context.cluster.store.url}")
        counts = {meta.name: meta.partitions for meta in context.cluster.topics()}
        proposal = propose(group_id, stored.metadata, counts, context.options.strategy)
        lines = tuple(
            Line(
                topic=row["topic"],
                partition=row["partition"],
                subject=row["member_id"],
                action=f"assign by {proposal.strategy}",
                reason=f"taken from {row['previous_member_id']}" if row["moved"] else _not_moved(row),
            )
            for row in _rows(proposal)
        )
        compared = [asdict(one) for one in proposal.comparisons]
        notes = [
            f"{one['strategy']}: {one['moved']} partitions move, imbalance {one['imbalance']}, "
            f"{one['withheld']} withheld"
            for one in compared
        ]
        return Intent([Step(lines, proposal)], notes)

    def act(self, context: JobContext, intent: Intent) -> None:
        proposal: Proposal = intent.steps[0].work
        computed_at = datetime.fromtimestamp(context.clock.wall_ms() / 1000, UTC)
        rows = list(_rows(proposal))
        stamped = [(*row.values(), computed_at, context.report.run_id) for row in rows]
        context.check()
        spark = context.spark()
        # One file, one commit: a run that is killed has written all of it or nothing.
        frame = spark.createDataFrame(stamped, SCHEMA).coalesce(1)
        frame.write.format("delta").mode("append").save(context.cluster.spark_path(TABLE))
        context.report.done = 1
        context.report.count(records=len(rows))
        context.report.rows = rows
        context.report.facts |= {
            "generation": proposal.generation,
            "strategy": str(proposal.strategy),
            "table": context.cluster.spark_path(TABLE),
        }
        context.progress.advance()


def _not_moved(row: dict[str, Any]) -> str:
    return "nobody read it" if row["previous_member_id"] is None else "stays"


def _rows(proposal: Proposal) -> Iterator[dict[str, Any]]:
    for member_id, partitions in proposal.assignment.items():
        for where in partitions:
            before = proposal.owners.get(where)
            yield {
                "group": proposal.group,
                "generation": proposal.generation,
                "strategy": str(proposal.strategy),
                "member_id": member_id,
                "instance_id": proposal.instances[member_id],
                "topic": where.topic,
                "partition": where.partition,
                "previous_member_id": before,
                "moved": before is not None and before != member_id,
            }


JOB = AssignmentJob()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("assignment")
