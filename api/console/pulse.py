"""One look a second at everything, while somebody watches: shared by all streams, so that a watcher costs a task.

A watcher that is slow misses looks rather than letting them pile up. Looks are kept for a few minutes, so that a page
that is opened begins with a picture and not with a dot.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sluice.api.console.figures import Sample
from sluice.api.console.gathering import Gatherer, GroupLook
from sluice.api.service import Service
from sluice.log_store.errors import Overloaded

_log = logging.getLogger(__name__)
EVERY_S = 1.0
HISTORY = 300
HISTORY_ENTRIES = 200_000
"""Topics and groups of all samples that are kept: many topics have a shorter past."""
REST = 4
"""A look that takes long is followed by a rest of so many times as long."""


class Pulse:
    """Belongs to the event loop."""

    def __init__(self, service: Service, most: int, every_s: float = EVERY_S) -> None:
        self._service = service
        self.gatherer = Gatherer(service)
        self._most = most
        self._every_s = every_s
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._samples: deque[Sample] = deque()
        self.watchers = 0
        self.groups: Mapping[str, GroupLook] = {}
        """Of the newest sample, in detail."""
        self.stopping = False
        service.at_stop.append(self.stop)

    def check_room(self) -> None:
        if self.watchers >= self._most:
            raise Overloaded(
                f"{self._most} consoles are watching already (console.max.streams)", retry_after_s=5, limit=self._most
            )

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.watchers += 1
        self._service.waiting.entered()  # a stream is not a request at work
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._beat())
        try:
            yield
        finally:
            self.watchers -= 1
            self._service.waiting.left()

    @property
    def fresh(self) -> bool:
        """Whether the newest sample is of now."""
        clock = self._service.log.runtime.clock
        return bool(self._samples) and clock.boottime() - self._samples[-1].at < 2 * self._every_s

    def samples(self) -> list[Sample]:
        """Oldest first."""
        return list(self._samples)

    async def next(self, after: int) -> None:
        """Until there is a newer sample than that number, or the service stops."""
        while not self.stopping and (not self._samples or self._samples[-1].number <= after):
            await self._bell.wait()

    def stop(self) -> None:
        self.stopping = True
        if self._task is not None:
            self._task.cancel()
        self._ring()

    def _ring(self) -> None:
        self._bell.set()
        self._bell = asyncio.Event()

    # --- the looks -------------------------------------------------------------------------------

    async def _beat(self) -> None:
        clock, number = self._service.log.runtime.clock, self._samples[-1].number if self._samples else 0
        while self.watchers and not self.stopping:
            begun, number = clock.boottime(), number + 1
            try:
                await self._look(number)
            except Exception:  # noqa: BLE001 - a page that shows old figures says so; the service goes on
                _log.exception("the console's look at the log failed")
            took = clock.boottime() - begun
            await asyncio.sleep(max(self._every_s - took, REST * took if took > self._every_s else 0.05))

    async def _look(self, number: int) -> None:
        looked = await self._service.blocking(self.gatherer.look)
        sample = self.gatherer.sample(number, looked)
        self.groups = looked.groups
        self._samples.append(sample)
        most = min(HISTORY, HISTORY_ENTRIES // max(1, len(sample.topics) + len(sample.groups)))
        while len(self._samples) > max(2, most):
            self._samples.popleft()
        self._ring()
        await self._service.blocking(self.gatherer.open_some)
