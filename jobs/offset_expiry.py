"""Offset expiry: the group coordinator's rule, now.

The service applies it by itself every `offsets.retention.check.interval.ms`. The plan is made from what storage holds;
the coordinator decides again when it is asked, because members may have come back meanwhile.
"""

from __future__ import annotations

from sluice.jobs.framework import BaseJob, JobContext
from sluice.jobs.stored_groups import as_group, stored_groups
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store.claims import SERVICE
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.replay import StoredGroup
from sluice.streaming.groups import Now
from sluice.streaming.groups.offsets import CommittedAt, expired

DISTRUST = "wall time jumped or differs from the leader's: offsets do not expire until that is settled (R-13)"


class OffsetExpiry(BaseJob):
    name = "offset-expiry"
    summary = "Forget committed offsets past offsets.retention.minutes, and groups of which nothing is left."
    purpose = SERVICE  # deleted offsets are records
    selects_partitions = False

    def plan(self, context: JobContext) -> Intent:
        trusted = context.cluster.wall_trusted()
        live = {meta.name: meta.topic_id for meta in context.cluster.topics()}
        now = Now(int(context.clock.boottime() * 1000), context.clock.wall_ms())
        retention_ms = context.settings.group.offsets_retention_minutes * 60_000
        steps = []
        for group_id, stored in stored_groups(context.cluster).items():
            old = _old(group_id, stored, now, retention_ms) if trusted else frozenset()
            lost = {where for where, one in stored.offsets.items() if live.get(where.topic) != one.topic_id}
            if lines := _lines(group_id, stored, old, lost):
                steps.append(Step(lines))
        return Intent(steps, [] if trusted else [DISTRUST])

    def act(self, context: JobContext, intent: Intent) -> None:
        context.check()
        found = context.cluster.expire_offsets()
        context.report.done = len(intent.steps)
        context.report.count(records=found.offsets)
        context.report.facts |= {"offsets": found.offsets, "groups": found.groups}
        context.progress.advance(len(intent.steps))


def _old(group_id: str, stored: StoredGroup, now: Now, retention_ms: int) -> frozenset[TopicPartition]:
    ages = {where: CommittedAt(one.commit_ms) for where, one in stored.offsets.items()}
    return expired(as_group(group_id, stored, now), ages, now.wall_ms, retention_ms)


def _lines(
    group_id: str, stored: StoredGroup, old: frozenset[TopicPartition], lost: set[TopicPartition]
) -> tuple[Line, ...]:
    gone = sorted(old | lost, key=lambda where: (where.topic, where.partition))
    lines = [
        Line(
            topic=where.topic,
            partition=where.partition,
            subject=f"group {group_id}",
            action=f"forget offset {stored.offsets[where].offset}",
            reason="the topic is no more" if where in lost else "offsets.retention.minutes is over",
            records=1,
        )
        for where in gone
    ]
    no_members = stored.metadata is None or not stored.metadata.members
    if no_members and len(gone) == len(stored.offsets):
        lines.append(Line(subject=f"group {group_id}", action="forget the group", reason="nothing of it is left"))
    return tuple(lines)


JOB = OffsetExpiry()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("offset-expiry")
