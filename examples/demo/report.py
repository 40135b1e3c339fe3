"""What was claimed, whether it held, and the figures of this run."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

console = Console(highlight=False, soft_wrap=True)
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Report:
    failed: list[str] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)

    def part(self, title: str, text: str = "") -> None:
        console.print(f"[bold]{title}[/]" + (f": {text}" if text else ""))

    def hold(self, claim: str, held: bool, detail: str = "") -> None:
        mark = "[green]held[/]  " if held else "[red]FAILED[/]"
        console.print(f"  {mark} {claim}" + (f" [dim]({detail})[/]" if detail else ""))
        if not held:
            self.failed.append(claim)

    def figure(self, name: str, value: str) -> None:
        self.figures.append((name, value))

    def show(self) -> None:
        table = Table("this run", "", title="Figures", title_justify="left")
        for name, value in self.figures:
            table.add_row(name, value)
        console.print(table)
        if self.failed:
            console.print(f"[red]{len(self.failed)} of the claims above did not hold.[/]")
        else:
            console.print("[green]Everything held.[/]")


def spark_line(values: list[int], width: int = 24) -> str:
    """A small picture of how a number went, at most `width` signs wide; each shows the largest value of its time."""
    steps = -(-len(values) // width) or 1
    values = [max(values[at : at + steps]) for at in range(0, len(values), steps)]
    top = max(values, default=0) or 1
    return "".join(BARS[min(len(BARS) - 1, -(-value * (len(BARS) - 1) // top))] for value in values)


def size(count: int) -> str:
    return f"{count / 1024:,.0f} KiB" if count < 10 << 20 else f"{count / (1 << 20):,.1f} MiB"
