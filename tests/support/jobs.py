"""Jobs in this process, as the command line runs them."""

from __future__ import annotations

import io
import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.conf.settings import Settings
from sluice.jobs.command_line import job_parser
from sluice.jobs.framework import run_job
from sluice.jobs.output import Output
from sluice.jobs.registry import job_named
from sluice.jobs.work import Report
from sluice.log_store.clock import Clock, WallGuard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Ran:
    report: Report
    text: str
    """What it printed."""

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def options_of(job: str, root: Path | str, *arguments: str) -> Namespace:
    return job_parser(job_named(job), job).parse_args(["--root", str(root), *arguments])


def ran(
    job: str,
    root: Path | str,
    *arguments: str,
    settings: Settings | None = None,
    clock: Clock | None = None,
    spark: Callable[[], SparkSession] | None = None,
    wall: WallGuard | None = None,
) -> Ran:
    """One run; the same options, plan, lease and report as from a shell."""
    options = options_of(job, root, *arguments)
    out = io.StringIO()
    output = Output(as_json=options.as_json, out=out, err=io.StringIO())
    settings = settings or Settings()
    report = run_job(job_named(job), options, settings, output=output, clock=clock, spark=spark, wall=wall)
    return Ran(report, out.getvalue())


def planned(job: str, root: Path | str, *arguments: str, **more: Any) -> list[dict[str, Any]]:
    """The lines of a dry run."""
    lines: list[dict[str, Any]] = ran(job, root, "--dry-run", "--json", *arguments, **more).json["plan"]
    return lines
