"""What the routes share: the log, its settings, counters, threads for what would block, and the wish to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from sluice.api.auth import Access
from sluice.api.errors import NotFound
from sluice.api.groups_flush import FlushSoon
from sluice.api.loop_lag import LoopLag
from sluice.api.metrics import Metrics
from sluice.api.quotas_meters import Meters
from sluice.api.waiting import Bell, Waiting
from sluice.conf.settings import Settings
from sluice.ingest.hooks import HookLoader
from sluice.ingest.limits import IngestLimits
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import SluiceError
from sluice.streaming.coordinator import Coordinator
from sluice.streaming.coordinator.lag import LagReader

if TYPE_CHECKING:
    from sluice.api.console.pulse import Pulse
    from sluice.api.sinks import Sinks

ADMIN_THREADS = 8
"""Catalog calls wait for a commit; partitions that are opened wait for storage."""

_T = TypeVar("_T")


class Service:
    """Belongs to one event loop; everything but the log and the pools is used from it alone."""

    sinks: Sinks
    pulse: Pulse
    """Set by the application, which knows of them."""

    def __init__(self, log: LogStore, settings: Settings) -> None:
        self.log = log
        self.settings = settings.server
        self.topics = settings.topics
        self.limits = IngestLimits(
            max_body_bytes=settings.server.request_max_bytes,
            max_records=settings.server.request_max_records,
            max_text_bytes=settings.server.request_max_bytes,
        )
        self.hooks = HookLoader.from_setting(settings.server.ingest_hooks_allowed)
        self.access = Access(log.catalog.tokens, log.runtime.clock.wall_ms, lambda: _fenced(log))
        self.metrics = Metrics()
        self.meters = Meters(log.catalog.state.quotas)
        self.lag = LoopLag()
        self.waiting = Waiting(settings.server.fetch_max_waiting)
        self.groups = Coordinator(log, settings.group)
        self.flush_soon = FlushSoon()
        self.lags = LagReader(log, self.groups, settings.group.lag_window_ms)
        self.at_stop: list[Callable[[], None]] = [self.groups.stop]
        self.bell = Bell()
        self.active = 0
        """Requests at work, with the long polls that wait."""
        self.bodies_bytes = 0
        """Bodies of produce requests that are in memory now."""
        self.last_answer: tuple[object, bytes] = (None, b"")
        """What the last small fetch found, and its body."""
        self._admin = ThreadPoolExecutor(ADMIN_THREADS, thread_name_prefix="sluice-admin")
        self._reads = ThreadPoolExecutor(settings.server.fetch_threads, thread_name_prefix="sluice-fetch")
        self.groups.start()

    async def blocking(self, work: Callable[[], _T]) -> _T:
        """Run what waits for a commit or for storage."""
        return await asyncio.get_running_loop().run_in_executor(self._admin, work)

    async def reading(self, work: Callable[[], _T]) -> _T:
        """Run what reads files or takes long to compute."""
        return await asyncio.get_running_loop().run_in_executor(self._reads, work)

    def check_cluster(self, cluster: str) -> str:
        if cluster not in ("-", self.log.cluster_id):
            raise NotFound(f"this is cluster {self.log.cluster_id}, not {cluster[:80]!r}", field="cluster_id")
        return self.log.cluster_id

    def stop(self) -> None:
        """No request may hold up a graceful stop: long polls answer what they have."""
        self.waiting.stop()
        for stop in self.at_stop:
            stop()

    def close(self) -> None:
        self.groups.close()
        self._admin.shutdown(cancel_futures=True)
        self._reads.shutdown(cancel_futures=True)


def _fenced(log: LogStore) -> SluiceError | None:
    return log.runtime.leadership.not_leader() if log.fenced else None


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
