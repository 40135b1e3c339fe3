"""Latency of single-record appends at a fixed rate from four threads, against a bare write and fdatasync."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.data import batch
from bench.figures import Findings, Target, at_most, percentile
from bench.harness import cluster, scratch, seconds
from sluice.conf.settings import LogSettings
from sluice.log_store.engine import LogStore
from sluice.log_store.pending import Acks

THREADS, PARTITIONS, ROUNDS, SECONDS, PROBES = 4, 8, 5, 1.5, 100
INTERVAL_MS = LogSettings().commit_interval_ms
CASES: tuple[tuple[Acks, int, Target | None], ...] = (
    (Acks.LEADER, 500, None),
    (Acks.LEADER, 1_000, None),
    (Acks.LEADER, 2_000, at_most(10)),
    (Acks.ALL, 2_000, at_most(120)),
)


def run() -> Findings:
    findings = Findings(
        "acks",
        f"single records at a fixed rate from {THREADS} threads, {PARTITIONS} partitions, fsync on",
        {
            "threads": THREADS,
            "partitions": PARTITIONS,
            "seconds_per_round": SECONDS,
            "commit.interval.ms": INTERVAL_MS,
            "fsync": True,
        },
        notes=[
            "measured from the moment an append was due, not from when its thread came to it",
            "a bare write: 4 KiB into a preallocated file and fdatasync, nothing else",
        ],
    )
    latencies: dict[tuple[Acks, int], list[list[float]]] = {(acks, rate): [] for acks, rate, _ in CASES}
    bare: list[list[float]] = []
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        log = stack.enter_context(cluster(folder / "cluster", fsync=True, commit_interval_ms=INTERVAL_MS))
        log.create_topic("orders", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            log.append("orders", number, batch(1)).result()
        for _ in range(ROUNDS):
            bare.append(_bare_syncs(folder / "bare"))
            for acks, rate, _target in CASES:
                latencies[acks, rate].append(_paced(log, acks, rate))
    floor = [percentile(r, 50) for r in bare]
    findings.add("bare write and fdatasync: p50", "ms", [t * 1e3 for t in floor])
    findings.add("bare write and fdatasync: p99", "ms", [percentile(r, 99) * 1e3 for r in bare])
    for acks, rate, target in CASES:
        rounds, what = latencies[acks, rate], f"acks={'all' if acks is Acks.ALL else 1} at {rate:,}/s"
        findings.add(f"{what}: p50", "ms", [percentile(r, 50) * 1e3 for r in rounds])
        findings.add(f"{what}: p99", "ms", [percentile(r, 99) * 1e3 for r in rounds], target)
        if acks is Acks.LEADER:
            findings.ratio(f"{what}: p50 / bare fdatasync", [percentile(r, 50) for r in rounds], floor)
    return findings


def _bare_syncs(path: Path) -> list[float]:
    block = bytes(4096)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(fd, block * PROBES, 0)
        os.fsync(fd)

        def write(number: int) -> None:
            os.pwrite(fd, block, number * len(block))
            os.fdatasync(fd)

        return [seconds(partial(write, number)) for number in range(PROBES)]
    finally:
        os.close(fd)


def _paced(log: LogStore, acks: Acks, rate: int) -> list[float]:
    """Every thread sends on its own beat, whatever has been answered; latencies of all of them."""
    one, beat, count = batch(1), THREADS / rate, int(rate * SECONDS / THREADS)
    latencies: list[float] = []
    answered = threading.Semaphore(0)
    begin = time.perf_counter() + 0.05

    def send(thread: int) -> None:
        for number in range(count):
            due = begin + (number + thread / THREADS) * beat
            time.sleep(max(0.0, due - time.perf_counter()))
            future = log.append("orders", (thread + number) % PARTITIONS, one, acks=acks)
            future.add_done_callback(partial(_note, due))

    def _note(due: float, done: Future[Any]) -> None:
        error = done.exception()
        latencies.append(time.perf_counter() - due if error is None else float("inf"))
        answered.release()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(count * THREADS):
        answered.acquire()
    return latencies
