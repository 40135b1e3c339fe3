"""Deleting records on request: Kafka's rules for where the log start may move."""

from __future__ import annotations

import uuid
from contextlib import suppress

from sluice.log_store.errors import OffsetOutOfRange, PlanRefused, PolicyViolation
from sluice.log_store.partition import PartitionLog
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.topic import TopicConfig

HIGH_WATERMARK = -1
TRIES = 20
"""Merges and retention commit beside it, but none of them often."""


def delete_records(partition: PartitionLog, config: TopicConfig, before_offset: int) -> int:
    if not config.delete:
        raise PolicyViolation(f"{partition.ref.tp}: cleanup.policy has no `delete`, so no records may be deleted")
    partition.open()
    end = partition.high_watermark
    target = end if before_offset == HIGH_WATERMARK else before_offset
    if not 0 <= target <= end:
        raise OffsetOutOfRange(f"cannot delete before {before_offset}: {partition.ref.tp} ends at {end}", log_end=end)
    for _ in range(TRIES - 1):
        with suppress(PlanRefused):  # other files are live by now, or the log start has moved
            return _delete_before(partition, target)
    return _delete_before(partition, target)


def _delete_before(partition: PartitionLog, target: int) -> int:
    """The log start that holds then."""
    version = partition.state.version
    files, count, start, _ = partition.view()
    if target <= start:
        return start
    plan = Plan(
        plan_id=uuid.uuid4().hex,
        kind=PlanKind.DELETE_RECORDS,
        reason=f"delete_records before {target}",
        base_version=version,
        # Whole files only; the one at the boundary is rewritten by the next merge.
        removes=tuple(file.path for file in files[:count] if file.end_offset <= target),
        log_start=target,
    )
    partition.apply_plan(plan)
    return target
