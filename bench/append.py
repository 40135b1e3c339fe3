"""One producer, one partition, one batch of 1,000 records after the other, against stock delta-rs appends."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.data import batch
from bench.figures import Findings, at_least, percentile
from bench.harness import append_orders, cluster, scratch, seconds
from sluice.log_store.records import stored_table

RECORDS, ROUNDS, APPENDS = 1_000, 10, 20
OFF, ON, HELD, BY_PATH = "ours, fsync off", "ours, fsync on", "delta-rs, table held", "delta-rs, by path"


def run() -> Findings:
    findings = Findings(
        "append",
        f"{RECORDS:,} × 100 B per batch, sequential acks=all, one partition",
        {"records": RECORDS, "appends_per_round": APPENDS, "commit.interval.ms": 0, "compression": "zstd 1"},
        notes=[
            "delta-rs never calls fsync; 'table held' keeps one DeltaTable, 'by path' names the folder each time",
            "all four tables grow alike; delta-rs becomes slower with every version, ours does not",
        ],
    )
    rows = batch(RECORDS)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        appends: dict[str, Callable[[], object]] = {}
        for name, fsync in ((OFF, False), (ON, True)):
            log = stack.enter_context(cluster(folder / name, fsync=fsync))
            log.create_topic("orders", partitions=1)
            appends[name] = partial(append_orders, log, rows)
        appends[HELD] = _delta_appends(str(folder / "held"), rows, held=True)
        appends[BY_PATH] = _delta_appends(str(folder / "path"), rows, held=False)
        for append in appends.values():
            append()
        times = _times(appends)
    for name, rounds in times.items():
        findings.add(f"{name}: p50", "ms", [percentile(r, 50) * 1e3 for r in rounds])
        findings.add(f"{name}: p99", "ms", [percentile([t for r in rounds for t in r], 99) * 1e3])
        findings.add(f"{name}: rate", "records/s", [RECORDS * len(r) / sum(r) for r in rounds])
    p50 = {name: [percentile(r, 50) for r in rounds] for name, rounds in times.items()}
    for theirs in (HELD, BY_PATH):
        for ours in (OFF, ON):
            findings.ratio(f"p50 of {theirs} / {ours}", p50[theirs], p50[ours], at_least(5))
    return findings


def _delta_appends(path: str, rows: pa.RecordBatch, *, held: bool) -> Callable[[], None]:
    write_deltalake(path, stored_table([rows], 0), mode="append")
    target, number = (DeltaTable(path) if held else path), count(1)

    def append() -> None:
        write_deltalake(target, stored_table([rows], next(number) * RECORDS), mode="append")

    return append


def _times(appends: dict[str, Callable[[], object]]) -> dict[str, list[list[float]]]:
    times: dict[str, list[list[float]]] = {name: [] for name in appends}
    for _ in range(ROUNDS):
        for name, append in appends.items():
            gc.collect()
            times[name].append([seconds(append) for _ in range(APPENDS)])
    return times
