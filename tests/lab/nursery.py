"""Starts processes of the lab within milliseconds: it has imported everything, has no threads, and forks.

    python -m tests.lab.nursery

Takes lines `{"run": "service" or "clients", "spec": …, "environment": …, "out": …, "errors": …}` on standard input and
answers each with a process id. When its standard input ends, for example because the lab was killed, so do all of them,
and whatever they have started: jobs and Spark drivers have sessions of their own, and some of them may be stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36


class Child:
    """A process that another process started: known by its id, which cannot be given to a new one meanwhile."""

    def __init__(self, pid: int, out: Path) -> None:
        self.pid = pid
        self.out = out
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1  # it ended at once; what it said is in its files

    @property
    def alive(self) -> bool:
        return self._fd >= 0 and not self.wait(0.0)

    def wait(self, within_s: float) -> bool:
        """Whether it has ended."""
        if self._fd < 0 or select.select([self._fd], [], [], within_s)[0]:
            self._close()
            return True
        return False

    def signal(self, number: int) -> None:
        if self._fd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.Signals(number))

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Nursery:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, run: str, spec: Mapping[str, Any], errors: Path, environment: Mapping[str, str]) -> Child:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._count += 1
        out = self._folder / f"{run}-{self._count}"
        wanted = {"run": run, "spec": spec, "environment": dict(environment), "out": str(out), "errors": str(errors)}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return Child(int(self._process.stdout.readline()), out)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _become(wanted: Mapping[str, Any]) -> int:
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for path, number, flags in ((wanted["out"], 1, os.O_TRUNC), (wanted["errors"], 2, os.O_APPEND)):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        os.dup2(fd, number)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.environ.update(wanted["environment"])
    from tests.lab import clients, service

    try:
        (service.main if wanted["run"] == "service" else clients.main)(wanted["spec"])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def adopt() -> None:
    """From now on a process below this one that loses its parent becomes a child of this one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def end_all() -> None:
    """Kill the children until there are none: those of a child come up when it is gone."""
    while pids := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.01)


def main() -> None:
    from tests.lab import clients, service

    clients.load()
    service.load()
    for number in (signal.SIGINT, signal.SIGTERM):  # they may come to all at once, and the lab's own end is enough
        signal.signal(number, signal.SIG_IGN)
    adopt()
    try:
        _serve()
    finally:
        end_all()


def _serve() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _become(json.loads(line))
            except Exception:  # noqa: BLE001  # it ends here, and its log should say why
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os.write(1, f"\nexit code {code}\n".encode())
                os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
