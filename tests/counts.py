"""How often repeated tests repeat: the reduced counts of `make test` and the full ones of `make test-full`.

A third number is what the list of experiments asks for (docs/reliability.md), where that takes longer than all tests
may: `make experiments`.
"""

from __future__ import annotations

import os

_WISH = os.environ.get("SLUICE_TEST_FULL", "")
FULL = _WISH not in ("", "0")
ASKED = _WISH == "asked"


def _count(reduced: int, full: int, asked: int | None = None) -> int:
    if ASKED and asked is not None:
        return asked
    return full if FULL else reduced


KILLS = _count(15, 100, 200)
"""Processes killed with kill -9 during appends."""

S3_KILLS = _count(3, 30)
"""Processes killed with kill -9 during appends to a bucket."""

POWER_CUTS = _count(4, 20, 50)
"""File systems that lose their power during appends."""

RECOVERY_KILLS = _count(3, 10)
"""Kills in a row while the same log recovers."""

LEADER_RACES = _count(3, 30)
"""Rounds of two processes that both believe they lead."""

ZOMBIE_VERSIONS = _count(100, 300)
"""Versions that the log goes on while a leader is stopped (R-3)."""

CORRUPTIONS = _count(20, 200)
"""Random damages done to commit files, WAL entries and Parquet files."""

HYPOTHESIS_EXAMPLES = _count(30, 800)
"""Examples of one property."""

STATEFUL_STEPS = _count(30, 100)
"""Steps of one run of a stateful property."""

MANY_PARTITIONS = _count(1_000, 10_000)
"""Partitions of the test that idle ones cost nothing."""

FUZZ_BODIES = _count(1_000, 10_000)
"""Mutated request bodies given to each decoder."""

HOSTILE_BODIES = _count(1_000, 12_000)
"""Hostile bodies sent to the produce calls of a real service."""

HOSTILE_ADMIN_BODIES = _count(600, 6_000)
"""Hostile bodies sent to the calls that change topics, configs, tokens, quotas and files."""

HOSTILE_NAMES = _count(60, 600)
"""Hostile names, each put into every address that takes one."""

HOSTILE_HEADERS = _count(500, 3_000)
"""Requests with strange headers and framings."""

HOSTILE_CONNECTIONS = _count(300, 3_000, 10_000)
"""Small requests, right and wrong, on connections that behave badly."""

OPENAPI_EXAMPLES = _count(4, 60)
"""Generated requests for each operation of the OpenAPI document."""

GROUP_RUNS = _count(60, 1_000)
"""Runs of the consumer group machine with its simulated clients."""

GROUP_CHANGES = _count(30, 1_000)
"""Joins, leaves and crashes of real members of a consumer group."""

GROUP_RESTARTS = _count(2, 20, 50)
"""Kills of the service in the middle of their rebalances."""

GROUP_KILLS = _count(2, 20, 50)
"""Kills of the service while groups commit."""

SINK_CRASHES = _count(15, 500)
"""Crashes of the append of a sink's batches, in one process."""

SINK_KILLS = _count(2, 25)
"""Kills of a service with kill -9 while it appends batches of a sink."""

SPARK_JOB_KILLS = _count(1, 10)
"""Kills of the driver of a consumer job with kill -9."""

BUCKET_DRIVER_KILLS = _count(2, 10)
"""Kills of both kinds, alone and in a group, with the log in a bucket."""

DRIVER_KILLS = _count(2, 10)
"""Drivers of consumer jobs in a group killed with kill -9."""

JOB_KILLS = _count(12, 300)
"""Kills of a maintenance job with kill -9, between any two of its writes."""

SINK_DRIVER_KILLS = _count(2, 10)
"""Kills of a Spark driver, with its tasks, while a query writes to a sink."""

COMPACTION_KILLS = _count(4, 100)
"""Kills of the compaction job before or after one of its writes."""

JOB_RACES = _count(3, 100)
"""Rounds of retention and deep merge against a producer that never rests."""

COMPACTION_RUNS = _count(15, 400)
"""Runs of a log that is cleaned again and again, against a model."""

RETENTION_RACE_S = _count(6, 30, 600)
"""Seconds that retention races readers, with nothing else."""

STREAMS_RACE_S = _count(20, 20, 300)
"""Seconds that five Spark streams and their restarts race checkpoints and clean-ups."""

OUTAGE_S = _count(3, 20, 60)
"""Seconds in which a bucket lets nobody in."""

ZOMBIE_S = _count(0, 0, 30)
"""Seconds that a leader is stopped at least, while another one leads."""

JOB_RACE_S = _count(20, 300, 600)
"""Seconds that all jobs race producers and readers."""

SPARK_MAINTENANCE_KILLS = _count(1, 6)
"""Kills of each of the Spark jobs compaction, merge and mirror with kill -9."""

TORTURE_S = _count(45, 600)
"""Seconds in which everything goes wrong at once."""
