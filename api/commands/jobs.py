"""`sluice jobs …`: handed to `python -m sluice.jobs`, which has Spark and everything else that the service has not."""

from __future__ import annotations

import os
import sys

import typer

from sluice.api.commands.offline import without_service

TAKES_ALL = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Every argument, `--help` too, belongs to the jobs."""


def jobs(context: typer.Context) -> None:
    """Maintenance: run NAME, schedule, list, status. `sluice jobs run NAME --help` shows a job's options."""
    # All but `list` look for a cluster.
    given = without_service(context.args) if context.args[:1] == ["list"] else context.args
    # The same process from here on: signals reach the job, and its exit code is ours.
    os.execv(sys.executable, [sys.executable, "-m", "sluice.jobs", *given])  # noqa: S606 - no shell, on purpose
