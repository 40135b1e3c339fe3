"""The most memory that a process and all that it started had at once, by kind, looked at from outside."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path

LOOK_S = 0.2
JVM, DRIVER, WORKERS = "JVM", "driver, Python", "workers, Python"


class TreeMemory:
    """Own pages only (RssAnon): what workers share with the process they were forked from counts once."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peaks_mib: dict[str, float] = {JVM: 0.0, DRIVER: 0.0, WORKERS: 0.0, "all": 0.0}

    def __enter__(self) -> TreeMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            now = self._now()
            for kind, mib in (now | {"all": sum(now.values())}).items():
                self.peaks_mib[kind] = max(self.peaks_mib[kind], mib)

    def _now(self) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        children = _children()
        waiting = [self._pid]
        while waiting:
            pid = waiting.pop()
            waiting += children[pid]
            name, mib = _memory(pid)
            kind = DRIVER if pid == self._pid else JVM if name == "java" else WORKERS
            found[kind] += mib
        return found


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        found[parent].append(int(path.parent.name))
    return found


def _memory(pid: int) -> tuple[str, float]:
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return lines["Name"].strip(), int(lines["RssAnon"].split()[0]) / 1024
    except (OSError, KeyError):
        return "", 0.0  # it has ended, or is about to
