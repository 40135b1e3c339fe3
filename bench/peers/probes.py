"""Records that are sent to see whether a server takes any, counted: who looks for losses must know all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Probes:
    """Of one start, by partition. One that was refused is not in the log and not counted."""

    acknowledged: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    """Sent, but the connection broke: nobody knows whether they were stored."""


def wrong_ends(before: Sequence[int], after: Sequence[int], probes: Probes) -> str | None:
    """What is wrong with the ends of a topic's partitions after a restart, or None. Exactly the probes may be added:
    one lost record is one too many, and so is one that nobody sent."""
    if probes.unanswered:
        return f"{probes.unanswered} probes were not answered: a loss could hide behind them"
    if len(before) != len(after):
        return f"{len(before)} partitions became {len(after)}"
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        expected = old + probes.acknowledged[number]
        if new != expected:
            kind = "lost records" if new < expected else "has records that nobody sent"
            return f"partition {number} {kind}: it ends at {new} instead of {expected}"
    return None
