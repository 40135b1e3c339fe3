"""Spark sessions of the benchmarks, and what a piece of work in one costs: on the wall and in processor time.

The work is spread over the JVM and Python workers, so all descendants of this process are counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.harness import seconds
from sluice.conf.settings import SparkSettings
from sluice.conf.spark import spark_session
from sluice.streaming.source import SluiceDataSource


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    extra = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
    extra["spark.python.unix.domain.socket.enabled"] = "true"
    cores = min(2, os.cpu_count() or 2)
    spark = spark_session(SparkSettings(driver_memory="2g", master=f"local[{cores}]"), "sluice-bench", extra)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SluiceDataSource)
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True, slots=True)
class Spent:
    wall: float
    cpu: float


def spent(work: Callable[[], object]) -> Spent:
    before = cpu_seconds()
    wall = seconds(work)
    return Spent(wall, cpu_seconds() - before)


def in_turn(works: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[Spent]]:
    """Each once per round, because a machine changes with time. A first round warms up and is not counted."""
    found: dict[str, list[Spent]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            taken = spent(work)
            if number:
                found[name].append(taken)
    return found


def cpu_seconds() -> float:
    """Of this process and its descendants, those that have ended included; 0 where there is no /proc."""
    found = dict(_processes())
    mine, new = set[int](), {os.getpid()}
    while new:
        mine |= new
        new = {pid for pid, (parent, _) in found.items() if parent in mine} - mine
    return sum(found[pid][1] for pid in mine if pid in found) / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, tuple[int, int]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in brackets, may hold spaces and brackets.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        yield int(folder.name), (int(fields[1]), sum(map(int, fields[11:15])))
