"""Processes that descend from this one are not others, however they end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.others import tree_s

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def stat(pid: int, parent: int, *ticks: int, name: str = "java", state: str = "S") -> str:
    """A line of /proc/<pid>/stat, as far as the times."""
    return " ".join(map(str, [pid, f"({name})", state, parent, *range(9), *ticks, 20, 0]))


def test_all_that_descend_count_and_nobody_else():
    lines = [
        stat(1, 0, 1000, 0, 0, 0),
        stat(50, 1, 500, 0, 0, 0),  # this one, which knows its own times better
        stat(60, 50, 1, 2, 0, 0),
        stat(70, 60, 4, 8, 0, 0, name="a (b) c"),
        stat(80, 1, 700, 0, 0, 0),
    ]
    assert tree_s(lines, 50) == pytest.approx(15 * TICK_S)


def test_the_dead_count_with_those_who_waited_for_them_or_as_they_lie():
    lines = [stat(60, 50, 1, 2, 10, 20), stat(61, 50, 100, 200, 0, 0, state="Z")]
    assert tree_s(lines, 50) == pytest.approx(333 * TICK_S)


def test_nobody_descends_from_a_stranger():
    assert tree_s([stat(60, 50, 1, 2, 3, 4)], 99) == 0


ORPHAN = """
import subprocess, sys
from bench.others import Others, ours_s

others, before = Others(), ours_s()
# A child that leaves at once; its own child works on for a while and is waited for by nobody.
work = "import time\\nwhile time.process_time() < 0.5: pass\\nprint('done', flush=True)"
middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
piped = subprocess.Popen([sys.executable, "-c", middle, work], stdout=subprocess.PIPE)
assert piped.stdout.read() == b"done\\n"
piped.wait()
print(ours_s() - before)
"""


def test_a_process_that_outlives_its_parent_is_still_ours():
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) >= 0.5
