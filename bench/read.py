"""A sequential scan of a partition through its checked reader, against plain pyarrow over the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench.data import batch
from bench.figures import Findings, at_least
from bench.harness import cluster, scratch, wall_and_cpu
from sluice.log_store.engine import LogStore

ROUNDS = 15
SHAPES = {"200 files of 10,000": (200, 10_000), "8 files of 250,000": (8, 250_000)}
OURS, DATASET, TABLES = "PartitionReads.scan", "pyarrow.dataset", "pq.read_table"


def run() -> Findings:
    findings = Findings(
        "read",
        "sequential scan of 2 M × 100 B records",
        {"shapes": {name: {"files": files, "rows": rows} for name, (files, rows) in SHAPES.items()}, "readahead": 2},
        notes=[
            "ours checks footers, pages and offsets and yields batches in order; the others check nothing",
            "pyarrow.dataset: to_batches in order with its own readahead; pq.read_table: file after file, as one table",
            "files in the page cache; scans never use the tail cache",
        ],
    )
    for shape, (files, rows) in SHAPES.items():
        _measure(findings, shape, files, rows)
    return findings


def _measure(findings: Findings, shape: str, files: int, rows: int) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        log = stack.enter_context(cluster(folder, fsync=False, merge=False))
        log.create_topic("orders", partitions=1)
        for seed in range(files):
            log.append("orders", 0, batch(rows, seed % 20)).result()
        paths = _paths(folder, log)
        assert len(paths) == files
        total = files * rows
        work: dict[str, Callable[[], int]] = {
            OURS: lambda: _count(log.reads("orders", 0).scan()),
            DATASET: lambda: _count(ds.dataset(paths, format="parquet").to_batches()),
            TABLES: lambda: sum(pq.read_table(path).num_rows for path in paths),
        }
        wall: dict[str, list[float]] = {name: [] for name in work}
        cpu: dict[str, list[float]] = {name: [] for name in work}
        for number in range(ROUNDS + 1):
            for name, once in work.items():
                counted: list[int] = []
                spent = wall_and_cpu(partial(_note_count, once, counted))
                assert counted == [total]
                if number:
                    wall[name].append(spent[0])
                    cpu[name].append(spent[1])
    for name in work:
        findings.add(f"{shape}: {name}", "M records/s", [total / t / 1e6 for t in wall[name]])
        findings.add(f"{shape}: {name}, processor time", "µs/record", [t / total * 1e6 for t in cpu[name]])
    for theirs in (DATASET, TABLES):
        findings.ratio(f"{shape}: rate of {OURS} / {theirs}", wall[theirs], wall[OURS], at_least(0.9))
        findings.ratio(f"{shape}: records per processor second / {theirs}", cpu[theirs], cpu[OURS])


def _paths(root: Path, log: LogStore) -> list[str]:
    partition = log.partition("orders", 0)
    return [str(root / partition.ref.folder / file.path) for file in partition.state.files]


def _count(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(rows.num_rows for rows in batches)


def _note_count(once: Callable[[], int], counted: list[int]) -> None:
    counted.append(once())
