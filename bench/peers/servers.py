"""A server process that is started, watched, killed and started again, always by its own process id."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bench.figures import REPOSITORY

STOP_S = 60.0
LOOK_S = 0.005
"""Between two looks whether a server is ready: what a start time can be off by."""
IDLE_CORES = 0.15
PORTS = range(20_000, 32_000)
MIB = 1 << 20

K = TypeVar("K")
V = TypeVar("V")


class Server:
    def __init__(self, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None) -> None:
        self._command, self._output = list(command), output
        self._environment = os.environ | dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=REPOSITORY, env=self._environment, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while not condition():
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"{self._command[-2:]} ended by itself: {self._said()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[-2:]} was not ready after {seconds:g} s: {self._said()}")
            pause.wait(LOOK_S)

    def _said(self) -> str:
        return self._output.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        self._process = None

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def rss_mib(self) -> float:
        return memory_mib(Path(f"/proc/{self.pid}/status").read_text(), "VmRSS")

    @property
    def peak_mib(self) -> float:
        return memory_mib(Path(f"/proc/{self.pid}/status").read_text(), "VmHWM")


def in_turns(runs: dict[K, V], rounds: int) -> Iterator[tuple[K, V]]:
    """Each once a round, every second round backwards: nobody is always the first after somebody else's work."""
    for number in range(rounds):
        yield from reversed(runs.items()) if number % 2 else runs.items()


class Busy(Protocol):
    @property
    def cpu_s(self) -> float: ...


@dataclass(slots=True)
class Settling:
    """Before a run: until no server has work left over (merges, flushes), which would be taken from whoever is measured
    next, and until no dirty page is left, which a service that syncs would write for the others."""

    servers: Sequence[Busy]
    limit_s: float = 10.0
    look_s: float = 0.4
    runs: int = 0
    gave_up: int = 0

    def __call__(self) -> None:
        self.runs += 1
        self.gave_up += not self._idle()
        os.sync()

    def _idle(self) -> bool:
        pause, deadline = threading.Event(), time.monotonic() + self.limit_s
        while time.monotonic() < deadline:
            before = self._spent()
            pause.wait(self.look_s)
            if self._spent() - before <= IDLE_CORES * self.look_s:
                return True
        return False

    def _spent(self) -> float:
        return sum(server.cpu_s for server in self.servers)

    @property
    def note(self) -> str:
        return (
            f"before each of {self.runs} runs the servers had up to {self.limit_s:g} s to finish what the last one left"
            f" them (merges, flushes), then all dirty pages were written (sync), untimed;"
            f" {self.gave_up} times they were still at work when that time was over"
        )


def memory_mib(status: str, field: str) -> float:
    """A field of /proc/<pid>/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, flags=re.MULTILINE)
    if found is None:
        raise RuntimeError(f"this system does not tell {field}")
    return int(found[1]) * 1024 / MIB


def free_port() -> int:
    """Below those that the system gives to whoever asks for any: it must still be free when the server comes to it."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port between {PORTS.start} and {PORTS.stop} is free")
