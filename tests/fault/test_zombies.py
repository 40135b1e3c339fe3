"""A leader that was stopped and comes back after the log went on without it (R-3)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sluice.log_store.checkpoints import clean_log
from sluice.log_store.engine import LogStore
from sluice.log_store.records import make_batch
from tests import counts
from tests.support.harness import (
    SMALL,
    TOPIC,
    Process,
    boottime,
    check,
    delta_rows,
    log_path,
    our_rows,
    settings_of,
    versions,
    wait_until,
)
from tests.support.history import Rows

Start = Callable[..., Process]

SPEC = {
    "partitions": 1,
    "producers": [["each", "partition", "all", 0], ["whole", "plain", "all", 0]],
    "settings": SMALL,
}


def _take_over_and_clean(root: Path) -> tuple[int, Rows]:
    """Another process leads, writes many versions, checkpoints and cleans the log: (first version left, rows)."""
    changes = SMALL | {"commit_interval_ms": 0, "checkpoint_interval_versions": 10_000}
    with LogStore.open(settings_of(str(root), **changes), force=True) as log:
        partition = log.partition(TOPIC, 0)
        for number in range(counts.ZOMBIE_VERSIONS):
            batch = make_batch([{"value": f"heir:{number}:0".encode()}], default_ms=1)
            log.append(TOPIC, 0, batch).result(60)
            if number == counts.ZOMBIE_VERSIONS // 2:
                partition.durability.checkpoint()
        newest = partition.durability.checkpoint()
        in_an_hour = time.time_ns() // 1_000_000 + 3_600_000
        assert (
            clean_log(log.runtime.store, partition.ref.folder, older_than_ms=in_an_hour, synced_version=newest).versions
            > 0
        )
        rows = our_rows(log)
    return versions(root)[0], rows


def _is_out(zombie: Process, resumed_at: float, rows: Rows) -> None:
    """Fenced at its next write. An answer that it gave before it was stopped may be noted only now, no other."""
    for name in ("each", "whole"):
        zombie.wait_for("fenced", name=name)
    taken_over_at = next(offset for offset, value in rows if value.startswith(b"heir"))
    assert [ack for ack in zombie.events("ack") if ack["t"] > resumed_at and ack["parts"]["0"] >= taken_over_at] == []
    assert zombie.ask("produce 1", "produced")["error"] == "NOT_LEADER_OR_FOLLOWER"


def _stopped_before_a_commit(start: Start) -> Process:
    """Armed only when nothing but this partition commits any more."""
    process = start(**SPEC)
    for name in ("each", "whole"):
        process.wait_for("ack", count=5, name=name)
    process.tell("arm before-commit 3 SIGSTOP")
    wait_until(lambda: not process.alive or process.suspended(), "stopped at the step")
    return process


def test_stopped_while_producing(start: Start, tmp_root: Path, history: Path) -> None:
    """R-3: SIGSTOP, a takeover that cleans the log, SIGCONT: nothing of the zombie's becomes visible or is acked."""
    zombie = start(**SPEC)
    zombie.wait_for("ack", count=20, name="each")
    zombie.send(signal.SIGSTOP)
    wait_until(zombie.suspended, "stopped")
    long_enough = boottime() + counts.ZOMBIE_S
    first_left, rows = _take_over_and_clean(tmp_root)
    wait_until(lambda: boottime() >= long_enough, "stopped for long enough")
    assert first_left > 0
    resumed_at = boottime()
    zombie.send(signal.SIGCONT)
    _is_out(zombie, resumed_at, rows)
    assert zombie.ask("read 0", "read")["rows"] == len(rows)
    zombie.kill()
    assert delta_rows(tmp_root) == rows
    check(tmp_root, history)


def test_stopped_between_the_check_and_the_put(start: Start, tmp_root: Path, history: Path) -> None:
    """R-3: its put-if-absent below the cleaned log succeeds; the version is void: invisible, and nobody is acked."""
    zombie = _stopped_before_a_commit(start)
    attempted = versions(tmp_root)[-1] + 1
    first_left, rows = _take_over_and_clean(tmp_root)
    assert first_left > attempted
    assert not log_path(tmp_root, attempted).exists()
    resumed_at = boottime()
    zombie.send(signal.SIGCONT)
    _is_out(zombie, resumed_at, rows)
    wait_until(log_path(tmp_root, attempted).exists, "the put below the cleaned log")
    zombie.kill()
    assert delta_rows(tmp_root) == rows
    check(tmp_root, history)


def test_stopped_between_the_check_and_the_put_without_a_cleaned_log(
    start: Start, tmp_root: Path, history: Path
) -> None:
    """I-2, I-3: the version was taken meanwhile, so the put loses and the reader of the winner is fenced."""
    zombie = _stopped_before_a_commit(start)
    with LogStore.open(settings_of(str(tmp_root), **SMALL), force=True) as log:
        log.append(TOPIC, 0, make_batch([{"value": b"heir:0:0"}], default_ms=1)).result(60)
        rows = our_rows(log)
    resumed_at = boottime()
    zombie.send(signal.SIGCONT)
    _is_out(zombie, resumed_at, rows)
    zombie.kill()
    assert delta_rows(tmp_root) == rows
    check(tmp_root, history)


def test_a_checkpoint_hint_that_goes_back(start: Start, tmp_root: Path, history: Path) -> None:
    """R-3, R-5: a leader stopped while it wrote a checkpoint sets `_last_checkpoint` back below the cleaned log."""
    leader = start(**SPEC)
    leader.wait_for("ack", count=60, name="each")
    hint = log_path(tmp_root, 0).with_name("_last_checkpoint")
    wait_until(hint.exists, "a checkpoint")
    leader.stop()
    old = hint.read_bytes()
    first_left, rows = _take_over_and_clean(tmp_root)
    assert json.loads(old)["version"] < first_left
    hint.write_bytes(old)
    with LogStore.open(settings_of(str(tmp_root), **SMALL)) as log:
        assert our_rows(log) == rows
        log.append(TOPIC, 0, make_batch([{"value": b"heir:1000:0"}], default_ms=1)).result(60)
    check(tmp_root, history)
