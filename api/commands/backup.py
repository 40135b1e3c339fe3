"""`sluice backup …` and `sluice restore …`: handed to the jobs, like `sluice jobs`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from sluice.api.commands.offline import without_service


def backup(context: typer.Context) -> None:
    """Copy a consistent state of a root: ROOT TARGET. Also: list TARGET, prune TARGET --keep N."""
    _hand_over("backup", context)


def restore(context: typer.Context) -> None:
    """Fill an empty root from a backup and verify it: SOURCE EMPTY_ROOT."""
    _hand_over("restore", context)


def _hand_over(name: str, context: typer.Context) -> NoReturn:
    # The same process from here on: signals reach the job, and its exit code is ours.
    command = [sys.executable, "-m", "sluice.jobs.backup_command", name, *without_service(context.args)]
    os.execv(sys.executable, command)  # noqa: S606 - no shell, on purpose
