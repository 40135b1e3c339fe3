"""`sluice jobs …`: handed to `python -m sluice.jobs`, which has Spark and everything else that the service has not."""

from __future__ import annotations

import os
import sys

import typer

TAKES_ALL = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Every argument, `--help` too, belongs to the jobs."""


def jobs(context: typer.Context) -> None:
    """Maintenance: run NAME, schedule, list, status. `sluice jobs run NAME --help` shows a job's options."""
    # The same process from here on: signals reach the job, and its exit code is ours.
    os.execv(sys.executable, [sys.executable, "-m", "sluice.jobs", *context.args])  # noqa: S606 - no shell, on purpose
