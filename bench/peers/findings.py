"""What a figure of the peers found: measures of each side, ratios between them, and who is ahead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.charts import chart
from bench.figures import Figure, Target, commit, machine

SLUICE, KAFKA, OTHER = "sluice", "kafka", "other"
LOWER_IS_BETTER = frozenset({"ms", "s", "MiB", "B/record"})
AHEAD, BEHIND, LEVEL = "ahead", "behind", "level"
NEXT_TO = 0.05


def verdict(ratio: Figure, *, lower_is_better: bool) -> str:
    """Of ours / theirs. Level: the spread of the rounds reaches both sides of 1, and the median is next to it. Three
    rounds are few: a spread that just touches 1 must not hide a loss."""
    low, high = ratio.quartiles
    if low <= 1 <= high and abs(ratio.median - 1) <= NEXT_TO:
        return LEVEL
    return AHEAD if (ratio.median < 1) == lower_is_better else BEHIND


@dataclass(frozen=True, slots=True)
class Measure:
    side: str
    figure: Figure

    def to_json(self) -> dict[str, Any]:
        return {"side": self.side} | self.figure.to_json()


@dataclass(frozen=True, slots=True)
class Ratio:
    figure: Figure
    lower_is_better: bool
    among_ourselves: bool
    """Between two ways to run Sluice: neither is ahead of a peer."""

    @property
    def verdict(self) -> str | None:
        return None if self.among_ourselves else verdict(self.figure, lower_is_better=self.lower_is_better)

    def to_json(self) -> dict[str, Any]:
        body = self.figure.to_json() | {"better": "lower" if self.lower_is_better else "higher"}
        return body if self.verdict is None else body | {"verdict": self.verdict}


@dataclass(slots=True)
class PeerFindings:
    name: str
    title: str
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    ratios: list[Ratio] = field(default_factory=list)
    busy_elsewhere: float = 0.0
    took_s: float = 0.0
    quick: bool = False

    def add(self, side: str, what: str, unit: str, rounds: Sequence[float]) -> None:
        self.measures.append(Measure(side, Figure(what, unit, list(rounds))))

    def compare(self, what: str, ours: str, theirs: str, target: Target | None = None) -> None:
        """Two measures by their names, ours over theirs, round by round: both met the same machine."""
        over, under = self._named(ours), self._named(theirs)
        if over.figure.unit != under.figure.unit:
            raise ValueError(f"{ours} is in {over.figure.unit}, {theirs} in {under.figure.unit}")
        rounds = [a / b for a, b in zip(over.figure.rounds, under.figure.rounds, strict=True)]
        lower = over.figure.unit in LOWER_IS_BETTER
        self.ratios.append(Ratio(Figure(what, "×", rounds, target), lower, over.side == under.side))

    def _named(self, what: str) -> Measure:
        return next(one for one in self.measures if one.figure.what == what)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "commit": commit(),
            "quick": self.quick,
            "machine": machine() | {"cores_busy_elsewhere": round(self.busy_elsewhere, 2)},
            "took_s": round(self.took_s, 1),
            "settings": self.settings,
            "figures": [one.to_json() for one in self.measures] + [one.to_json() for one in self.ratios],
            "notes": self.notes,
        }

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        body = self.to_json()
        (folder / f"{self.name}.json").write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")
        (folder / f"{self.name}.svg").write_text(chart(body))

    def show(self, console: Console) -> None:
        table = Table(title=f"{self.name}: {self.title}", title_justify="left", title_style="bold")
        table.add_column("what")
        for column in ("median", "unit", "quartiles", "target", "verdict"):
            table.add_column(column, justify="left" if column == "unit" else "right")
        for one in self.measures:
            table.add_row(one.figure.what, *_cells(one.figure), "", "")
        table.add_section()
        for ratio in self.ratios:
            target = ratio.figure.target
            wanted = "" if target is None else f"{target} {'met' if target.met(ratio.figure.median) else 'MISSED'}"
            table.add_row(ratio.figure.what, *_cells(ratio.figure), wanted, _COLOURED[ratio.verdict])
        console.print(table)
        count = len(self.measures[0].figure.rounds)
        rounds = "1 round" if count == 1 else f"{count} rounds"
        console.print(f"{rounds}; processes that are not part of this used {self.busy_elsewhere:.2f} cores")
        for note in self.notes:
            console.print(f"· {note}", style="dim", markup=False)
        console.print()


_COLOURED = {None: "", AHEAD: "[green]ahead[/]", BEHIND: "[red]behind[/]", LEVEL: "level"}


def _cells(figure: Figure) -> tuple[str, str, str]:
    low, high = figure.quartiles
    return number(figure.median), figure.unit, f"{number(low)} … {number(high)}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
