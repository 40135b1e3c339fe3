"""How fast somebody is, and for how long they must wait: Kafka's two measures, pure, with time as an argument.

`Rate` is for bytes: a sum over 11 windows of one second. What is sent counts at once, so a single large request always
passes, and the ones after it wait until the average is down to the limit again. `Tokens` is for changes of the
catalog: what was not used is saved up, so that a burst of them passes.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 1.0
WINDOWS = 11


class Rate:
    __slots__ = ("_total", "_windows")

    def __init__(self) -> None:
        self._windows: deque[list[float]] = deque()
        """[start, amount], oldest first. A window starts with the first amount that falls into it."""
        self._total = 0.0

    def add(self, amount: float, _limit: float, now: float) -> None:
        self._forget(now)
        if not self._windows or now - self._windows[-1][0] >= WINDOW_S:
            self._windows.append([now, 0.0])
        self._windows[-1][1] += amount
        self._total += amount

    def wait_s(self, limit: float, now: float) -> float:
        """Seconds until the average is down to `limit` per second: (rate - limit) / limit × length of the windows."""
        self._forget(now)
        if not self._windows:
            return 0.0
        length = self._length(now)
        return max(0.0, (self._total / length - limit) / limit * length)

    def idle(self, _limit: float, now: float) -> bool:
        self._forget(now)
        return not self._windows

    def _length(self, now: float) -> float:
        """Never less than ten windows, else the first request of the day would look like a flood."""
        passed = now - self._windows[0][0]
        missing = WINDOWS - 1 - int(passed / WINDOW_S)
        return passed + max(0, missing) * WINDOW_S

    def _forget(self, now: float) -> None:
        while self._windows and now - self._windows[0][0] >= WINDOWS * WINDOW_S:
            self._total -= self._windows.popleft()[1]
        if not self._windows:
            self._total = 0.0  # sums of floats drift


class Tokens:
    """A bucket that gets `limit` tokens a second, holds eleven seconds' worth, and may be drawn below zero once."""

    __slots__ = ("_at", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        """Tokens missing from a full bucket."""
        self._at = float("-inf")

    def add(self, amount: float, limit: float, now: float) -> None:
        self._refill(limit, now)
        self._used += amount

    def wait_s(self, limit: float, now: float) -> float:
        """Seconds until the bucket is not below zero any more."""
        self._refill(limit, now)
        return max(0.0, (self._used - limit * WINDOWS * WINDOW_S) / limit)

    def idle(self, limit: float, now: float) -> bool:
        self._refill(limit, now)
        return self._used <= 0.0

    def _refill(self, limit: float, now: float) -> None:
        if now > self._at:
            self._used = max(0.0, self._used - limit * (now - self._at)) if self._used else 0.0
            self._at = now
