"""What the clients asked and what they were answered: lines of JSON, one file for each process, only appended to.

::

    {"t": 12.3, "wall": 1700…, "who": "json-all.0", "op": "json-all.0#7", "is": "invoke", "do": "produce", …}
    {"t": 12.4, "wall": 1700…, "who": "json-all.0", "op": "json-all.0#7", "is": "ok", "do": "produce", …}

`t` is the boottime clock, the same for all processes of the machine. An invocation is written before its request is
sent, a completion before the answer is used for anything: a client that is killed leaves at worst an invocation without
an end, which says the same as one that nobody answered. Each line is one write to a file opened for appending, so a
kill keeps everything that was written, and only a crash of the machine would not.

Ends: `ok` it was answered; `fail` it was refused and nothing was done; `info` nobody knows. A `note` is something that
needs no answer: an assignment that was taken, two services at once, a nemesis at work.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Recorder:
    """Thread-safe; threads of a process share one."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def invoke(self, who: str, do: str, **fields: Any) -> Operation:
        operation = Operation(self, who, do, f"{who}#{next(self._numbers)}")
        self.write(operation, "invoke", fields)
        return operation

    def note(self, who: str, do: str, **fields: Any) -> None:
        self.write(Operation(self, who, do, ""), "note", fields)

    def write(self, of: Operation, kind: str, fields: dict[str, Any]) -> None:
        head = {"t": now(), "wall": time.time_ns() // 1_000_000, "who": of.who, "op": of.name, "is": kind, "do": of.do}
        line = json.dumps(head | fields).encode() + b"\n"
        with self._lock:
            os.write(self._fd, line)


class Operation:
    def __init__(self, recorder: Recorder, who: str, do: str, name: str) -> None:
        self._recorder = recorder
        self.who, self.do, self.name = who, do, name

    def ok(self, **fields: Any) -> None:
        self._recorder.write(self, "ok", fields)

    def fail(self, error: str) -> None:
        self._recorder.write(self, "fail", {"error": error})

    def info(self, error: str) -> None:
        self._recorder.write(self, "info", {"error": error})


def load(folder: Path) -> list[Event]:
    """Everything that all processes wrote, in the order of their clock."""
    events = [event for path in sorted(folder.glob("*.jsonl")) for event in _lines(path.read_bytes())]
    return sorted(events, key=lambda event: float(event["t"]))


def _lines(data: bytes) -> Iterator[Event]:
    for line in data.split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue  # the last line of a process that was killed within it: nobody was told
