"""Deleting records on request: Kafka's rules for where the log start may move (SEMANTICS.md section 10)."""

from __future__ import annotations

import uuid

from sluice.log_store.errors import OffsetOutOfRange, PolicyViolation
from sluice.log_store.partition import PartitionLog
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.topic import TopicConfig

HIGH_WATERMARK = -1


def delete_records(partition: PartitionLog, config: TopicConfig, before_offset: int) -> int:
    if not config.delete:
        raise PolicyViolation(f"{partition.ref.tp}: cleanup.policy has no `delete`, so no records may be deleted")
    partition.open()
    files, count, start, end = partition.view()
    target = end if before_offset == HIGH_WATERMARK else before_offset
    if not 0 <= target <= end:
        raise OffsetOutOfRange(f"cannot delete before {before_offset}: {partition.ref.tp} ends at {end}", log_end=end)
    if target <= start:
        return start
    plan = Plan(
        plan_id=uuid.uuid4().hex,
        kind=PlanKind.DELETE_RECORDS,
        reason=f"delete_records before {target}",
        base_version=partition.state.version,
        # Whole files only; the one at the boundary is rewritten by the next merge.
        removes=tuple(file.path for file in files[:count] if file.end_offset <= target),
        log_start=target,
    )
    partition.apply_plan(plan)
    return target
