"""Every program in examples/ does what it says, against a real service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.server import Server

NEEDS_SPARK = {"spark_consumer.py"}
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
MOST_S = 560
"""A busy machine needs that long to start Spark."""


@pytest.mark.timeout(MOST_S + 40)
@pytest.mark.parametrize(
    "program",
    [pytest.param(path, marks=[pytest.mark.spark] if path.name in NEEDS_SPARK else []) for path in PROGRAMS],
    ids=lambda path: path.name,
)
def test_an_example_holds(program: Path, server: Server, tmp_path: Path):
    command = [sys.executable, str(program), server.url]
    # A group of its own: a program that hangs goes with everything that it started.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as running:
        try:
            said, _ = running.communicate(timeout=MOST_S)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    assert running.returncode == 0, said
    assert said.strip(), "it says what it does"
