"""kill -9 of a leader whose log is in a bucket: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import counts
from tests.s3.bucket import Bucket
from tests.support.harness import Process, boottime, wait_until

Start = Callable[..., Process]

PARTITIONS = 2
PRODUCERS = [
    ["each", "partition", "all", 0],
    ["leader", "partition", "1", 1],
    ["spread", "topic", "all", 0],
    ["quick", "topic", "1", 0],
    ["bare", "plain", "1", 0],
    ["whole", "plain", "all", 1],
]
STEPS = ("data-file-put", "before-commit", "after-commit", "logged", "applied", "replayed", "accepted", "answered")
KILLS_PER_ROOT = 10
STEP_S = 20.0
"""Within which an open log comes by each of its steps often enough; mostly it takes a second."""
SPEC: dict[str, Any] = {"partitions": PARTITIONS, "producers": PRODUCERS}
CASES = [
    (min(KILLS_PER_ROOT, counts.S3_KILLS - first), first // KILLS_PER_ROOT)
    for first in range(0, counts.S3_KILLS, KILLS_PER_ROOT)
]


@pytest.mark.parametrize(("kills", "seed"), CASES)
def test_kill_at_named_steps_and_at_random(start: Start, bucket: Bucket, history: Path, kills: int, seed: int) -> None:
    """I-1, I-2, R-2, section 2: with the WAL in a local folder acks=1 and acks=all survive, once, dense, in order."""
    dice = random.Random(seed)
    planned = met = 0
    for kill in range(kills):
        if kill % 4 == 3:
            process = start(**SPEC)
            process.wait_for("opened")
            _wait(process, 1.5 * dice.random())
        else:
            step = STEPS[(kill - kill // 4 + 3 * seed) % len(STEPS)]
            planned += 1
            process = start(fault=[step, dice.randint(5, 40), "SIGKILL"], **SPEC)
            wait_until(lambda p=process: not p.alive or p.events("opened"), "dead or open")
            _wait(process, 1 if step == "replayed" else STEP_S)
            met += not process.alive
        process.kill()
    process = start(**SPEC)
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)
    process.stop()
    assert met >= planned // 2, "most of the steps were never reached"
    verdict = bucket.check(history, partitions=PARTITIONS)
    assert verdict.acked > kills
    print(f"{kills} kills, {met} of {planned} at their step: {verdict}")


def _wait(process: Process, seconds: float) -> None:
    deadline = boottime() + seconds
    wait_until(lambda: not process.alive or boottime() > deadline, "dead or late")


def test_killed_while_it_recovers(start: Start, bucket: Bucket, history: Path) -> None:
    """R-2: kills in a row during the replay of a WAL into a bucket."""
    only_logged = [["bare", "plain", "1", 0], ["lone", "plain", "1", 1]]
    process = start(settings={"commit_interval_ms": 60_000}, partitions=PARTITIONS, producers=only_logged)
    for name, *_ in only_logged:
        process.wait_for("ack", count=8, name=name)
    process.kill()
    for fault in (["replayed", 2, "SIGKILL"], ["after-commit", 2, "SIGKILL"]):
        process = start(fault=fault, **SPEC)
        wait_until(lambda p=process: not p.alive or p.events("opened"), "killed in recovery")
        assert not process.alive, "the step was never reached"
    process = start(**SPEC)
    assert process.wait_for("opened")["replayed"]
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)
    process.stop()
    bucket.check(history, partitions=PARTITIONS)
