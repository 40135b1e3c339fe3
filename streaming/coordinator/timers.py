"""When groups want to be ticked: one heap for all of them, on the clock that counts durations (R-13)."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import TypeAlias

from sluice.log_store.clock import Clock
from sluice.log_store.scheduler import Scheduler

Action: TypeAlias = Callable[[], None]


class Timers:
    """`run` is given what is due; it hands real work to a pool. Nothing is taken back: who is woken looks again."""

    def __init__(self, clock: Clock, scheduler: Scheduler, run: Callable[[list[Action]], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._run = run
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, Action]] = []
        self._tie = itertools.count()
        self._armed: int | None = None

    def at(self, boot_ms: int, action: Action) -> None:
        with self._lock:
            heapq.heappush(self._heap, (boot_ms, next(self._tie), action))
            self._arm_locked()

    def _arm_locked(self) -> None:
        """One alarm at a time, for the earliest; an alarm that came too early for anybody costs nothing."""
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._armed is None or earliest < self._armed:
            self._armed = earliest
            self._scheduler.after(max(0.0, earliest / 1000 - self._clock.boottime()), self._ring)

    def _ring(self) -> None:
        with self._lock:
            self._armed = None
            now, due = int(self._clock.boottime() * 1000), []
            while self._heap and self._heap[0][0] <= now:
                due.append(heapq.heappop(self._heap)[2])
            self._arm_locked()
        if due:
            self._run(due)
