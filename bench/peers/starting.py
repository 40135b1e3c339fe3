"""From the start of the process to the first acknowledged record, on an empty folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bench.harness import scratch
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker
from bench.peers.servers import LOOK_S, in_turns
from bench.peers.service import TOPIC, Service
from bench.peers.sizes import Sizes

OURS, THEIRS = "Sluice, start to first ack", "Kafka, start to first ack"


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "start",
        "from the start of the process to the first record acknowledged with acks=all, new cluster, new topic",
        {"kafka": KAFKA_VERSION, "rounds": sizes.rounds},
        notes=[
            f"a client that is there already asks every {LOOK_S * 1000:g} ms; the topic is made by its first record",
            "formatting Kafka's folder (a process of its own) comes before and is not counted",
        ],
    )
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    kinds: dict[str, Callable[[Path], Broker | Service]] = {THEIRS: Broker, OURS: Service}
    with scratch() as folder:
        for who, kind in in_turns(kinds, sizes.rounds):
            one = kind(folder / "data")
            try:
                times[who].append(one.start(TOPIC))
            finally:
                one.server.stop()
            shutil.rmtree(folder / "data")
    findings.add(KAFKA, THEIRS, "s", times[THEIRS])
    findings.add(SLUICE, OURS, "s", times[OURS])
    findings.compare("Sluice / Kafka, start to first ack", OURS, THEIRS)
    return findings
