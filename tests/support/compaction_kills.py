"""Runs the compaction job on a root that nobody serves and kills it with kill -9 before or after one of its writes.

    python -m tests.support.compaction_kills '{"root": …, "seed": 1, "kills": 40}'

After each kill another fork opens the log as a service would: every key must have its last value, every offset that is
left the record that was written there, and the range that counts as clean no key twice.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

from sluice.jobs import cluster as job_cluster
from sluice.jobs import stored_cluster
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.engine import LogStore
from sluice.log_store.records import make_batch
from sluice.log_store.store import open_store
from tests.support.job_kills import Killing, forked
from tests.support.jobs import ran
from tests.support.logs import NOW_MS, small_settings

KEYS = 7
CONFIGS = {"cleanup.policy": "compact", "segment.ms": 1_000, "min.cleanable.dirty.ratio": 0}


def settings_of(root: str) -> Any:
    return small_settings(root, fsync=True, compaction_in_process_max_bytes=0)


def record(offset: int) -> tuple[bytes, bytes]:
    """What is written at an offset: keys come again all the time."""
    return b"k%d" % (offset * offset % KEYS), b"%d" % offset


def append(root: str) -> None:
    with LogStore.open(settings_of(root)) as log:
        if not log.topics():
            log.create_topic("t", configs=CONFIGS)
        for _ in range(6):
            end = log.partition("t", 0).high_watermark
            pairs = [record(offset) for offset in range(end, end + 5)]
            rows = [{"key": key, "value": value} for key, value in pairs]
            log.append("t", 0, make_batch(rows, default_ms=NOW_MS + end * 1_000)).result(60)


def check(root: str) -> None:
    with LogStore.open(settings_of(root)) as log:
        assert not log.report.findings, log.report.findings
        led = log.partition("t", 0)
        found = list(_rows(log))
        assert all((key, value) == record(offset) for offset, key, value in found)
        last = {record(offset)[0]: offset for offset in range(led.high_watermark)}
        assert {key: offset for offset, key, _ in found} == last
        clean = [key for offset, key, _ in found if offset < led.state.first_dirty]
        assert len(set(clean)) == len(clean)


def _rows(log: LogStore) -> Iterator[tuple[int, bytes, bytes]]:
    for piece in log.reads("t", 0).scan(readahead=0):
        yield from zip(*(piece.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True)


def job(root: str, at: int, *, after: bool) -> None:
    def opened(*arguments: Any, **options: Any) -> Any:
        store = open_store(*arguments, **options)
        return Killing(store, at, after=after) if at else store

    job_cluster.open_store = stored_cluster.open_store = opened
    report = ran("compaction", root, "--driver-max-bytes", "100000000", settings=settings_of(root)).report
    assert report.outcome in (DONE, NOTHING), report


def main(spec: dict[str, Any]) -> None:
    root, dice = spec["root"], random.Random(spec["seed"])
    killed = cleaned = 0
    for step in range(spec["kills"]):
        if step % 2 == 0:
            forked(lambda: append(root))
        at, after = dice.randint(1, 40), dice.random() < 0.5
        ended = forked(lambda: job(root, at, after=after))  # noqa: B023 - it runs at once
        killed += ended == signal.SIGKILL
        cleaned += ended == 0
        forked(lambda: check(root))
    forked(lambda: job(root, 0, after=False))
    forked(lambda: check(root))
    print(json.dumps({"killed": killed, "cleaned": cleaned}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
