"""A task sets the modules of its worker aside, once; other processes are left alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from pyspark import TaskContext
from sluice.streaming.spark.workers import begin_task

begin_task()
assert gc.get_freeze_count() == 0, "no task"
TaskContext._setTaskContext(TaskContext())
begin_task()
first = gc.get_freeze_count()
assert first > 10_000, first
kept = [[] for _ in range(10_000)]
begin_task()
assert gc.get_freeze_count() == first, "what a later task made is collected as ever"
"""


def test_a_worker_is_prepared_once():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
