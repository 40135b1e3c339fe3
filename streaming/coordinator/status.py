"""How a group is doing, judged like Burrow does: not by a threshold of lag, but by what its commits have done lately.

A partition is, in this order:

- OK when it has no lag now;
- STOP when nothing was committed for longer than the window, and longer than the samples span;
- OK when it had no lag at any time in the window;
- ERR when its offsets went backwards;
- STALL when its offsets did not move: it commits, but does not get on;
- WARN when its lag did not shrink at any time in the window;
- OK otherwise.

A group is ERR if one of its partitions is STOP, STALL or ERR, WARN if one is WARN, else OK.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

SAMPLES = 10
_FEWEST = 3
"""Samples below which nothing can be said about a movement."""


class Status(StrEnum):
    OK = "OK"
    WARN = "WARN"
    ERR = "ERR"
    STOP = "STOP"
    STALL = "STALL"


class Sample(NamedTuple):
    """A commit: when, what, and how far behind it was then (None: not known)."""

    ms: int
    offset: int
    lag: int | None


class Window:
    """The last commits of one partition, not too close together."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def wants(self, ms: int, interval_ms: int) -> bool:
        """Also when the wall clock was set back: a window of the future would never end."""
        return not self._samples or not 0 <= ms - self._samples[-1].ms < interval_ms

    def add(self, sample: Sample) -> None:
        if self._samples and sample.ms < self._samples[-1].ms:
            self._samples.clear()
        self._samples.append(sample)

    def samples(self) -> tuple[Sample, ...]:
        return tuple(self._samples)


def partition_status(samples: Sequence[Sample], lag: int, now_ms: int, window_ms: int) -> Status:
    if lag <= 0 or not samples:
        return Status.OK
    if now_ms - samples[-1].ms > max(window_ms, samples[-1].ms - samples[0].ms):
        return Status.STOP
    if len(samples) < _FEWEST or any(sample.lag == 0 for sample in samples):
        return Status.OK
    if any(later.offset < earlier.offset for earlier, later in pairwise(samples)):
        return Status.ERR
    if samples[0].offset == samples[-1].offset:
        return Status.STALL
    return Status.OK if _shrank(samples) else Status.WARN


def _shrank(samples: Sequence[Sample]) -> bool:
    known = [sample.lag for sample in samples if sample.lag is not None]
    return len(known) < 2 or any(later < earlier for earlier, later in pairwise(known))


def group_status(partitions: Iterable[Status]) -> Status:
    found = set(partitions)
    if found & {Status.STOP, Status.STALL, Status.ERR}:
        return Status.ERR
    return Status.WARN if Status.WARN in found else Status.OK
