"""How much of everything: the sizes whose figures count, and small ones that show that it works."""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int
    produce_records: int
    """Of one run of producer-perf, after its warm-up."""
    warm_records: int
    produce_s: float
    """Of one run of the load against the service."""
    latency_rate: int
    latency_s: float
    fetch_records: int
    """Of one run, of those that a tool of a cold JVM reads, and where no object is made of each."""
    fetch_objects: int
    """Where Python makes an object of each record."""
    spark_records: int
    disk_records: int
    recovery_bytes: int


FULL = Sizes(
    rounds=3,
    produce_records=2_000_000,
    warm_records=500_000,
    produce_s=2.5,
    latency_rate=2_000,
    latency_s=8.0,
    fetch_records=12_000_000,
    fetch_objects=3_000_000,
    spark_records=6_000_000,
    disk_records=400_000,
    recovery_bytes=1 << 30,
)
QUICK = Sizes(
    rounds=1,
    produce_records=100_000,
    warm_records=20_000,
    produce_s=1.0,
    latency_rate=500,
    latency_s=4.0,
    fetch_records=400_000,
    fetch_objects=100_000,
    spark_records=200_000,
    disk_records=40_000,
    recovery_bytes=16 << 20,
)
