"""When the lab ends, so does whatever its processes have started, in sessions of their own or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.harness import wait_until

LAB = """
import os, signal, subprocess, sys
from tests.lab import nursery

nursery.adopt()
client = os.fork()
if client == 0:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    drivers = [subprocess.Popen(["sleep", "300"], start_new_session=True) for _ in range(2)]
    os.kill(drivers[1].pid, signal.SIGSTOP)
    print(os.getpid(), *(driver.pid for driver in drivers), flush=True)
    signal.pause()
sys.stdin.read()
nursery.end_all()
"""


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_what_clients_have_started_ends_with_the_lab() -> None:
    folder = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", LAB], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as lab:
        assert lab.stdout is not None
        client, *drivers = map(int, lab.stdout.readline().split())
        try:
            assert len(drivers) == 2
            assert all(map(alive, (client, *drivers)))
            assert lab.stdin is not None
            lab.stdin.close()
            assert lab.wait(60) == 0
            wait_until(lambda: not any(map(alive, (client, *drivers))), "all have ended")
        finally:
            for pid in filter(alive, drivers):
                os.kill(pid, signal.SIGKILL)
