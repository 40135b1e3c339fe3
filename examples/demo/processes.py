"""The processes of the demo: the service, and Spark jobs as spark-submit would run them. Each is stopped by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

START_S, STOP_S = 60.0, 60.0


class Failed(Exception):
    """The demo cannot go on."""


class Process:
    """Its output goes to a file, which is shown when it fails."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[str] | None = None

    def _start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | environment
            )
        return self._process

    @property
    def pid(self) -> int:
        return -1 if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9: no chance to tidy up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Ask nicely; the exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def check(self) -> None:
        if not self.running:
            raise Failed(f"{self.name} ended by itself; the end of its log:\n{self.tail()}")

    def tail(self) -> str:
        return "\n".join(self.log.read_text().splitlines()[-15:])


class Service(Process):
    def __init__(self, root: Path, log: Path, **settings: str) -> None:
        super().__init__("the service", log)
        self._root = root
        self._settings = settings
        self.url = ""

    def start(self) -> None:
        """At the same address as before, if it ran before."""
        port = self.url.rpartition(":")[2] or "0"
        serve = ("-m", "sluice.api", "serve", "--root", str(self._root), "--port", port)
        process = self._start(*serve, SLUICE_LOG_LEVEL="warning", **self._settings)
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        line = process.stdout.readline() if process.stdout is not None else ""
        watchdog.cancel()
        if not line.startswith("sluice listening on "):
            raise Failed(f"the service did not start:\n{self.tail()}")
        self.url = line.split()[-1]


class ConsumerJob(Process):
    """`spark-submit streaming/consumer.py`, without a cluster."""

    def start(self, *options: str) -> None:
        self._start("-m", "sluice.streaming.consumer", "--master", "local[1]", *options)
