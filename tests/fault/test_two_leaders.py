"""Two processes that both believe they lead: offsets hold one value each, the loser is fenced and says so."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sluice.log_store.engine import LogStore
from tests import counts
from tests.support.harness import (
    NEVER_SYNCED,
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
from tests.support.history import History, values_of

Start = Callable[..., Process]

PARTITIONS = 2
FENCED_WITHIN_S = 1.0 if counts.FULL else 20.0
"""From its successor's claim on: it looks at the claims before each of its commits. 20 s are for a busy machine."""
# Long enough between commits that a leader that loses has acknowledged something with acks=1 only.
SETTINGS = SMALL | {"commit_interval_ms": 100}
SHARED = [["each", "partition", "all", 0], ["spread", "topic", "all", 0]]
"""Idempotent producers that send the same sequences to both leaders, as clients that fail over do."""


def _spec(number: int) -> dict[str, Any]:
    own = [
        [f"bare{number}", "plain", "1", 1],
        [f"whole{number}", "plain", "all", 1],
        [f"both{number}", "plain", "1", 0],
    ]
    return {
        "partitions": PARTITIONS,
        "producers": [*SHARED, *own],
        "settings": SETTINGS | {"advertised_address": f"host-{number}:8080"},
    }


def test_the_loser_is_fenced_and_every_offset_holds_one_value(start: Start, tmp_root: Path, history: Path) -> None:
    """I-2, I-3, R-1, R-2: takeovers by force from leaders that are alive and producing."""
    leader = start(**_spec(0))
    leader.wait_for("ack", count=5, name="bare0")
    leader.wait_for("ack", count=5, name="each")
    for number in range(1, counts.LEADER_RACES + 1):
        successor = start(force=True, **_spec(number))
        opened = successor.wait_for("opened")
        successor.wait_for("ack", count=2, name=f"bare{number}")
        successor.wait_for("ack", count=2, name=f"whole{number}")
        _is_fenced(leader, _claimed_at(tmp_root, opened["epoch"]), number)
        leader.kill()
        leader = successor
    leader.wait_for("ack", name="each")
    leader.wait_for("ack", name="spread")
    leader.stop()
    last = start(**_spec(counts.LEADER_RACES + 1))
    last.wait_for("opened")
    last.stop()
    # With acks=all an answer holds for good, whoever gave it; with acks=1 it holds or its loss was reported.
    check(tmp_root, history, partitions=PARTITIONS, acks=lambda ack: ack["acks"] == "all")
    _tails_are_kept_or_reported(tmp_root, history)
    written, orphans = _files(tmp_root)
    print(f"{len(orphans)} of {len(written)} data files are named by no commit")
    assert len(orphans) <= PARTITIONS * counts.LEADER_RACES, "more than what each loser had in its hands"


def _files(root: Path) -> tuple[set[Path], set[Path]]:
    """Data files, and those among them that a loser had written when it lost its commit."""
    written, named = set[Path](), set[Path]()
    for number in range(PARTITIONS):
        folder = log_path(root, 0, number).parent.parent
        written |= set(folder.glob("*.parquet"))
        for commit in folder.glob("_delta_log/*.json"):
            named |= {folder / name for name in re.findall(r'"add":{"path":"([^"]+)"', commit.read_text())}
    return written, written - named


def _claimed_at(root: Path, epoch: int) -> float:
    """When the claim was put, by the clock of the history: opening goes on for a while after it."""
    put_at = (root / "_sluice" / "claims" / f"{epoch:020d}.json").stat().st_mtime
    return put_at - (time.time() - boottime())


