"""Time comes from here and from nowhere else, so that tests can hold it in their hands.

Two clocks (R-13): *wall* time is what people and records mean by a date; *boottime* counts seconds
since the machine started, suspend included, and is the only one that measures durations.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""

    def boottime(self) -> float:
        """Seconds since boot; never jumps, counts while suspended or stopped."""

    def thread_cpu(self) -> float:
        """Seconds of processor time that the calling thread has used."""


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boottime(self) -> float:
        return time.clock_gettime(_DURATION_CLOCK)

    def thread_cpu(self) -> float:
        return time.thread_time()


# CLOCK_MONOTONIC stops while a machine is suspended: a leader would wake believing no time had passed.
_DURATION_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ManualClock:
    """A clock that moves only when told to. `jump` moves wall time alone, as an operator or NTP would."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, boottime: float = 1_000.0) -> None:
        self._lock = threading.Lock()
        self._wall_ms = wall_ms
        self._boottime = boottime

    def wall_ms(self) -> int:
        with self._lock:
            return self._wall_ms

    def boottime(self) -> float:
        with self._lock:
            return self._boottime

    def thread_cpu(self) -> float:
        return 0.0

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._wall_ms += round(seconds * 1000)
            self._boottime += seconds

    def jump(self, seconds: float) -> None:
        with self._lock:
            self._wall_ms += round(seconds * 1000)


class WallGuard:
    """Says whether wall time may be trusted to delete things (R-13).

    Wall and boottime are compared with the offset they had at start; once they have drifted apart by
    more than the limit, deletion by wall time stays paused until `confirm` is called or a restart.
    """

    LIMIT_MS = 5 * 60 * 1000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paused = False
        self._offset_ms = self._offset()

    def _offset(self) -> float:
        return self._clock.wall_ms() - self._clock.boottime() * 1000

    def trusted(self) -> bool:
        if not self._paused and abs(self._offset() - self._offset_ms) > self.LIMIT_MS:
            self._paused = True
        return not self._paused

    def confirm(self) -> None:
        """An operator says that the present wall time is right."""
        self._offset_ms = self._offset()
        self._paused = False
