from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests import lanes


def lane(monkeypatch: pytest.MonkeyPatch, *, left: tuple[str, ...], program: str) -> int:
    """The code of a lane that runs `program`, with the folder as its argument, instead of pytest."""
    monkeypatch.setattr(lanes, "_command", lambda cache, _: [sys.executable, "-c", program, cache])
    queue = SimpleQueue[str]()
    for folder in left:
        queue.put(folder)
    return lanes.Lane("spark", queue).start().end()


def test_every_folder_is_there_and_named_once():
    named = [folder for folders in lanes.LANES.values() for folder in folders] + list(lanes.NEXT)
    assert len(named) == len(set(named))
    assert all((lanes._TESTS / folder).is_dir() for folder in named)


def test_the_worst_of_what_a_lane_took_counts(monkeypatch: pytest.MonkeyPatch):
    fails = "import sys; sys.exit(3 if sys.argv[1] == 'lab' else 0)"
    assert lane(monkeypatch, program=fails, left=("lab", "unit")) == 3
    assert lane(monkeypatch, program=fails, left=("unit",)) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_lane_that_breaks_is_not_green(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "_command", lambda cache, _: ["/no/such/python", cache])
    assert lanes.Lane("spark", SimpleQueue[str]()).start().end() == 1


_TIDY = """
import subprocess, sys
server = subprocess.Popen(["sleep", "600"])
try:
    print("at work", server.pid, flush=True)
    server.wait()
finally:
    server.kill()
    server.wait()
"""
_LANES = f"""
import sys
from tests import lanes
lanes._command = lambda *_: [sys.executable, "-c", {_TIDY!r}]
sys.exit(lanes.main())
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_lanes_that_are_interrupted_leave_nothing_behind(how: signal.Signals):
    """Also in the background of a shell, where interrupts are ignored."""
    shell = ["bash", "-c", 'trap "" INT; exec "$@"', "-", sys.executable, "-c", _LANES]
    with subprocess.Popen(
        shell, cwd=lanes._TESTS.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout is not None
        servers: list[int] = []
        try:
            servers.extend(int(run.stdout.readline().split()[-1]) for _ in lanes.LANES)
            run.send_signal(how)
            assert run.wait(30) == 130
            assert not [pid for pid in servers if Path(f"/proc/{pid}").exists()]
        finally:
            run.kill()
            for pid in servers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
