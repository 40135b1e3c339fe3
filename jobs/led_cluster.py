"""A cluster whose leader commits for a job: another process, asked over HTTP, or this one (I-8, R-1)."""

from __future__ import annotations

from dataclasses import asdict
from urllib.parse import quote

from sluice.conf.settings import Settings
from sluice.jobs.stored_cluster import Expired, StoredCluster, Swept
from sluice.log_store.clock import Clock, WallGuard
from sluice.log_store.engine import LogStore
from sluice.log_store.plans import Plan
from sluice.log_store.store import Store
from sluice.log_store.values import PartitionRef
from sluice.streaming.coordinator import Coordinator
from sluice.streaming.http_client import Connection

PLAN_TIMEOUT_S = 120.0
"""A plan of many thousand files takes a while to check and to sync."""


class OnlineCluster(StoredCluster):
    """Another process leads: it is asked over HTTP."""

    mode = "online"

    def __init__(self, settings: Settings, store: Store, clock: Clock, cluster_id: str, connection: Connection) -> None:
        super().__init__(settings, store, clock, cluster_id)
        self.connection = connection

    @property
    def leader(self) -> str:
        return self.connection.server

    def close(self) -> None:
        self.connection.close()

    def wall_trusted(self) -> bool:
        """Also not while the leader does not trust its own, or this machine and the leader disagree."""
        told = self.connection.json("GET", "/v3/clusters/-/clock", repeatable=True)
        near = abs(told["wall_ms"] - self.clock.wall_ms()) <= WallGuard.LIMIT_MS
        return super().wall_trusted() and bool(told["trusted"]) and near

    def apply_plan(self, ref: PartitionRef, plan: Plan) -> int:
        body = asdict(plan) | {"kind": str(plan.kind), "topic_id": ref.topic_id}
        path = f"{_partition_path(ref)}/plans"
        # The plan id makes a repeat harmless, so doubt is simply asked again.
        answer = self.connection.json("POST", path, repeatable=True, body=body, timeout_s=PLAN_TIMEOUT_S)
        return int(answer["version"])

    def sweep(self, ref: PartitionRef, *, orphans: bool) -> Swept:
        body = {"topic_id": ref.topic_id, "orphans": orphans}
        path = f"{_partition_path(ref)}/files:sweep"
        answer = self.connection.json("POST", path, repeatable=True, body=body, timeout_s=PLAN_TIMEOUT_S)
        return Swept(tuple(answer["removed"]), tuple(answer["orphans"]), answer["next_due_ms"])

    def expire_offsets(self) -> Expired:
        path = "/v3/clusters/-/consumer-groups:expire"
        answer = self.connection.json("POST", path, repeatable=True, timeout_s=PLAN_TIMEOUT_S)
        return Expired(answer["groups"], answer["offsets"])


class OfflineCluster(StoredCluster):
    """Nobody led: this process does, until it is closed."""

    mode = "offline"

    def __init__(self, settings: Settings, log: LogStore, cluster_id: str) -> None:
        super().__init__(settings, log.runtime.store, log.runtime.clock, cluster_id)
        self.log = log

    @property
    def leader(self) -> str:
        return f"this process, under epoch {self.epoch}"

    @property
    def epoch(self) -> int:
        return self.log.runtime.leadership.epoch

    def close(self) -> None:
        self.log.close()

    def apply_plan(self, ref: PartitionRef, plan: Plan) -> int:
        return self.log.maintained(ref.topic, ref.partition, ref.topic_id).apply_plan(plan)

    def sweep(self, ref: PartitionRef, *, orphans: bool) -> Swept:
        partition = self.log.maintained(ref.topic, ref.partition, ref.topic_id)
        found = self.log.background.housekeeping.sweep(partition, thorough=orphans)
        return Swept(found.removed, found.orphans, found.next_due_ms)

    def expire_offsets(self) -> Expired:
        coordinator = Coordinator(self.log, self.settings.group)
        try:
            for opening in coordinator.opening_all():
                opening.result()
            found = coordinator.expire()
        finally:
            coordinator.close()
        return Expired(found.groups, found.offsets)


def _partition_path(ref: PartitionRef) -> str:
    return f"/v3/clusters/-/topics/{quote(ref.topic, safe='')}/partitions/{ref.partition}"
