"""Consumer jobs as processes of their own: started, watched by the lines they log, stopped in order or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.support.quick_jvm import java_options

EVENT_S = 400.0
"""For whatever a driver should do next. It takes seconds; machines that run tests may be busy."""


class Driver:
    """`python -m sluice.streaming.consumer …`, or another command that logs as it does."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        command: Sequence[str] = (sys.executable, "-m", "sluice.streaming.consumer"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.events: list[dict[str, Any]] = []
        self.output: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=folder,
            env={**os.environ, **_quick_environment(), **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that the JVM can be killed together with its Python
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._changed:
                    self.output.append(line)
                    if line.startswith('{"at"'):
                        with suppress(ValueError):  # Spark writes to the same place
                            self.events.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        return "".join(self.output[-80:])

    def count(self, event: str) -> int:
        return sum(one["event"] == event for one in self.events)

    def wait_for(self, event: str, times: int = 1, within_s: float = EVENT_S) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self.count(event) >= times, within_s)
            assert self.count(event) >= times, f"no {event!r} number {times} from:\n{self.text}"

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)

    def kill_jvm(self) -> None:
        """The JVM alone: the Python of the driver and the planner outlive it for a moment."""
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, within_s: float = EVENT_S) -> int:
        code = self.process.wait(timeout=within_s)
        self._reader.join(timeout=10)
        return code


def _quick_environment() -> dict[str, str]:
    return {"JAVA_TOOL_OPTIONS": java_options(), "SLUICE_SPARK_DRIVER_MEMORY": "1g"}


@contextmanager
def drivers() -> Iterator[list[Driver]]:
    """Whatever is put into the list is gone at the end."""
    started: list[Driver] = []
    try:
        yield started
    finally:
        for driver in started:
            driver.kill()


def stored_rows(table: Path) -> list[dict[str, Any]]:
    """Read without Spark; nothing while there is no table."""
    try:
        return list(DeltaTable(str(table)).to_pyarrow_table().to_pylist())
    except TableNotFoundError:
        return []


def origins(rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((row["__partition"], row["__offset"]) for row in rows)
