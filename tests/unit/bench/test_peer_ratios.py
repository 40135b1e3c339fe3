"""Which rows are compared with which: the default configuration beside every row of Kafka's that it can lose to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bench.peers import disk, fetch, latency, produce, recovery
from bench.peers.bodies import large_bodies
from bench.peers.findings import KAFKA, SLUICE, PeerFindings


def compared(
    compare: Callable[[PeerFindings], None], unit: str, ours: Iterable[str], theirs: Iterable[str]
) -> set[str]:
    findings = PeerFindings("x", "x", {})
    for side, names in ((SLUICE, ours), (KAFKA, theirs)):
        for name in names:
            findings.add(side, name, unit, [1.0])
    compare(findings)
    return {one.figure.what for one in findings.ratios}


def aims(pairs: list[tuple[str, str, object]]) -> dict[tuple[str, str], str]:
    return {(ours, theirs): str(target) for ours, theirs, target in pairs if target is not None}


@pytest.mark.parametrize("acks", ["all", "1"])
@pytest.mark.parametrize("fsync", ["fsync off", "fsync on"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_kind_of_produce_is_beside_every_codec_with_and_without_fsync(acks: str, fsync: str, codec: str):
    found = {(ours, theirs) for ours, theirs, _ in produce.pairs()}
    for name in (*produce.BODIES, produce.CLIENT):
        ours = f"{name}, acks={acks}, {fsync}"
        assert (ours, f"Kafka, {codec}, acks={acks}") in found
        large = (ours, f"Kafka, {codec}, batches of 1 MiB, acks={acks}")
        assert (large in found) == (acks == "all")


def test_produce_is_compared_by_what_is_measured():
    rows = [
        f"{n}, acks={a}, {f}" for n in (*produce.BODIES, produce.CLIENT) for a in ("all", "1") for f in produce.FSYNC
    ]
    theirs = [*produce.theirs_of("all"), *produce.theirs_of("1")]
    found = compared(produce.compare, "records/s", rows, theirs)
    assert {f"{name}, acks=all: fsync on / off" for name in (*produce.BODIES, produce.CLIENT)} <= found
    assert len(theirs) == 6


def test_every_body_of_the_load_is_a_row():
    assert [body.name for body in large_bodies()] == list(produce.BODIES)


def test_the_targets_of_produce_are_those_of_the_design():
    kafka = "Kafka, none, acks=all"
    assert aims(produce.pairs()) == {
        ("Arrow × 10,000, acks=all, fsync off", kafka): "≥ 3",
        ("JSON × 1,000, acks=all, fsync off", kafka): "≥ 1",
    }


@pytest.mark.parametrize("share", latency.SHARES)
@pytest.mark.parametrize("fsync", latency.FSYNC)
def test_an_acknowledgement_is_beside_the_same_of_kafka_and_one_that_does_not_linger(share: str, fsync: str):
    found = {(ours, theirs) for ours, theirs, _ in latency.pairs()}
    for acks in ("all", "1"):
        ours = f"Sluice, acks={acks}, {fsync}: {share}"
        assert (ours, f"Kafka, acks={acks}: {share}") in found
        assert (ours, f"Kafka, acks=all, linger.ms=0: {share}") in found
    assert (f"Sluice, acks=1, {fsync}: {share}", f"Kafka, acks=all: {share}") in found


def test_the_target_of_latency_is_that_of_the_design():
    assert aims(latency.pairs()) == {("Sluice, acks=1, fsync on: p99", "Kafka, acks=all: p99"): "≤ 1"}


def test_the_target_of_disk_is_merged_beside_the_producer_as_it_comes():
    ours = [disk.BEFORE, disk.MERGED, disk.DEEP, disk.MERGED + disk.ALL]
    findings = PeerFindings("disk", "x", {})
    for name in (*ours, *disk.THEIRS, disk.DEFAULT + disk.ALL):
        findings.add(SLUICE if name in ours else KAFKA, name, "B/record", [1.0])
    disk.compare(findings)
    aimed = [one.figure.what for one in findings.ratios if one.figure.target is not None]
    assert aimed == ["Sluice, merged / Kafka, zstd, default batches"]
    assert disk.THEIRS[disk.SAME_LEVEL] == (disk.THEIRS[disk.DEFAULT][0], disk.OUR_LEVEL)


def test_every_way_to_read_is_beside_both_codecs():
    found = compared(
        fetch.compare, "records/s", [*fetch.ROWS, *fetch.OBJECTS], ["consumer-perf, none", "consumer-perf, zstd"]
    )
    assert "HTTP fetch, JSON / consumer-perf, zstd" in found
    assert len(found) == 10


def test_a_recovery_is_beside_one_of_the_same_log():
    ours = [recovery.ON, recovery.OFF, recovery.ON + recovery.EMPTY, recovery.OFF + recovery.EMPTY]
    found = compared(recovery.compare, "s", ours, [recovery.THEIRS, recovery.THEIRS + recovery.EMPTY])
    assert found == {
        "Sluice, fsync on / Kafka",
        "Sluice, fsync off / Kafka",
        "Sluice, fsync on / Kafka, almost empty log",
        "Sluice, fsync off / Kafka, almost empty log",
    }
