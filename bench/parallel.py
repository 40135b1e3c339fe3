"""Eight partitions, batches of 10,000 records in flight, against bare Parquet files written by as many threads."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import batches
from bench.figures import Findings, at_least
from bench.harness import cluster, scratch, wall_and_cpu
from sluice.log_store.engine import LogStore
from sluice.log_store.parquet import empty_columns, writer_options
from sluice.log_store.pending import AppendResult
from sluice.log_store.records import STORED_SCHEMA, stored_table

RECORDS, PARTITIONS, IN_FLIGHT, ROUNDS, BATCHES = 10_000, 8, 4, 12, 120
THREADS = 4
"""Of the bare writer beside us."""
OFF, ON, ALONE, BARE = "ours, fsync off", "ours, fsync on", "ours, fsync off, merging off", "bare pyarrow"


def run() -> Findings:
    findings = Findings(
        "parallel",
        f"{PARTITIONS} partitions, batches of {RECORDS:,} × 100 B, acks=all, {IN_FLIGHT} in flight each",
        {
            "records": RECORDS,
            "batches_per_round": BATCHES,
            "partitions": PARTITIONS,
            "in_flight_per_partition": IN_FLIGHT,
            "threads": THREADS,
            "commit.interval.ms": 0,
            "compression": "zstd 1",
        },
        notes=[
            "bare pyarrow: the same tables, offsets included, with the writer options of log_store.parquet, "
            "one file per batch, no Delta log, no fsync",
            "processor time per record hardly depends on what else the machine does; the rates do",
        ],
    )
    rows = batches(16, RECORDS)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        logs = {}
        for name, fsync, merge in ((OFF, False, True), (ON, True, True), (ALONE, False, False)):
            logs[name] = stack.enter_context(cluster(folder / name, fsync=fsync, merge=merge))
            logs[name].create_topic("orders", partitions=PARTITIONS)
        (folder / "bare").mkdir()
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        work: dict[str, Callable[[], None]] = {name: partial(_produce, log, rows) for name, log in logs.items()}
        work[BARE] = partial(_write_bare, pool, folder / "bare", rows)
        wall: dict[str, list[float]] = {name: [] for name in work}
        cpu: dict[str, list[float]] = {name: [] for name in work}
        for number in range(ROUNDS + 1):
            for name, once in work.items():
                spent = wall_and_cpu(once)
                if number:  # the first round warms up
                    wall[name].append(spent[0])
                    cpu[name].append(spent[1])
    total = RECORDS * BATCHES
    for name in work:
        target = at_least(2.5) if name in (OFF, ALONE) else None
        findings.add(f"{name}: rate", "M records/s", [total / t / 1e6 for t in wall[name]], target)
        findings.add(f"{name}: processor time", "µs/record", [t / total * 1e6 for t in cpu[name]])
    for name in (OFF, ON, ALONE):
        target = at_least(0.6) if name in (OFF, ALONE) else None
        findings.ratio(f"rate of {name} / {BARE}", wall[BARE], wall[name], target)
        findings.ratio(f"records per processor second of {name} / {BARE}", cpu[BARE], cpu[name])
    findings.ratio("rate with fsync / without", wall[OFF], wall[ON], at_least(0.6))
    return findings


def _produce(log: LogStore, rows: list[pa.RecordBatch]) -> None:
    waiting: deque[Future[AppendResult]] = deque()
    for number in range(BATCHES):
        if len(waiting) == PARTITIONS * IN_FLIGHT:
            waiting.popleft().result()
        waiting.append(log.append("orders", number % PARTITIONS, rows[number % len(rows)]))
    for future in waiting:
        future.result()


def _write_bare(pool: ThreadPoolExecutor, folder: Path, rows: list[pa.RecordBatch]) -> None:
    def write(number: int) -> None:
        table = stored_table([rows[number % len(rows)]], number * RECORDS)
        path, options = folder / f"{uuid.uuid4().hex}.parquet", writer_options(empty=empty_columns(table))
        with pq.ParquetWriter(path, STORED_SCHEMA, **options) as writer:
            writer.write_table(table)

    for _ in pool.map(write, range(BATCHES)):
        pass
