"""One thread that runs small callbacks at their time. Idle things register nothing, so they cost nothing."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from sluice.log_store.clock import Clock

_log = logging.getLogger(__name__)


class Scheduler:
    """Callbacks must be short: they hand real work to a pool."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="sluice-scheduler", daemon=True)
        self._thread.start()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        with self._condition:
            if self._closed:
                return
            entry = (self._clock.boottime() + delay_s, next(self._tie), action)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._condition.notify()

    def _run(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except Exception:  # noqa: BLE001 - one bad callback must not stop every timer of the process
                _log.exception("a scheduled action failed")

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            while not self._closed:
                if not self._heap:
                    self._condition.wait()
                    continue
                delay = self._heap[0][0] - self._clock.boottime()
                if delay <= 0:
                    return heapq.heappop(self._heap)[2]
                self._condition.wait(delay)
            return None

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()
