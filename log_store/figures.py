"""What the log counts of its own work, for metrics. Counted on many threads, read by one."""

from __future__ import annotations

import threading
from bisect import bisect_left

from sluice.log_store.checkpoints import CleanUp

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Histogram:
    """Counts by upper bound; the last bucket has none."""

    __slots__ = ("buckets", "count", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.count += 1
        self.sum += seconds


class Figures:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.commits = Histogram()
        """Time to put one Delta version; its count is the number of versions."""
        self.checkpoints = 0
        self.cleaned_commits = 0
        self.cleaned_checkpoints = 0
        self.cleaned_states = 0
        self.cleaned_checksums = 0

    def committed(self, seconds: float) -> None:
        with self._lock:
            self.commits.observe(seconds)

    def checkpointed(self) -> None:
        with self._lock:
            self.checkpoints += 1

    def cleaned(self, done: CleanUp) -> None:
        with self._lock:
            self.cleaned_commits += done.versions
            self.cleaned_checkpoints += done.checkpoints
            self.cleaned_states += done.states
            self.cleaned_checksums += done.checksums
