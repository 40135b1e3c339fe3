"""The files that a plan adds, as storage has them (R-6)."""

from __future__ import annotations

from sluice.log_store.errors import PlanRefused
from sluice.log_store.plans import Plan, check_plain_names
from sluice.log_store.runtime import Runtime
from sluice.log_store.store import StoreNotFound
from sluice.log_store.values import PartitionRef


def check_added(runtime: Runtime, ref: PartitionRef, plan: Plan) -> None:
    """Every added file must be there, whole, and young enough that no orphan sweep can be after it."""
    check_plain_names(plan)
    oldest = runtime.clock.wall_ms() - runtime.settings.orphan_retention_ms // 2
    for file in plan.adds:
        try:
            stat = runtime.store.stat(f"{ref.folder}/{file.path}")
        except StoreNotFound as error:
            raise PlanRefused(f"plan {plan.plan_id} adds {file.path}, which is not there") from error
        if stat.size != file.size:
            raise PlanRefused(f"{file.path} has {stat.size} bytes, plan {plan.plan_id} says {file.size}")
        if stat.modified_ms < oldest:
            raise PlanRefused(f"{file.path} is too old to be committed safely; write it again")
