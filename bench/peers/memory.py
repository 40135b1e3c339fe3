"""Memory of the two servers, after the start and under load."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.data import VALUE_BYTES
from bench.harness import scratch
from bench.peers.bodies import large_bodies, payload_file
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import broker
from bench.peers.servers import in_turns
from bench.peers.service import service
from bench.peers.sizes import PARTITIONS, Sizes

IDLE, PEAK = "after the first record", "peak under load"


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "memory",
        f"resident memory of the server, {PARTITIONS} partitions, {VALUE_BYTES} B records",
        {"kafka": KAFKA_VERSION, "kafka_heap": "-Xms1G -Xmx1G", "rounds": sizes.rounds},
        notes=[
            "a fresh server in every round; the peak is what the system saw (VmHWM)",
            "load: producer-perf without compression; Arrow, JSON and binary bodies, one kind after the other;"
            " acks=all, fsync on",
            "the page cache, which Kafka leaves its log to, is not counted for either",
        ],
    )
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        payload = payload_file(folder / "payload")
        runs = {KAFKA: partial(_theirs, folder, payload, sizes), SLUICE: partial(_ours, folder, sizes)}
        for side, one in in_turns(runs, sizes.rounds):
            for moment, size in zip((IDLE, PEAK), one(), strict=True):
                found.setdefault((side, f"{side.capitalize()}, {moment}"), []).append(size)
    for (side, what), rounds in found.items():
        findings.add(side, what, "MiB", rounds)
    for moment in (IDLE, PEAK):
        findings.compare(f"Sluice / Kafka, {moment}", f"Sluice, {moment}", f"Kafka, {moment}")
    return findings


def _theirs(folder: Path, payload: Path, sizes: Sizes) -> tuple[float, float]:
    with broker(folder / "kafka") as kafka:
        idle = kafka.server.rss_mib
        kafka.produce_perf("load", payload, sizes.produce_records, warm=0, acks="all")
        return idle, kafka.server.peak_mib


def _ours(folder: Path, sizes: Sizes) -> tuple[float, float]:
    with service(folder / "root") as ours:
        idle = ours.server.rss_mib
        for body in large_bodies():
            ours.load(body, sizes.produce_s, acks="all")
        peak = ours.server.peak_mib
    shutil.rmtree(folder / "root", ignore_errors=True)
    return idle, peak
