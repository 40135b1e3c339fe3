"""From the start of the process to the first acknowledged record, on an empty folder."""

from __future__ import annotations

import shutil

from bench.harness import scratch
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker
from bench.peers.service import TOPIC, Service
from bench.peers.sizes import Sizes

OURS, THEIRS = "Sluice, start to first ack", "Kafka, start to first ack"


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "start",
        "from the start of the process to the first record acknowledged with acks=all, new cluster, new topic",
        {"kafka": KAFKA_VERSION, "rounds": sizes.rounds},
        notes=[
            "a client that is there already asks every 5 ms; the topic is made by its first record",
            "formatting Kafka's folder (a process of its own) comes before and is not counted",
        ],
    )
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    with scratch() as folder:
        for _ in range(sizes.rounds):
            kafka, ours = Broker(folder / "kafka"), Service(folder / "root")
            try:
                times[THEIRS].append(kafka.start(TOPIC))
                kafka.server.stop()
                times[OURS].append(ours.start(TOPIC))
            finally:
                kafka.server.stop()
                ours.server.stop()
            shutil.rmtree(folder / "kafka")
            shutil.rmtree(folder / "root")
    findings.add(KAFKA, THEIRS, "s", times[THEIRS])
    findings.add(SLUICE, OURS, "s", times[OURS])
    findings.compare("Sluice / Kafka, start to first ack", OURS, THEIRS)
    return findings
