"""Whether the figures of a soak are flat: the last quarter of the run against the second one, each with its bound."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Sample = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Bound:
    ratio: float
    """How many times the second quarter's median the last one's may be …"""
    slack: float
    """… or how much more than it: of a small figure any change is a large share."""
    settles_s: float
    """How long it may rise before it can be flat. A run whose first quarter is shorter says nothing about it."""


# Jobs run one after the other, a turn takes most of a minute, and acknowledgements feel them: quarters are alike if
# each holds a whole one. Commit files are kept for an hour at least, and for one checkpoint more; data files for a
# minute after they left the log, and a sweep may come a little later.
BOUNDS = {
    "memory, MiB": Bound(1.1, 32, 60),
    "open files": Bound(1.1, 16, 15),
    "threads": Bound(1.1, 8, 15),
    "ack p99, ms": Bound(1.5, 50, 60),
    "versions behind the checkpoint": Bound(1.5, 150, 15),
    "orphaned files": Bound(1.0, 5, 0),
    "data and WAL, MiB": Bound(1.2, 32, 150),
    "commit files, MiB": Bound(1.2, 8, 4_000),
}


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    early: float
    """Medians."""
    late: float
    verdict: str
    """flat, grew, or why nothing can be said."""

    @property
    def grew(self) -> bool:
        return self.verdict == "grew"

    def __str__(self) -> str:
        return f"{self.name:32}{self.early:14.1f}{self.late:14.1f}   {self.verdict}"


def judged(samples: Sequence[Sample], seconds: float) -> list[Figure]:
    quarter = max(1, len(samples) // 4)
    found = []
    for name, bound in BOUNDS.items():
        values = [sample[name] for sample in samples]
        early, late = statistics.median(values[quarter : 2 * quarter] or values), statistics.median(values[-quarter:])
        if seconds / 4 < bound.settles_s:
            verdict = f"too short a run: it may rise for {bound.settles_s:g} s"
        else:
            verdict = "flat" if late <= max(early * bound.ratio, early + bound.slack) else "grew"
        found.append(Figure(name, early, late, verdict))
    return found
