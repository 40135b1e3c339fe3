"""Two processes that both believe they lead a bucket, where no file lock helps (R-1, R-3)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.log_store.checkpoints import clean_log
from sluice.log_store.claims import CLAIM_CHECK_S
from sluice.log_store.records import make_batch
from tests import counts
from tests.s3.bucket import CLAIMS, Bucket
from tests.support.harness import TOPIC, Process, boottime, our_rows, wait_until
from tests.support.history import Rows

Start = Callable[..., Process]

RACES = max(2, counts.LEADER_RACES // 3)
FENCED_WITHIN_S = CLAIM_CHECK_S + 20
"""A look at the claims may be a second old; the rest is for a busy machine."""
SHARED = [["each", "partition", "all", 0], ["spread", "topic", "all", 0]]
"""Idempotent producers that send the same sequences to both leaders, as clients that fail over do."""


PATIENT = {"claim_timeout_ms": 60_000}


def _spec(number: int, **settings: Any) -> dict[str, Any]:
    own = [[f"bare{number}", "plain", "1", 1], [f"whole{number}", "plain", "all", 1]]
    return {
        "partitions": 2,
        "producers": [*SHARED, *own],
        "settings": {"advertised_address": f"host-{number}:8080", "commit_interval_ms": 50} | settings,
    }


def test_by_force_from_another_machine(start: Start, bucket: Bucket, history: Path) -> None:
    """I-2, I-3, R-1: the loser is alive and producing; what either acknowledged with acks=all is there, once."""
    leader = start("machine-0", **_spec(0))
    leader.wait_for("ack", count=5, name="each")
    leader.wait_for("ack", count=5, name="whole0")
    for number in range(1, RACES + 1):
        successor = start(f"machine-{number}", force=True, **_spec(number))
        opened = successor.wait_for("opened")
        successor.wait_for("ack", count=3, name=f"whole{number}")
        _is_fenced(leader, opened, number)
        leader.kill()
        leader = successor
    leader.wait_for("ack", name="each")
    leader.wait_for("ack", name="spread")
    leader.stop()
    bucket.check(history, partitions=2, acks=lambda ack: ack["acks"] == "all")


def _is_fenced(loser: Process, successor: dict[str, Any], number: int) -> None:
    for name in ("each", "spread", f"bare{number - 1}", f"whole{number - 1}"):
        fenced = loser.wait_for("fenced", name=name)
        assert fenced["t"] - successor["t"] < FENCED_WITHIN_S, name
    refusal = loser.ask(f"produce {number}", "produced")
    assert refusal["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert refusal["leader"] == f"host-{number}:8080"
    read = loser.ask("read 0", "read")
    assert read["kind"] == "read", read
    assert read["rows"] == read["end"] > 0


def test_a_renewed_claim_is_never_taken_and_a_silent_one_only_after_the_time_out(
    start: Start, bucket: Bucket, history: Path, tmp_path: Path
) -> None:
    """R-1: the waiting process goes by the renewals it sees and by its own clock."""
    leader = start("machine-0", **_spec(0))
    leader.wait_for("ack", count=3, name="each")
    for number in (1, 2):
        refused = start(f"machine-{number}", to=tmp_path / f"refused-{number}.jsonl", **_spec(number, **PATIENT))
        assert refused.wait() == 3
        assert refused.events("refused")[0]["leader"] == "host-0:8080"
        assert not (tmp_path / f"machine-{number}").exists(), "whoever is refused leaves nothing behind"
    before = len(leader.events("ack", name="each"))
    leader.wait_for("ack", count=before + 3, name="each")
    assert not leader.events("fenced")
    leader.kill()
    heir = start("machine-3", **_spec(3))
    assert heir.wait_for("opened")["seconds"] >= CLAIMS["claim_timeout_ms"] / 1000
    heir.wait_for("ack", name="each")
    heir.wait_for("ack", name="whole3")
    heir.stop()
    bucket.check(history, partitions=2, acks=lambda ack: ack["acks"] == "all")


# --- a leader that was stopped -------------------------------------------------------------------------------

ZOMBIE: dict[str, Any] = {
    "partitions": 1,
    "producers": [["each", "partition", "all", 0], ["whole", "plain", "all", 0]],
    # Its own checkpoints must not come between: this one never reaches its tenth version… by much.
    "settings": {"checkpoint_interval_versions": 10_000},
}
VERSIONS = 40


def _take_over_and_clean(bucket: Bucket) -> tuple[int, Rows]:
    """Another machine waits the silent leader out, writes, checkpoints and cleans: (first version left, rows)."""
    begun = boottime()
    with bucket.lead("other", commit_interval_ms=0, checkpoint_interval_versions=10_000) as log:
        assert boottime() - begun >= CLAIMS["claim_timeout_ms"] / 1000
        partition = log.partition(TOPIC, 0)
        for number in range(VERSIONS):
            log.append(TOPIC, 0, make_batch([{"value": b"heir:%d:0" % number}], default_ms=1)).result(60)
            if number == VERSIONS // 2:
                partition.durability.checkpoint()
        newest = partition.durability.checkpoint()
        soon = time.time_ns() // 1_000_000 + 3_600_000
        cleaned = clean_log(log.runtime.store, partition.ref.folder, older_than_ms=soon, synced_version=newest)
        assert cleaned.versions > 0
        rows = our_rows(log)
    return bucket.versions()[0], rows


@pytest.mark.parametrize("step", [None, "before-commit"])
def test_a_stopped_leader_is_void_below_the_cleaned_log(
    start: Start, bucket: Bucket, history: Path, step: str | None
) -> None:
    """R-3: SIGSTOP beyond the time-out, a takeover that cleans the log, SIGCONT: nothing is acked or visible.

    Stopped right before its put, it goes on to create a version that nobody will ever see: the clock tells it.
    """
    fault = {} if step is None else {"fault": [step, 12, "SIGSTOP"], "fault_after_open": True}
    zombie = start("frozen", **ZOMBIE, **fault)
    if step is None:
        zombie.wait_for("ack", count=5, name="each")
        zombie.send(signal.SIGSTOP)
    wait_until(lambda: not zombie.alive or zombie.suspended(), "stopped")
    attempted = bucket.versions()[-1] + 1
    first_left, rows = _take_over_and_clean(bucket)
    assert first_left > attempted
    resumed_at = boottime()
    zombie.send(signal.SIGCONT)
    for name in ("each", "whole"):
        zombie.wait_for("fenced", name=name)
    taken_over_at = next(offset for offset, value in rows if value.startswith(b"heir"))
    late = [ack for ack in zombie.events("ack") if ack["t"] > resumed_at and ack["parts"]["0"] >= taken_over_at]
    assert late == []
    assert zombie.ask("produce 1", "produced")["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert zombie.ask("read 0", "read")["rows"] == len(rows)
    if step is not None:
        wait_until(lambda: attempted in bucket.versions(), "the put below the cleaned log")
    zombie.kill()
    assert bucket.delta_rows() == rows
    bucket.check(history)
