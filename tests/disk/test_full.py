"""A disk that is really full: a clear error, no false ack, and all goes on without a restart once there is room."""

from __future__ import annotations

from typing import Any

import pytest

from tests.disk.conftest import Bench, need_ext4
from tests.support.harness import SMALL, Process, boottime, wait_until
from tests.support.history import History

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
# One request at a time: of a topic-addressed request one partition may be refused and the next request accepted there.
SPEC: dict[str, Any] = {"partitions": PARTITIONS, "producers": PRODUCERS, "depth": 1}
WAITING = [name for name, _, acks, _ in PRODUCERS if acks == "all"]
QUICK = [name for name, _, acks, _ in PRODUCERS if acks == "1"]
FULL = "the disk is full"
RESUME_S = 30.0
"""On a quiet machine it takes less than five; what is printed tells."""

# The WAL is not cut, so it needs new files all the time.
HOARDING = SMALL | {"sync_interval_ms": 600_000, "checkpoint_interval_versions": 10_000}


def _settings(bench: Bench, case: str) -> dict[str, Any]:
    """Mounts what the case needs; the folder that is to be full is `_full(bench, case)`."""
    if case == "both":
        bench.disks.mount_tmpfs(bench.root, 24)
        return SMALL
    if case == "ext4":
        need_ext4()
        bench.disks.mount_ext4(bench.root.with_suffix(".img"), bench.root, 32)
        return SMALL
    bench.disks.mount_tmpfs(bench.root, 64 if case == "wal" else 12)
    bench.disks.mount_tmpfs(bench.wal, 4 if case == "wal" else 32)
    return (HOARDING if case == "wal" else SMALL) | {"wal_dir": str(bench.wal)}


def _fill(bench: Bench, case: str) -> None:
    bench.disks.fill(bench.wal if case == "wal" else bench.root)


def _empty(bench: Bench, case: str) -> float:
    bench.disks.empty(bench.wal if case == "wal" else bench.root)
    return boottime()


def _until_all_are_told(bench: Bench, case: str, process: Process) -> None:
    """Fill again and again, because a service that stops gives room back, until every producer has its error."""
    names = WAITING if case == "root" else [*WAITING, *QUICK]

    def told() -> bool:
        _fill(bench, case)
        assert process.alive, process.errors()
        return all(any(FULL in e["text"] for e in process.events("error", name=name)) for name in names)

    wait_until(told, f"{FULL!r} told to all of {names}")


@pytest.mark.parametrize("case", ["both", "root", "wal", "ext4"])
def test_full_disk_and_room_again(bench: Bench, case: str) -> None:
    """Section 2, I-1: each request gets an error that says why; room comes back and so do the acks."""
    settings = _settings(bench, case)
    process = bench.start(settings=settings, **SPEC)
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)
    _until_all_are_told(bench, case, process)

    assert any(FULL in trouble for trouble in process.ask("troubles", "troubles")["troubles"])
    assert process.ask("read 0", "read")["rows"] > 0
    known = {"THROTTLING_QUOTA_EXCEEDED", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT", "OUT_OF_ORDER_SEQUENCE_NUMBER"}
    assert {event["error"] for event in process.events("error")} <= known
    if case == "root":
        count = len(process.events("ack", name="lone"))
        process.wait_for("ack", count=count + 3, name="lone")  # the WAL has room: acks=1 keeps its promise

    freed = _empty(bench, case)
    _acked_again(process, freed)
    wait_until(lambda: process.ask("troubles", "troubles")["troubles"] == [], "no troubles")
    process.stop()
    bench.judge(partitions=PARTITIONS, settings=settings)


def _acked_again(process: Process, since: float) -> None:
    for name, *_ in PRODUCERS:
        wait_until(
            lambda name=name: any(event["t"] > since for event in process.events("ack", name=name)),
            f"an ack for {name}",
            timeout_s=max(0.1, since + RESUME_S - boottime()),
        )
    slowest = max(min(e["t"] for e in process.events("ack", name=n) if e["t"] > since) for n, *_ in PRODUCERS)
    print(f"room to the last producer's first ack: {slowest - since:.2f} s")


@pytest.mark.parametrize("case", ["both", "root", "wal"])
def test_killed_while_the_disk_is_full(bench: Bench, case: str) -> None:
    """Section 2: a restart on the full disk works or says why not; a restart with room loses nothing."""
    settings = _settings(bench, case)
    spec = SPEC | {"settings": settings}
    process = bench.start(**spec)
    for name, *_ in PRODUCERS:
        process.wait_for("ack", name=name)
    _until_all_are_told(bench, case, process)
    process.kill()

    _fill(bench, case)
    again = bench.start(**spec)
    wait_until(lambda: not again.alive or again.events("opened"), "opened or given up")
    if not again.events("opened"):
        assert again.wait() == 1
        assert FULL in again.errors()
    again.kill()

    _empty(bench, case)
    last = bench.start(**spec)
    last.wait_for("opened")
    opened = boottime()
    _acked_again(last, opened)
    last.stop()
    verdict = bench.judge(partitions=PARTITIONS, settings=settings)
    assert verdict["acked"] > len(PRODUCERS)
    assert History.load(bench.history).of("error")
