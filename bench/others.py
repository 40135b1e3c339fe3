"""How many cores other processes used meanwhile: all but this one and those that descend from it.

A process that outlives its parent, as Spark's JVM does for a moment, would go to init and count as somebody else's.
This process adopts it instead (`PR_SET_CHILD_SUBREAPER`): living or dead, it stays in the tree until this one ends.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_STAT_PARENT, _STAT_TIMES = 1, slice(11, 15)
"""Behind the name in /proc/<pid>/stat: the parent; user and system time, its own and of children it waited for."""


class Others:
    """Since this was made. Kernel threads count as others, those that write our pages as well."""

    def __init__(self) -> None:
        adopt_orphans()
        self._begun = (time.monotonic(), _busy_s(), ours_s())

    def cores(self) -> float:
        wall, busy, ours = self._begun
        elsewhere = (_busy_s() - busy) - (ours_s() - ours)
        return max(0.0, elsewhere / (time.monotonic() - wall))


def adopt_orphans() -> None:
    """Where the system knows no such thing they are missed, and nothing else is."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ours_s() -> float:
    """Processor time of this process, of those that descend from it, and of the dead that were waited for."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system + tree_s(_stats(), os.getpid())


def tree_s(stats: Iterable[str], root: int) -> float:
    """Processor time of all below a process, of their lines in /proc/<pid>/stat. The dead whom nobody waited for are
    among them; those who were waited for count with their parent."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for line in stats:
        head, _, rest = line.rpartition(")")
        pid, fields = int(head.split(" ", 1)[0]), rest.split()
        children[int(fields[_STAT_PARENT])].append(pid)
        ticks[pid] = sum(map(int, fields[_STAT_TIMES]))
    waiting, total = list(children[root]), 0
    while waiting:
        pid = waiting.pop()
        total += ticks[pid]
        waiting += children[pid]
    return total / os.sysconf("SC_CLK_TCK")


def _stats() -> Iterable[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            yield path.read_text()


def _busy_s() -> float:
    """Of all processors; what the host took from this machine counts."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
