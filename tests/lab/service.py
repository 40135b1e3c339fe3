"""A service of the lab: `sluice serve` in a process of its own, whose clock can be moved and whose store can fail."""

from __future__ import annotations

import importlib
import os
import signal
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.lab.history import now
from tests.lab.nursery import Nursery

START_S, STOP_S = 180.0, 120.0
"""How long it may take on a machine that is very busy."""
LISTENING = "sluice listening on "
_OFFSET = struct.Struct("<q")

# Everything happens often: files roll, checkpoints are written, the write-ahead log is cut, jobs find work.
SETTINGS = {
    "SLUICE_COMMIT_INTERVAL_MS": "20",
    "SLUICE_CLAIM_RENEW_MS": "300",
    "SLUICE_CLAIM_TIMEOUT_MS": "1500",
    "SLUICE_WAL_FILE_BYTES": str(1 << 20),
    "SLUICE_WAL_MAX_BYTES": str(16 << 20),
    "SLUICE_WAL_SYNC_INTERVAL_MS": "700",
    "SLUICE_CHECKPOINT_INTERVAL_VERSIONS": "25",
    "SLUICE_FILE_DELETE_DELAY_MS": "60000",
    "SLUICE_RETENTION_CHECK_INTERVAL_MS": "1000",
    "SLUICE_MERGE_QUIET_MS": "300",
    "SLUICE_AUTO_CREATE_TOPICS_ENABLE": "false",
    "SLUICE_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
    "SLUICE_CONSUMER_INSTANCE_TIMEOUT_MS": "10000",
}


class Wall:
    """How far the wall clock of the services is off: a number in a file, which they read each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, seconds: int) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(fd, _OFFSET.pack(seconds * 1000), 0)
        os.close(fd)


class Refused(Exception):
    """It ended, or said nothing, before it listened."""


class ServiceProcess:
    def __init__(
        self,
        nursery: Nursery,
        root: str,
        wall: Wall,
        store_faults: Path | None,
        settings: Mapping[str, str],
        log: Path,
        *,
        force: bool = False,
    ) -> None:
        spec = {"root": root, "clock": str(wall.path), "force": force}
        if store_faults is not None:
            spec["store_faults"] = str(store_faults)
        self._log = log
        self._child = nursery.start("service", spec, log, SETTINGS | dict(settings))
        self.port = 0
        self.told = self.hung = False
        """Whether it was told to end; and did not, but by force."""

    def wait_ready(self) -> None:
        deadline = now() + START_S
        while True:
            alive, said = self.alive, self._said()
            if said.startswith(LISTENING) and "\n" in said:
                self.port = int(said.splitlines()[0].rpartition(":")[2])
                return
            if not alive or now() > deadline:
                self.kill()
                raise Refused(f"{self._said().strip() or 'silence'}; {self._log.read_text()[-1500:]}")
            threading.Event().wait(0.02)

    def _said(self) -> str:
        return self._child.out.read_text() if self._child.out.exists() else ""

    @property
    def alive(self) -> bool:
        return self._child.alive

    @property
    def end(self) -> str:
        """What it said at last: its exit code, if it was not killed."""
        return self._said().strip().rpartition("\n")[2]

    def signal(self, number: int) -> None:
        self._child.signal(number)

    def kill(self) -> None:
        self.told = self.told or self.alive
        self.signal(signal.SIGKILL)
        assert self._child.wait(STOP_S), "a process survived kill -9"

    def terminate(self) -> str:
        """In order; by force if that takes too long."""
        self.told = self.told or self.alive
        self.signal(signal.SIGTERM)
        if not self._child.wait(STOP_S):
            self.hung = True
            self.kill()
        return self.end


def load() -> None:
    """Import what a service needs."""
    importlib.import_module("sluice.api.cli")
    importlib.import_module("sluice.api.main")
    importlib.import_module("tests.lab.store_faults")


def main(spec: dict[str, Any]) -> None:
    from sluice.api.cli import app
    from sluice.log_store import engine
    from sluice.log_store.clock import SystemClock
    from sluice.log_store.store import Store, open_store
    from tests.lab.store_faults import struck

    fd, true_ms = os.open(spec["clock"], os.O_RDONLY), SystemClock.wall_ms

    def wall_ms(clock: SystemClock) -> int:
        return true_ms(clock) + int(_OFFSET.unpack(os.pread(fd, 8, 0))[0])

    SystemClock.wall_ms = wall_ms  # type: ignore[method-assign,assignment]
    if "store_faults" in spec:

        def open_failing(*arguments: Any, **options: Any) -> Store:
            return struck(open_store(*arguments, **options), Path(spec["store_faults"]))

        setattr(engine, "open_store", open_failing)  # noqa: B010  # the module does not export it
    force = ["--force"] if spec["force"] else []
    app(["serve", "--root", spec["root"], "--port", "0", *force])
