"""Runs jobs on a root that nobody serves and kills them with kill -9 before or after one of their writes.

    python -m tests.support.job_kills '{"root": …, "seed": 1, "kills": 40}'

Each run is a fork of this process, which has imported everything and started no thread: a kill costs a fraction of a
second. After each kill another fork opens the log as a service would and looks at every record. Prints what happened
as one line of JSON; an assertion that fails ends it with a traceback.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from sluice.jobs import cluster as job_cluster
from sluice.jobs import stored_cluster
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.clock import SystemClock
from sluice.log_store.engine import LogStore
from sluice.log_store.records import make_batch
from sluice.log_store.store import open_store
from tests.support.jobs import ran
from tests.support.logs import small_settings

JOBS = ("retention", "merge", "vacuum", "orphans", "offset-expiry")
WRITES = ("put", "put_if_absent", "replace", "delete", "sync")
PARTITIONS = 2
HOUR = 3_600_000


class Killing:
    """A store whose n-th write is the last thing that this process does."""

    def __init__(self, store: Any, at: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, at, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(found) if name in WRITES else found

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted


def forked(work: Callable[[], None]) -> int:
    """The signal that ended it, 0 for none; a failure in it is a failure here."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - told, then the child must end here and nowhere else
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, "a run failed by itself"
        return 0
    return os.WTERMSIG(status)


def settings_of(root: str) -> Any:
    return small_settings(root, fsync=True, file_delete_delay_ms=0, orphan_retention_ms=0)


def append(root: str, step: int) -> None:
    """Old and new records, so that every job has something to do."""
    with LogStore.open(settings_of(root)) as log:
        if not log.topics():
            log.create_topic("t", partitions=PARTITIONS, configs={"segment.bytes": 3_000, "retention.ms": HOUR})
        now = SystemClock().wall_ms()
        for partition in range(PARTITIONS):
            for number in range(8):
                end = log.partition("t", partition).high_watermark
                ms = now - 2 * HOUR if number < 2 and step % 3 == 0 else now
                batch = make_batch([{"value": b"%d" % end, "timestamp": ms}], default_ms=0)
                log.append("t", partition, batch).result(60)


def check(root: str) -> None:
    """Every record from the log start to the end, once, in order, with the value that was written there."""
    with LogStore.open(settings_of(root)) as log:
        assert not log.report.findings, log.report.findings
        for partition in range(PARTITIONS):
            led = log.partition("t", partition)
            found = []
            for piece in log.reads("t", partition).scan(readahead=0):
                found += zip(piece.column("offset").to_pylist(), piece.column("value").to_pylist(), strict=True)
            expected = [(offset, b"%d" % offset) for offset in range(led.log_start, led.high_watermark)]
            assert found == expected, f"partition {partition}: {found} is not {expected}"


def job(root: str, name: str, at: int, *, after: bool) -> None:
    def opened(*arguments: Any, **options: Any) -> Any:
        store = open_store(*arguments, **options)
        return Killing(store, at, after=after) if at else store

    job_cluster.open_store = stored_cluster.open_store = opened
    more = ("--include-active",) if name == "merge" else ()
    report = ran(name, root, *more, settings=settings_of(root)).report
    assert report.outcome in (DONE, NOTHING), report


def main(spec: dict[str, Any]) -> None:
    root, dice = spec["root"], random.Random(spec["seed"])
    killed = dict.fromkeys(JOBS, 0)
    for step in range(spec["kills"]):
        if step % 3 == 0:
            forked(lambda step=step: append(root, step))  # type: ignore[misc]
        name = dice.choice(JOBS[:2]) if dice.random() < 0.7 else dice.choice(JOBS[2:])
        # Most runs make between a few and some dozen writes; a number beyond them lets the run end.
        at, after = dice.randint(1, 28), dice.random() < 0.5
        if forked(lambda: job(root, name, at, after=after)) == signal.SIGKILL:  # noqa: B023 - it runs at once
            killed[name] += 1
        forked(lambda: check(root))
    for name in JOBS:
        forked(lambda name=name: job(root, name, 0, after=False))  # type: ignore[misc]
    forked(lambda: check(root))
    print(json.dumps(killed))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
