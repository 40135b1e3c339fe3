"""kill -9 between any two steps: nothing acknowledged is lost, nothing is there twice, offsets stay dense."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import counts
from tests.support.harness import SMALL, Process, boottime, check, first_ack_seconds, wait_until
from tests.support.history import History

Start = Callable[..., Process]

PARTITIONS = 3
PRODUCERS = [
    ["each", "partition", "all", 0],
    ["leader", "partition", "1", 1],
    ["spread", "topic", "all", 0],
    ["quick", "topic", "1", 0],
    ["bare", "plain", "1", 0],
    ["whole", "plain", "all", 1],
    ["lone", "plain", "1", 2],
]
STEPS = ("accepted", "logged", "data-file-put", "before-commit", "after-commit", "applied", "answered", "replayed")
KILLS_PER_ROOT = 15
RESTART_S = 5.0
"""Of every restart at full counts; else of most, for a few may meet a machine that is busy with something else."""
STEP_S = 15.0
"""Within which an open log comes by each of its steps often enough; mostly it takes a fraction of a second."""
SPEC: dict[str, Any] = {"partitions": PARTITIONS, "producers": PRODUCERS}


def _roots(share: int) -> list[int]:
    """Kills per root: a root that was killed a hundred times would spend its time on reading its own tables."""
    whole, rest = divmod(share, KILLS_PER_ROOT)
    return [KILLS_PER_ROOT] * whole + ([rest] if rest else [])


FSYNC_OFF = counts.KILLS // 4
CASES = [(True, kills, seed) for seed, kills in enumerate(_roots(counts.KILLS - FSYNC_OFF))]
CASES += [(False, kills, 100 + seed) for seed, kills in enumerate(_roots(FSYNC_OFF))]


@pytest.mark.parametrize(("fsync", "kills", "seed"), CASES)
def test_kill_at_every_step_and_at_random(
    start: Start, tmp_root: Path, history: Path, fsync: bool, kills: int, seed: int
) -> None:
    """I-1, I-2, section 2: acknowledged lost 0, duplicates 0, gaps 0, order kept, first ack soon after a restart."""
    dice = random.Random(seed)
    spec = SPEC | {"settings": SMALL | {"fsync": fsync}}
    planned = met = 0
    for kill in range(kills):
        if kill % 3 == 2:
            _killed_at_random(start(**spec), dice)
        else:
            step = STEPS[(kill - kill // 3 + seed) % len(STEPS)]
            planned += 1
            met += _killed_at(step, start(fault=[step, dice.randint(1, 60), "SIGKILL"], **spec), dice)
    _finish(start(**spec))
    assert met >= planned // 2, "most of the steps were never reached"
    verdict = check(tmp_root, history, partitions=PARTITIONS)
    assert verdict.acked > kills
    times = first_ack_seconds(History.load(history))
    since_open, since_start = (sorted(column) for column in zip(*times, strict=True))
    print(
        f"restart to first ack, worst of {len(times)}: {since_open[-1]:.2f} s, "
        f"with the interpreter {since_start[-1]:.2f} s"
    )
    assert since_open[-1 if counts.FULL else len(times) // 2] < RESTART_S


def _killed_at(step: str, process: Process, dice: random.Random) -> bool:
    """By its own hand; by ours when the step does not come, as it does when there is nothing to replay."""
    wait_until(lambda: not process.alive or process.events("opened"), "dead or open")
    deadline = boottime() + (dice.random() if step == "replayed" else STEP_S)
    wait_until(lambda: not process.alive or boottime() > deadline, "dead or late")
    by_itself = not process.alive
    process.kill()
    return by_itself


def _killed_at_random(process: Process, dice: random.Random) -> None:
    process.wait_for("opening")
    deadline = boottime() + dice.choice((0.1, 0.3, 1.0)) * dice.random()
    wait_until(lambda: not process.alive or boottime() > deadline, "its time")
    process.kill()


def _finish(process: Process) -> None:
    """Every producer gets an answer, then all ends in order."""
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)
    process.stop()


@pytest.mark.parametrize("fsync", [True, False])
def test_killed_again_and_again_while_it_recovers(start: Start, tmp_root: Path, history: Path, fsync: bool) -> None:
    """R-2: three kills in a row during the replay of a WAL, then all is as if there had been none."""
    dice = random.Random(7)
    spec = SPEC | {"settings": SMALL | {"fsync": fsync, "commit_interval_ms": 400, "sync_interval_ms": 600_000}}
    process = start(**spec)
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)
    process.wait_for("ack", count=40, acks="1")
    process.kill()
    for kill in range(counts.RECOVERY_KILLS):
        fault = ["replayed", 1 + kill, "SIGKILL"] if kill % 3 < 2 else ["after-commit", dice.randint(1, 6), "SIGKILL"]
        process = start(fault=fault, **spec)
        wait_until(lambda p=process: not p.alive or p.events("opened"), "killed in recovery")
        process.kill()
    _finish(start(**spec))
    check(tmp_root, history, partitions=PARTITIONS)


def test_maintenance_between_crash_and_restart(start: Start, tmp_root: Path, history: Path) -> None:
    """R-2: an offline job claims a new epoch but appends nothing, so the WAL's tail still belongs to the log."""
    slow = SMALL | {"commit_interval_ms": 60_000, "sync_interval_ms": 600_000}
    spec = {"partitions": 1, "producers": [["bare", "plain", "1", 0], ["leader", "partition", "1", 0]]}
    process = start(settings=slow, **spec)
    process.wait_for("ack", count=30)
    process.kill()
    assert process.events("ack", acks="1")
    job = start(purpose="maintenance", settings=SMALL)
    job.wait_for("opened")
    job.kill()
    again = start(purpose="maintenance", settings=SMALL)
    again.wait_for("opened")
    again.stop()
    last = start(settings=SMALL, **spec)
    last.wait_for("ack", name="bare")
    last.wait_for("ack", name="leader")
    last.stop()
    assert check(tmp_root, history).acked >= 30
