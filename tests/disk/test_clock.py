"""A wall clock that jumps by an hour and back, or does not hold still: order and claims do not care (R-13)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from sluice.conf.settings import ClusterSettings
from sluice.log_store.claims import Leadership, claim_leadership
from sluice.log_store.clock import ManualClock
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import NotLeader
from sluice.log_store.store import open_store
from sluice.log_store.sweep import SweepChoice
from tests.support.faulty_store import FaultyStore
from tests.support.harness import SMALL, Process, check, table_path, versions
from tests.support.logs import Cluster, append, append_one_by_one, batch, eventually, folder_cluster, stamp, values

HOUR_S = 3600
JUMPS = [HOUR_S, -HOUR_S]
JITTER = [0.4, -0.9, 1.3, -0.7, 0.2, -0.3]
"""A clock that is set again and again, a little."""
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    changes = {"file_delete_delay_ms": 60_000, "json_retention_ms": 60_000, "producer_id_expiration_ms": 1_800_000}
    with folder_cluster(tmp_root, fsync=True, checkpoint_interval_versions=10_000, **changes) as cluster:
        yield cluster


def _stamps(log: LogStore, topic: str) -> list[int]:
    pieces = log.reads(topic, 0).scan(readahead=0)
    return [ms for piece in pieces for ms in piece.column("timestamp").cast("int64").to_pylist()]


@pytest.mark.parametrize("jumps", [[HOUR_S], [-HOUR_S], [HOUR_S, -HOUR_S], [-HOUR_S, HOUR_S], JITTER])
def test_offsets_and_append_times_never_go_back(cluster: Cluster, jumps: list[float]) -> None:
    """I-1: dense offsets, monotone append times, across the jump, a crash after it and a restart in order."""
    log = cluster.open()
    log.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    answers = []
    for jump in (0, *jumps):
        cluster.clock.jump(jump)
        for _ in range(3):
            cluster.clock.advance(0.01)
            answers.append(append(log, "t", 0, batch("x")))
        log = cluster.crash()
        answers.append(append(log, "t", 0, batch("x")))
        log = cluster.reopen()
    assert [answer.base_offset for answer in answers] == list(range(len(answers)))
    times = [answer.append_ms for answer in answers]
    assert times == sorted(times)
    assert _stamps(log, "t") == [ms * 1000 for ms in times]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_producer_window_outlives_the_jump(cluster: Cluster, jump: int) -> None:
    """R-13: a repeat is still known as one; only a confirmed clock lets windows expire."""
    log = cluster.open()
    log.create_topic("t")
    producer, _ = log.new_producer("partition")
    first = append(log, "t", 0, batch("x"), stamp=stamp(producer, 0))
    cluster.clock.jump(jump)
    log.partition("t", 0).checkpoint()
    again = append(log, "t", 0, batch("x"), stamp=stamp(producer, 0))
    assert again.duplicate
    assert again.base_offset == first.base_offset
    assert append(log, "t", 0, batch("y"), stamp=stamp(producer, 1)).base_offset == 1

    log.runtime.wall.confirm()
    cluster.clock.advance(2 * HOUR_S + 60)
    log.partition("t", 0).checkpoint()
    assert log.partition("t", 0).windows.get(producer) is None


@pytest.mark.parametrize("jump", JUMPS)
def test_deletion_pauses_until_confirmed(cluster: Cluster, jump: int) -> None:
    """R-13: neither removed files nor old versions go by a clock that jumped."""
    log = cluster.open(settings=None)
    log.create_topic("t")
    append_one_by_one(log, "t", "abcdef")
    partition = log.partition("t", 0)
    from sluice.log_store.merger import merge_once

    small = {file.path for file in partition.state.files}
    assert merge_once(partition, partition.config, quiet=True) is not None
    folder = table_path(Path(cluster.settings.storage.root), 0, "t")
    for _ in range(3):
        partition.checkpoint()
        append_one_by_one(log, "t", "x")

    cluster.clock.jump(jump)
    partition.checkpoint()
    assert log.background.housekeeping.sweep(partition).removed == ()
    assert small <= {path.name for path in folder.glob("*.parquet")}
    assert versions(Path(cluster.settings.storage.root), topic="t")[0] == 0

    log.runtime.wall.confirm()
    cluster.clock.advance(2 * HOUR_S)
    assert set(log.background.housekeeping.sweep(partition).removed) == small
    assert values(log, "t")[:6] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_a_paused_sweep_of_a_quiet_partition_comes_back(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-13: nobody writes to it any more, and still its removed files go once the clock is confirmed."""
    with folder_cluster(tmp_root, merge_enable=True, merge_quiet_ms=1000, file_delete_delay_ms=60_000) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abc")
        cluster.tick(1)
        eventually(lambda: len(log.partition("t", 0).state.files) == 1)
        cluster.clock.jump(HOUR_S)
        housekeeping = log.background.housekeeping
        counters, sweep, swept = housekeeping.counters, housekeeping.sweep, []

        def counted(*arguments: Any, **options: Any) -> SweepChoice:
            choice = sweep(*arguments, **options)
            swept.append(choice)
            return choice

        monkeypatch.setattr(housekeeping, "sweep", counted)

        def twice() -> bool:
            cluster.tick(61)
            return len(swept) >= 2

        eventually(twice)
        assert counters.removed_deleted == 0
        log.runtime.wall.confirm()

        def gone() -> bool:
            cluster.tick(61)
            return counters.removed_deleted == 3

        eventually(gone)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_claim_ends_neither_early_nor_late(jump: int) -> None:
    """R-1, R-13: 15 s without a renewal by the boottime clock, whatever the date says."""
    store, clock, cancelled = FaultyStore(open_store("memory://")), ManualClock(), threading.Event()
    settings = ClusterSettings(claim_renew_ms=10, claim_timeout_ms=15_000)

    def claim() -> Leadership:
        return claim_leadership(store, clock, settings, wal_uuid=lambda: "w", cancelled=cancelled)

    claim()
    won: list[int] = []
    waiting = threading.Thread(target=lambda: won.append(claim().epoch), daemon=True)
    looks = store.counts["get"]
    waiting.start()
    eventually(lambda: store.counts["get"] >= looks + 3)
    clock.jump(jump)
    clock.advance(14.9)
    waiting.join(0.2)
    assert waiting.is_alive(), "the claim ended early"
    clock.advance(0.2)
    waiting.join(60)
    assert won == [2], "the claim ended late"
    cancelled.set()
    with pytest.raises(NotLeader):
        claim()


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime was not found: run `make test-tools`")
@pytest.mark.parametrize("jumps", [JUMPS, JUMPS[::-1], JITTER])
def test_a_real_process_whose_clock_jumps(tmp_root: Path, tmp_path: Path, jumps: list[float]) -> None:
    """The same in a service of its own: dense offsets, monotone append times, one leader, nothing deleted."""
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    fake = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }
    within = ["env", *(f"{name}={value}" for name, value in fake.items())]
    settings = SMALL | {"file_delete_delay_ms": 60_000, "json_retention_ms": 60_000, "claim_renew_ms": 100}
    producers = [["each", "partition", "all", 0], ["bare", "plain", "1", 0]]
    history, other = tmp_path / "history.jsonl", tmp_path / "other.jsonl"
    process = Process(tmp_root, history, within=within, producers=producers, settings=settings)
    try:
        for total in accumulate(jumps, initial=0.0):
            offset.write_text(f"{total:+.3f}\n")
            for name, *_ in producers:
                process.wait_for("ack", count=len(process.events("ack", name=name)) + 30, name=name)
            if abs(total) >= HOUR_S:
                rival = Process(tmp_root, other, settings=settings)
                assert rival.wait() == 3, "a second process leads"
                rival.kill()
        process.stop()
    finally:
        process.kill()
    assert check(tmp_root, history).acked >= 180
    commits = [json.loads(line) for version in versions(tmp_root) for line in _lines(tmp_root, version)]
    times = [c["commitInfo"]["sluice"]["ms"] for c in commits if "ms" in c.get("commitInfo", {}).get("sluice", {})]
    assert times == sorted(times)
    if jumps[0] >= HOUR_S:
        assert max(times) - min(times) > HOUR_S * 900, "the clock of the process did not jump"
    assert versions(tmp_root)[0] == 0
    folder = table_path(tmp_root, 0)
    assert all((folder / c["remove"]["path"]).exists() for c in commits if "remove" in c)


def _lines(root: Path, version: int) -> list[bytes]:
    return (table_path(root, 0) / "_delta_log" / f"{version:020d}.json").read_bytes().splitlines()
