"""What a benchmark found: medians and spread over its rounds, the machine it ran on, and how both are written down."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import shape

REPOSITORY = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Target:
    limit: float
    at_least: bool

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


def at_least(limit: float) -> Target:
    return Target(limit, at_least=True)


def at_most(limit: float) -> Target:
    return Target(limit, at_least=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number per round; the median counts, the quartiles say how far to trust it."""

    what: str
    unit: str
    rounds: Sequence[float]
    target: Target | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.rounds) == 1:
            return self.rounds[0], self.rounds[0]
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    def to_json(self) -> dict[str, Any]:
        low, high = self.quartiles
        body: dict[str, Any] = {"what": self.what, "unit": self.unit, "median": _short(self.median)}
        body |= {"quartiles": [_short(low), _short(high)], "rounds": [_short(value) for value in self.rounds]}
        if self.target is not None:
            body |= {"target": str(self.target), "met": self.target.met(self.median)}
        return body


@dataclass(slots=True)
class Findings:
    name: str
    title: str
    settings: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    busy_elsewhere: float = 0.0
    """Cores that other processes used meanwhile."""
    took_s: float = 0.0

    def add(self, what: str, unit: str, rounds: Sequence[float], target: Target | None = None) -> None:
        self.figures.append(Figure(what, unit, list(rounds), target))

    def ratio(self, what: str, over: Sequence[float], under: Sequence[float], target: Target | None = None) -> None:
        """Round by round, because both sides of one round met the same machine."""
        self.add(what, "×", [a / b for a, b in zip(over, under, strict=True)], target)

    def write(self) -> None:
        body = {
            "name": self.name,
            "title": self.title,
            "commit": commit(),
            "machine": machine() | {"cores_busy_elsewhere": round(self.busy_elsewhere, 2)},
            "took_s": round(self.took_s, 1),
            "settings": self.settings,
            "figures": [figure.to_json() for figure in self.figures],
            "notes": self.notes,
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")

    def show(self, console: Console) -> None:
        table = Table(title=f"{self.name}: {self.title}", title_justify="left", title_style="bold")
        for column in ("what", "unit"):
            table.add_column(column)
        for column in ("median", "quartiles", "target", "met"):
            table.add_column(column, justify="right")
        for figure in self.figures:
            low, high = figure.quartiles
            target, met = ("", "") if figure.target is None else (str(figure.target), _verdict(figure))
            spread = f"{_text(low)} … {_text(high)}"
            table.add_row(figure.what, figure.unit, _text(figure.median), spread, target, met)
        console.print(table)
        console.print(f"{len(self.figures[0].rounds)} rounds; other processes used {self.busy_elsewhere:.2f} cores")
        for note in self.notes:
            console.print(f"· {note}", style="dim", markup=False)
        console.print()


def _verdict(figure: Figure) -> str:
    assert figure.target is not None
    return "[green]yes[/]" if figure.target.met(figure.median) else "[red]NO[/]"


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: a latency that was really seen."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def commit() -> str:
    """The commit that was measured; files that git does not know, or knows otherwise, make it uncommitted."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        dirty = _git("status", "--porcelain", "--", ".", ":!bench/results", ":!docs/performance.md")
    except (OSError, subprocess.CalledProcessError):
        return "uncommitted"
    return "uncommitted" if dirty else head


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    return shape(REPOSITORY / "build")  # where scratch folders are made
