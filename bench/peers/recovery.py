"""Back after kill -9 with much in the log: from the start of the process until every partition takes a record again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from bench.data import VALUE_BYTES
from bench.harness import scratch
from bench.peers.bodies import payload_file
from bench.peers.clients import BATCH
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker
from bench.peers.service import TOPIC, Service, child
from bench.peers.sizes import PARTITIONS, Sizes

MIB = 1 << 20
THEIRS, ON, OFF = "Kafka", "Sluice, fsync on", "Sluice, fsync off"


def run(sizes: Sizes) -> PeerFindings:
    records = sizes.recovery_bytes // VALUE_BYTES // BATCH * BATCH
    findings = PeerFindings(
        "recovery",
        f"after kill -9 with {sizes.recovery_bytes / MIB:,.0f} MiB of records in {PARTITIONS} partitions: start to the"
        " first record acknowledged in each",
        {"kafka": KAFKA_VERSION, "records": records, "partitions": PARTITIONS, "rounds": sizes.rounds},
        notes=[
            "killed right after the last acknowledgement (acks=all), started again at once, files in the page cache;"
            " every round on a new folder",
            "after each start the end offsets are compared with what was acknowledged: nothing was lost on either side",
            "Kafka's records are not compressed: its log is as large as the records; Sluice stores zstd",
        ],
    )
    times: dict[tuple[str, str], list[float]] = {}
    with scratch() as folder:
        payload = payload_file(folder / "payload")
        sides: dict[tuple[str, str], Callable[[Path], float]] = {
            (KAFKA, THEIRS): lambda place: _theirs(place, payload, records),
            (SLUICE, OFF): lambda place: _ours(place, records, fsync=False),
            (SLUICE, ON): lambda place: _ours(place, records, fsync=True),
        }
        for number in range(sizes.rounds):
            for key, measure in sorted(sides.items(), reverse=number % 2 == 1):
                place = folder / "place"
                try:
                    times.setdefault(key, []).append(measure(place))
                finally:
                    shutil.rmtree(place, ignore_errors=True)
    for (side, what), rounds in times.items():
        findings.add(side, what, "s", rounds)
    for ours in (ON, OFF):
        findings.compare(f"{ours} / {THEIRS}", ours, THEIRS)
    return findings


def _theirs(place: Path, payload: Path, records: int) -> float:
    kafka = Broker(place)
    try:
        kafka.start("first")
        kafka.make_topic(TOPIC)
        kafka.produce_perf(TOPIC, payload, records, warm=0, acks="all")
        kafka.server.kill()
        took = kafka.start(TOPIC, PARTITIONS)
        _check("Kafka", kafka.records(TOPIC), records)
    finally:
        kafka.server.stop()
    return took


def _ours(place: Path, records: int, *, fsync: bool) -> float:
    ours = Service(place / "root", fsync=fsync)
    try:
        ours.start(TOPIC)
        order = {"do": "produce_arrow", "url": ours.url, "topic": TOPIC, "acks": "all", "records": records}
        child("bench.peers.clients", order)
        ours.server.kill()
        took = ours.start(TOPIC, PARTITIONS)
        _check("Sluice", ours.records(), records)
    finally:
        ours.server.stop()
    return took


def _check(who: str, found: int, acknowledged: int) -> None:
    if found < acknowledged:
        raise RuntimeError(f"{who} lost records: {found} of {acknowledged} are there")
