"""A real service in a process of its own: `sluice serve --port 0` on a folder.

::

    with running(tmp_path / "root") as server:
        server.client.post("/topics/t", json={"records": [{"value": 1}]})
        server.kill()                       # kill -9
        server.start()                      # again, on the same root
"""

from __future__ import annotations

import itertools
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

START_S, STOP_S = 90.0, 60.0
QUICK = {"SLUICE_COMMIT_INTERVAL_MS": "5", "SLUICE_CLAIM_RENEW_MS": "300", "SLUICE_CLAIM_TIMEOUT_MS": "1000"}
KILL_AT = "SLUICE_TEST_KILL_AT"
DELETE_DELAY = "SLUICE_TEST_DELETE_DELAY_MS"
"""A shorter `file.delete.delay.ms` than anybody may set: readers lose files under their hands."""


class Server:
    def __init__(
        self, root: Path, *, verify: ssl.SSLContext | bool = True, within: Sequence[str] = (), **settings: str
    ) -> None:
        """`within`: a command that runs the service's own command line somewhere else, for example in a namespace."""
        self.root = root
        self._within = within
        self._verify = verify
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.client = httpx.Client()
        self.url = ""
        self.port = 0
        """Set it to find a restarted service at the same address; 0: any that is free."""

    def arm(self, step: str, times: int) -> None:
        """From its next start on: kill -9 at a named step of the log, when it is reached for the n-th time."""
        self._settings[KILL_AT] = f"{step}:{times}"

    def start(self, *options: str) -> None:
        command = [*self._within, sys.executable, "-m", "tests.support.server", "--root", str(self.root)]
        command += ["--port", str(self.port), *options]
        environment = os.environ | QUICK | self._settings
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self._process = process
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        listening = line.startswith(("sluice listening on http://", "sluice listening on https://"))
        assert listening, f"{line!r}, exit code {process.poll()}"
        self.url = line.split()[-1]
        self.client.close()
        self.client = httpx.Client(base_url=self.url, timeout=60, verify=self._verify)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        assert self._process is not None
        code = self._process.wait(timeout=STOP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def terminate(self) -> int:
        """A graceful stop; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def close(self) -> None:
        self.client.close()
        if self._process is not None and self._process.poll() is None:
            self.kill()


@contextmanager
def running(
    root: Path, *, verify: ssl.SSLContext | bool = True, within: Sequence[str] = (), **settings: str
) -> Iterator[Server]:
    server = Server(root, verify=verify, within=within, **settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _kill_at(step: str, times: int) -> None:
    from sluice.log_store import steps

    left = itertools.count(times - 1, -1)
    steps.set_hook(lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == step and next(left) == 0 else None)


def sweeping_after(delay_ms: int) -> Callable[..., Any]:
    """The rule of the sweep with a delay of its own."""
    from sluice.log_store.sweep import choose_sweep

    return lambda *given, **options: choose_sweep(*given, **options | {"delete_delay_ms": delay_ms})


if __name__ == "__main__":
    from sluice.api.cli import app

    if wanted := os.environ.get(KILL_AT):
        _kill_at(wanted.partition(":")[0], int(wanted.partition(":")[2]))
    if wanted := os.environ.get(DELETE_DELAY):
        from sluice.log_store import housekeeping

        housekeeping.choose_sweep = sweeping_after(int(wanted))

    app(["serve", *sys.argv[1:]])
