"""How late the event loop is: a timer that should ring four times a second, and when it really rings."""

from __future__ import annotations

import asyncio

from sluice.log_store.figures import Histogram

EVERY_S = 0.25


class LoopLag:
    def __init__(self) -> None:
        self.lateness = Histogram()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wind(loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + EVERY_S
        self._timer = loop.call_at(self._due, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lateness.observe(max(0.0, loop.time() - self._due))
        self._wind(loop)
