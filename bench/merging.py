"""What producers notice of merging: acks=all latency at a steady rate, with merging on and off, in turns."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from threading import Event

from bench.figures import Findings, at_most, percentile
from bench.growth import orders
from bench.harness import scratch
from sluice.conf.settings import LogSettings, Settings, StorageSettings
from sluice.log_store.engine import LogStore

PARTITIONS, RATE, RECORDS = 8, 400, 10
ROUNDS, ROUND_S = 6, 3.0
# Nothing is merged for being quiet while the other cluster has its turn.
QUIET_MS = 3_600_000


def run() -> Findings:
    findings = Findings(
        "merging",
        f"acks=all at {RATE} requests/s over {PARTITIONS} partitions, merging on against off",
        {
            "partitions": PARTITIONS,
            "requests_per_s": RATE,
            "records_per_request": RECORDS,
            "round_s": ROUND_S,
            "commit.interval.ms": 50,
            "fsync": True,
        },
        notes=[
            "two clusters in one process, in turns; each has its turn alone, and what it merges ends within it",
            "p99 over all rounds; the rate is kept whatever the answers take",
        ],
    )
    times: dict[str, list[list[float]]] = {"on": [], "off": []}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        logs = {name: _cluster(stack, folder / name, merge=name == "on") for name in times}
        for log in logs.values():
            _round(log, 1.0)
        for number in range(ROUNDS):
            for name, log in sorted(logs.items(), reverse=number % 2 == 0):
                gc.collect()
                times[name].append(_round(log, ROUND_S))
                _until_merged(log)
        merged = logs["on"].background.housekeeping.counters
        live = {name: sum(_files(log, n) for n in range(PARTITIONS)) for name, log in logs.items()}
    for name, rounds in times.items():
        findings.add(f"merging {name}: p50", "ms", [percentile(r, 50) * 1e3 for r in rounds])
        findings.add(f"merging {name}: p99", "ms", [percentile(r, 99) * 1e3 for r in rounds])
    whole = {name: [percentile([t for r in rounds for t in r], 99)] for name, rounds in times.items()}
    findings.ratio("p99: merging on / off", whole["on"], whole["off"], at_most(1.5))
    findings.add("merges", "merges", [merged.merges])
    findings.add("files merged", "files", [merged.merged_files])
    for name, files in live.items():
        findings.add(f"merging {name}: live files at the end", "files", [files])
    return findings


def _cluster(stack: ExitStack, root: Path, *, merge: bool) -> LogStore:
    settings = Settings(
        storage=StorageSettings(root=str(root)), log=LogSettings(merge_enable=merge, merge_quiet_ms=QUIET_MS)
    )
    log = stack.enter_context(LogStore.open(settings))
    log.create_topic("orders", partitions=PARTITIONS)
    return log


def _files(log: LogStore, number: int) -> int:
    return len(log.partition("orders", number).state.files)


def _round(log: LogStore, duration_s: float) -> list[float]:
    """Requests leave at their time; their latency counts from when they should have left."""
    batches = cycle([orders(RECORDS, seed) for seed in range(20)])
    count = int(RATE * duration_s)
    times: list[float] = []
    done, pause = Event(), Event()
    begun = time.perf_counter()
    for number in range(count):
        due = begun + number / RATE
        if (early := due - time.perf_counter()) > 0:
            pause.wait(early)

        def answered(_: object, due: float = due) -> None:
            times.append(time.perf_counter() - due)
            if len(times) == count:
                done.set()

        log.append("orders", number % PARTITIONS, next(batches)).add_done_callback(answered)
    assert done.wait(60), "not every request was answered"
    return times


def _until_merged(log: LogStore) -> None:
    """Until no merge was begun for a while: the other cluster's turn is its own."""
    counters, pause = log.background.housekeeping.counters, Event()
    seen = -1
    while counters.merges != seen:
        seen = counters.merges
        pause.wait(0.3)
