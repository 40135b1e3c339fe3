"""kill -9 of a maintenance job between any two of its writes: the table stays good, and the next run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import counts
from tests.support.jobs import ran

ROOTS = max(1, counts.JOB_KILLS // 40)


@pytest.mark.parametrize("seed", range(ROOTS))
def test_a_killed_job_leaves_a_good_table(tmp_root: Path, seed: int) -> None:
    """I-8, R-6, R-7: after each kill every record is there once, and verify finds nothing at the end."""
    spec = {"root": str(tmp_root), "seed": seed, "kills": counts.JOB_KILLS // ROOTS}
    command = [sys.executable, "-m", "tests.support.job_kills", json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_000, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    killed = json.loads(done.stdout.splitlines()[-1])
    print(f"killed: {killed}")
    assert sum(killed.values()) >= counts.JOB_KILLS // ROOTS // 3
    assert killed["retention"]
    assert killed["merge"]
    verified = ran("verify", tmp_root, "--in-process").report
    assert verified.outcome == "done", verified.error
