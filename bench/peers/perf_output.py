"""What Kafka's perf tools print, as numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PRODUCED = re.compile(
    r"^(?P<records>\d+) (?P<steady>steady state )?records sent, (?P<rate>[\d.]+) records/sec .*"
    r" (?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th\.",
    flags=re.MULTILINE,
)
_CONSUMED_COLUMNS = 10


class UnreadableOutput(Exception):
    """A perf tool printed something else than it used to."""


@dataclass(frozen=True, slots=True)
class Produced:
    records: int
    records_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True)
class Consumed:
    records: int
    records_per_s: float
    """While fetching: joining the group, which takes seconds once, is left out."""


def produced(text: str) -> Produced:
    """The last summary: after warm-up records it is the one of the steady state."""
    found = list(_PRODUCED.finditer(text))
    if not found:
        raise UnreadableOutput(f"no summary of producer-perf in: {text[-500:]}")
    last = found[-1]
    p50, p99, p999 = (float(last[name]) for name in ("p50", "p99", "p999"))
    return Produced(int(last["records"]), float(last["rate"]), p50, p99, p999)


def consumed(text: str) -> Consumed:
    """The one line of figures, with or without the header before it."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == _CONSUMED_COLUMNS and re.fullmatch(r"[\d.,]+", row[4])]
    if not rows:
        raise UnreadableOutput(f"no figures of consumer-perf in: {text[-500:]}")
    return Consumed(int(rows[-1][4]), float(rows[-1][9]))