def _is_fenced(loser: Process, claimed_at: float, number: int) -> None:
    for name in ("each", "spread", f"bare{number - 1}", f"whole{number - 1}"):
        fenced = loser.wait_for("fenced", name=name)
        assert fenced["t"] - claimed_at < FENCED_WITHIN_S, name
        assert fenced["leader"] in ("", f"host-{number}:8080")
    refusal = loser.ask(f"produce {number}", "produced")
    assert refusal["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert refusal["leader"] == f"host-{number}:8080"
    # A fenced process goes on serving reads, of what its successor writes too.
    read = loser.ask("read 0", "read")
    assert read["kind"] == "read", read
    assert read["rows"] == read["end"] > 0
    assert loser.ask("troubles", "troubles")["fenced"]


def _tails_are_kept_or_reported(root: Path, path: Path) -> None:
    history = History.load(path)
    report = "\n".join(finding for opened in history.of("opened") for finding in opened["findings"])
    _tails_are_kept_or_reported_in(root, history, report, PARTITIONS)


def _tails_are_kept_or_reported_in(root: Path, history: History, text: str, partitions: int) -> None:
    tables = {number: dict(delta_rows(root, number)) for number in range(partitions)}
    aside = [
        (int(p), int(first), int(last))
        for p, first, last in re.findall(rf"{TOPIC}-(\d+) \(offsets (\d+)\.\.(\d+)\)[^\n]*kept aside", text)
    ]
    missing = 0
    for ack in history.of("ack", acks="1"):
        ((partition, base),) = ((int(p), base) for p, base in ack["parts"].items())
        for index, value in enumerate(values_of(ack["name"], ack["number"])):
            if tables[partition].get(base + index) != value:
                missing += 1
                assert any(p == partition and low <= base + index <= high for p, low, high in aside), (ack, aside)
    kept = list((root / "_sluice").glob("wal*/cut/*.wal"))
    assert bool(kept) == bool(aside)
    assert missing == 0 or kept


def test_a_torn_commit_of_the_winner_is_not_filled_with_the_losers_tail(
    start: Start, tmp_root: Path, history: Path
) -> None:
    """R-2, I-10: both died, the winner's first commit is torn: its own WAL rebuilds it, the loser's is set aside."""
    loser = start(producers=[["bare", "plain", "1", 0]], settings=NEVER_SYNCED | {"commit_interval_ms": 60_000})
    loser.wait_for("ack", count=20)
    loser.tell("limit 0")
    changes = NEVER_SYNCED | {"claim_renew_ms": 100}
    winner = start(producers=[["whole", "plain", "all", 0]], settings=changes, force=True, limit=20)
    winner.wait_for("ack", count=20)
    epoch = winner.events("opened")[0]["epoch"]
    loser.kill()
    # Once the old holder is gone the new leader takes the lock, so that its own death is seen at once.
    renewal = tmp_root / "_sluice" / "claims" / f"{epoch:020d}.renewal"
    wait_until(lambda: b'"locked":true' in renewal.read_bytes(), "the lock changed hands")
    winner.kill()
    torn = next(
        v for v in versions(tmp_root) if re.search(rf'"path":"\d{{20}}-{epoch}-', log_path(tmp_root, v).read_text())
    )
    log_path(tmp_root, torn).write_bytes(b"")
    with LogStore.open(settings_of(str(tmp_root), **NEVER_SYNCED)) as log:
        report = "\n".join(map(str, log.report.findings))
    assert "kept aside" in report
    assert f"version {torn}" in report
    check(tmp_root, history, acks=lambda ack: ack["acks"] == "all")
    _tails_are_kept_or_reported_in(tmp_root, History.load(history), report, partitions=1)


def test_a_lost_tail_is_lost_as_a_whole(start: Start, tmp_root: Path, history: Path) -> None:
    """R-2: the winner wrote less than the loser's tail holds; what stands behind the winner's end is not merged."""
    slow = NEVER_SYNCED | {"commit_interval_ms": 60_000}
    loser = start(producers=[["bare", "plain", "1", 0]], settings=slow, limit=8, depth=1)
    loser.wait_for("ack", count=8)
    winner = start(producers=[["whole", "plain", "all", 0]], settings=NEVER_SYNCED, force=True, limit=4, depth=1)
    winner.wait_for("ack", count=4)
    # The first batch of the idle partition was committed at once; one of the others begins where the winner ended.
    end = winner.events("ack")[-1]["parts"]["0"] + 2
    assert end in [ack["parts"]["0"] for ack in loser.events("ack")]
    loser.kill()
    winner.stop()
    with LogStore.open(settings_of(str(tmp_root), **NEVER_SYNCED)) as log:
        report = "\n".join(map(str, log.report.findings))
        assert len(our_rows(log)) == end
    assert report.count("kept aside") == 1
    check(tmp_root, history, acks=lambda ack: ack["acks"] == "all")
    _tails_are_kept_or_reported_in(tmp_root, History.load(history), report, partitions=1)
