"""What a job shows: tables and a progress bar for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from sluice.jobs.work import FAILED, STOPPED, Intent, Report, as_rows

WIDE = 240
"""Columns of a table that goes to a file or a pipe, where nothing should be cut."""
SHOWN_LINES = 1_000
"""Lines of a plan that a table shows; JSON has them all."""


class Output:
    """Results to standard output, progress and trouble to standard error: a pipe gets results only."""

    def __init__(self, *, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = out or sys.stdout
        self.err = Console(file=err or sys.stderr)

    @property
    def console(self) -> Console:
        return Console(file=self._out, width=None if self._out.isatty() else WIDE)

    def json(self, value: object) -> None:
        self._out.write(json.dumps(value, indent=2, default=str) + "\n")
        self._out.flush()

    def line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()

    def trouble(self, text: str) -> None:
        self.err.print(f"sluice: {' '.join(text.split())}", markup=False, highlight=False, soft_wrap=True)

    def table(self, rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
        """The same rows as JSON for programs and as a table for people."""
        if self.as_json:
            self.json(list(rows))
            return
        if not rows:
            self.line("nothing")
            return
        table = Table(*rows[0], title=title, title_justify="left")
        for row in rows:
            table.add_row(*("" if value is None else str(value) for value in row.values()))
        self.console.print(table)

    def plan(self, job: str, intent: Intent) -> None:
        if self.as_json:
            plan = [line | {"step": at} for at, step in enumerate(intent.steps) for line in as_rows(step.lines)]
            self.json({"job": job, "dry_run": True, "plan": plan, "notes": list(intent.notes)})
            return
        lines = intent.lines
        if lines:
            self.table(as_rows(lines[:SHOWN_LINES]), title=f"{job}: {len(intent.steps)} steps, nothing was changed")
        else:
            self.line(f"{job}: nothing to do")
        if len(lines) > SHOWN_LINES:
            self.line(f"… and {len(lines) - SHOWN_LINES} more; --json shows all")
        for note in intent.notes:
            self.line(f"note: {note}")

    def report(self, report: Report) -> None:
        if self.as_json:
            self.json(report.to_json())
            return
        if report.rows:
            self.table(report.rows)
        for note in report.notes:
            self.line(f"note: {note}")
        self.line(summary(report))
        if report.outcome in (FAILED, STOPPED):
            self.trouble(f"{report.job} {report.outcome}: {report.error}")


def summary(report: Report) -> str:
    """One line: what came of it."""
    parts = [f"{report.done} of {report.planned} steps", f"{report.records:,} records", size(report.bytes)]
    if report.files_removed or report.files_added:
        parts.append(f"{report.files_removed} files removed, {report.files_added} added ({size(report.bytes_added)})")
    if report.refused:
        parts.append(f"{report.refused} plans came too late")
    parts += [f"{name.replace('_', ' ')} {value}" for name, value in report.facts.items()]
    return f"{report.job} {report.outcome} in {report.seconds:.1f} s ({report.mode}): {', '.join(parts)}"


def size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


class Progress:
    """A bar on a terminal, nothing anywhere else."""

    def __init__(self, output: Output, what: str) -> None:
        self._output = output
        self._what = what
        self._bar: Bar | None = None
        self._task: Any = None

    @contextmanager
    def over(self, total: int) -> Iterator[None]:
        if not self._output.err.is_terminal or self._output.as_json:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=self._output.err, transient=True) as bar:
            self._bar, self._task = bar, bar.add_task(self._what, total=total)
            try:
                yield
            finally:
                self._bar = None

    def advance(self, steps: float = 1, what: str | None = None) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=steps, description=what or self._what)

    def total(self, total: int) -> None:
        """There is more to do than was thought, or less."""
        if self._bar is not None:
            self._bar.update(self._task, total=total)
