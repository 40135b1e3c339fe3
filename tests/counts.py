"""How often repeated tests repeat: the reduced counts of `make test` and the full ones of `make test-full`."""

from __future__ import annotations

import os

FULL = os.environ.get("SLUICE_TEST_FULL", "") not in ("", "0")


def _count(reduced: int, full: int) -> int:
    return full if FULL else reduced


KILLS = _count(15, 100)
"""Processes killed with kill -9 during appends."""

S3_KILLS = _count(5, 30)
"""Processes killed with kill -9 during appends to a bucket."""

RECOVERY_KILLS = _count(3, 10)
"""Kills in a row while the same log recovers."""

LEADER_RACES = _count(5, 30)
"""Rounds of two processes that both believe they lead."""

CORRUPTIONS = _count(20, 200)
"""Random damages done to commit files, WAL entries and Parquet files."""

HYPOTHESIS_EXAMPLES = _count(50, 1_000)
"""Examples of one property."""

STATEFUL_STEPS = _count(30, 100)
"""Steps of one run of a stateful property."""

MANY_PARTITIONS = _count(1_000, 10_000)
"""Partitions of the test that idle ones cost nothing."""

FUZZ_BODIES = _count(2_000, 10_000)
"""Mutated request bodies given to each decoder."""

HTTP_BODIES = _count(200, 10_000)
"""Hostile bodies sent to each produce call over HTTP."""
