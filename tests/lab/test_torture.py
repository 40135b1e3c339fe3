"""Everything at once: the verdict is about safety, never about speed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counts import TORTURE_S


@pytest.mark.timeout(TORTURE_S * 2 + 900)
def test_nothing_breaks(tmp_path: Path) -> None:
    seed, report = random.randrange(1 << 31), tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.lab", "torture", "--seconds", str(TORTURE_S), "--seed", str(seed)]
    done = subprocess.run([*command, "--report", str(report)], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    found = json.loads(report.read_text())
    assert found["anomalies"] == []
    for one in found["rounds"]:
        # What was asserted was also tried.
        assert one["looked_at"]["acknowledged records"] > 0, one
        assert one["looked_at"]["records read"] > 0, one
        assert sum(one["nemeses"].values()) > 0, one
