"""A store that fails while a file says so: the lab writes into it, the services look at it before and after each call.

The file has one line of JSON, what is to fail, and behind it a number, how many calls have failed so far.
"""

from __future__ import annotations

import json
import os
import random
import struct
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from sluice.log_store.store import Store, StoreError
from tests.support.faulty_store import FaultyStore, When

WRITES = ("put", "put_if_absent", "replace")
READS = ("get", "get_range", "open_input", "stat", "list")
_TOLD_BYTES = 256
_HITS = struct.Struct("<q")


class StoreFaults:
    """The lab's side."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._fd, _HITS.pack(0), _TOLD_BYTES)
        self.clear()

    def set(self, how: str, match: str, chance: float, delay: float = 0.0) -> None:
        """`how`: fail, apply-and-fail or slow."""
        self._tell({"how": how, "match": match, "chance": chance, "delay": delay})

    def clear(self) -> None:
        self._tell({})

    def close(self) -> None:
        os.close(self._fd)

    @property
    def hits(self) -> int:
        return int(_HITS.unpack(os.pread(self._fd, _HITS.size, _TOLD_BYTES))[0])

    def _tell(self, told: dict[str, Any]) -> None:
        line = json.dumps(told).encode()
        assert len(line) <= _TOLD_BYTES
        os.pwrite(self._fd, line.ljust(_TOLD_BYTES), 0)  # one small write: readers see the old line or the new one


class _Struck:
    """A service's side. Which calls are hit is chance, and no part of the plan: their number is never the same."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._lock = threading.Lock()

    def strike(self, operation: str, when: When, path: str) -> None:
        told = json.loads(os.pread(self._fd, _TOLD_BYTES, 0))
        if not told or random.random() >= told["chance"] or not matches(told["match"], path):
            return
        how = told["how"]
        if how == "slow" and when == "before":
            self._count()
            time.sleep(told["delay"])
        elif (how, when) in (("fail", "before"), ("apply-and-fail", "after")):
            if how == "apply-and-fail" and operation not in WRITES:
                return
            self._count()
            raise StoreError(f"the lab: {how}", operation=operation, path=path, errno=None)

    def _count(self) -> None:
        with self._lock:
            hits = _HITS.unpack(os.pread(self._fd, _HITS.size, _TOLD_BYTES))[0]
            os.pwrite(self._fd, _HITS.pack(hits + 1), _TOLD_BYTES)


def matches(wanted: str, path: str) -> bool:
    """`data`, `commits`, or `all`."""
    is_commit = "/_delta_log/" in path
    return wanted == "all" or (is_commit if wanted == "commits" else path.endswith(".parquet") and not is_commit)


def struck(store: Store, path: Path) -> Store:
    """The same store, failing while the file at `path` says so."""
    faulty, strikes = FaultyStore(store), _Struck(path)
    whens: tuple[When, ...] = ("before", "after")
    for operation in (*WRITES, *READS):
        for when in whens:
            faulty.on(operation, partial(strikes.strike, operation, when), when=when, times=None)
    return faulty
