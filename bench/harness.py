"""Scratch folders on the disk of the repository, clusters in them, and watches."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bench.figures import REPOSITORY
from sluice.conf.settings import LogSettings, Settings, StorageSettings
from sluice.log_store.engine import LogStore

SCRATCH = REPOSITORY / "build" / "bench"


@contextmanager
def scratch() -> Iterator[Path]:
    SCRATCH.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def settings_for(root: Path, *, fsync: bool, commit_interval_ms: int = 0, merge: bool = True) -> Settings:
    return Settings(
        storage=StorageSettings(root=str(root), fsync=fsync),
        log=LogSettings(commit_interval_ms=commit_interval_ms, merge_enable=merge),
    )


@contextmanager
def cluster(root: Path, *, fsync: bool, commit_interval_ms: int = 0, merge: bool = True) -> Iterator[LogStore]:
    settings = settings_for(root, fsync=fsync, commit_interval_ms=commit_interval_ms, merge=merge)
    with LogStore.open(settings) as log:
        yield log


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def wall_and_cpu(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall, and of processor time in all threads: the second hardly notices a busy machine."""
    gc.collect()
    cpu = time.process_time()
    wall = seconds(work)
    return wall, time.process_time() - cpu


def append_orders(log: LogStore, rows: pa.RecordBatch, partition: int = 0) -> None:
    log.append("orders", partition, rows).result()
