"""Every test gets disks of its own, and every process and mount ends with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.disk.disks import Disks, why_not
from tests.support.harness import REPOSITORY, Process


@pytest.fixture
def disks() -> Iterator[Disks]:
    if reason := why_not():
        pytest.skip(f"this machine does not let us mount a small file system: {reason}")
    disks = Disks()
    yield disks
    disks.close()


class Bench:
    """A root on small disks, the workers that lead it, and what they were told."""

    def __init__(self, disks: Disks, folder: Path) -> None:
        self.disks = disks
        self.root = folder / "root"
        self.wal = folder / "wal"
        self.history = folder / "history.jsonl"
        self._within = disks.within(REPOSITORY)
        self._started: list[Process] = []

    def start(self, **spec: Any) -> Process:
        self._started.append(Process(self.root, self.history, within=self._within, **spec))
        return self._started[-1]

    def judge(self, *, partitions: int, settings: dict[str, Any]) -> dict[str, Any]:
        """Nothing acknowledged lost, nothing twice, offsets dense, both readers agree."""
        spec = {"root": str(self.root), "history": str(self.history), "partitions": partitions, "settings": settings}
        command = [*self._within, sys.executable, "-m", "tests.disk.verdict", json.dumps(spec)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr[-3000:]
        verdict: dict[str, Any] = json.loads(done.stdout)
        assert verdict["clean"], verdict["text"]
        assert not verdict["broken"]
        return verdict

    def end(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture
def bench(disks: Disks, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(disks, tmp_path)
    yield bench
    bench.end()


def need_ext4() -> None:
    if shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("no mkfs.ext4 or no loop devices")
