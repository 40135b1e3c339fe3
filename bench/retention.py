"""Retention of 10,000 segments: how long the decision takes, and how long until its one commit is durable."""

from __future__ import annotations

from pathlib import Path

from bench.figures import Findings, at_most
from bench.harness import cluster, scratch, seconds
from sluice.log_store import snapshot
from sluice.log_store.engine import LogStore
from sluice.log_store.log_shape import LogShape
from sluice.log_store.records import make_batch
from sluice.log_store.retention import Retention, decide_retention

SEGMENTS, ROUNDS = 10_000, 5
AT_ONCE = 500
"""Appends on their way at a time."""
HOUR = 3_600_000
COMMIT_S = 2.0


def run() -> Findings:
    findings = Findings(
        "retention",
        f"{SEGMENTS:,} segments past retention.ms go in one commit; fsync on",
        {"segments": SEGMENTS, "files": SEGMENTS, "fsync": True},
        notes=[
            "decide: the pure decision over the live files",
            "commit: checks of the plan, the commit file with all removals, and its sync; produce to the partition "
            "waits for the put only",
            "load: what a job does before it decides, from commits and checkpoint in storage",
        ],
    )
    times: dict[str, list[float]] = {"load": [], "decide": [], "commit": []}
    with scratch() as folder:
        for number in range(ROUNDS):
            _round(folder / str(number), times)
    findings.add("load the state", "s", times["load"])
    findings.add("decide", "s", times["decide"])
    findings.add("commit", "s", times["commit"], at_most(COMMIT_S))
    whole = [sum(parts) for parts in zip(*times.values(), strict=True)]
    findings.add("load, decide and commit", "s", whole)
    return findings


def _round(root: Path, times: dict[str, list[float]]) -> None:
    # The segments are built without syncs, which say nothing here; what is measured has them.
    with cluster(root, fsync=False, merge=False) as log:
        _fill(log)
    with cluster(root, fsync=True, merge=False) as log:
        led = log.partition("t", 0)
        led.prepare()
        times["load"].append(seconds(lambda: snapshot.load(log.runtime.store, led.ref.folder)))
        found: list[Retention] = []

        def decide() -> None:
            decided = decide_retention(LogShape.of(led.state), led.config, log.runtime.clock.wall_ms())
            assert decided is not None
            found.append(decided)

        times["decide"].append(seconds(decide))
        decided = found[0]
        assert len(decided.expired) == SEGMENTS
        times["commit"].append(seconds(lambda: led.apply_plan(decided.to_plan(led.state.version))))
        assert (led.log_start, led.state.files) == (SEGMENTS, [])


def _fill(log: LogStore) -> None:
    """One record, one file, one segment."""
    log.create_topic("t", configs={"segment.bytes": 14, "retention.ms": HOUR})
    old = log.runtime.clock.wall_ms() - 2 * HOUR
    batch = make_batch([{"value": b"x", "timestamp": old}], default_ms=old)
    for _ in range(SEGMENTS // AT_ONCE):
        for future in [log.append("t", 0, batch) for _ in range(AT_ONCE)]:
            future.result(60)
