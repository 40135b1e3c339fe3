"""Back after kill -9: from the start of the process until every partition takes a record again.

Twice: with much in the log, and as a control with almost nothing in it, where only the start and what the system waits
for are left.
"""

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
from bench.peers.kafka import SESSION_TIMEOUT_S, Broker
from bench.peers.probes import wrong_ends
from bench.peers.servers import in_turns
from bench.peers.service import TOPIC, Service, child
from bench.peers.sizes import PARTITIONS, Sizes

MIB = 1 << 20
FIRST = "first"
"""The topic of the first start: the records of the other one are all counted."""
THEIRS, ON, OFF = "Kafka", "Sluice, fsync on", "Sluice, fsync off"
EMPTY = ", almost empty log"
"""One batch of the client."""


def run(sizes: Sizes) -> PeerFindings:
    records = sizes.recovery_bytes // VALUE_BYTES // BATCH * BATCH
    findings = PeerFindings(
        "recovery",
        f"after kill -9 with {sizes.recovery_bytes / MIB:,.0f} MiB of records in {PARTITIONS} partitions: start to the"
        " first record acknowledged in each",
        {"kafka": KAFKA_VERSION, "records": records, "partitions": PARTITIONS, "rounds": sizes.rounds}
        | {"records_of_the_almost_empty_log": BATCH},
        notes=[
            "killed right after the last acknowledgement (acks=all), started again at once, files in the page cache;"
            " every round on a new folder",
            f"Kafka waits for {SESSION_TIMEOUT_S} s of its time, whatever is in its log (broker.session.timeout.ms, the"
            " default): the controller, which is the same process here, takes the killed broker for alive that long"
            " and refuses the new one (KAFKA-19130 spares that only those that were shut down in order). What its log"
            f" costs is the difference to the rows with an almost empty log ({BATCH:,} records)",
            "Sluice's records are in Parquet files before acks=all is answered: of its write-ahead log nothing is left"
            " to write after the kill. Its counterpart, a full write-ahead log that is in no table yet, is in"
            " [growth](#growth)",
            "after each start the end offset of each partition is what it was before the kill and the records of the"
            " probes, exactly, on both sides: one record more or less, and there is no figure",
            "Kafka's records are not compressed: its log is as large as the records; Sluice stores zstd",
        ],
    )
    times: dict[tuple[str, str], list[float]] = {}
    with scratch() as folder:
        payload = payload_file(folder / "payload")
        sides: dict[tuple[str, str], Callable[[Path], float]] = {}
        for suffix, count in (("", records), (EMPTY, BATCH)):
            sides |= _sides(suffix, payload, count)
        for key, measure in in_turns(sides, sizes.rounds):
            place = folder / "place"
            try:
                times.setdefault(key, []).append(measure(place))
            finally:
                shutil.rmtree(place, ignore_errors=True)
    for side, what in sides:
        findings.add(side, what, "s", times[side, what])
    compare(findings)
    return findings


def compare(findings: PeerFindings) -> None:
    for suffix in ("", EMPTY):
        for ours in (ON, OFF):
            findings.compare(f"{ours} / {THEIRS}{suffix}", ours + suffix, THEIRS + suffix)


def _sides(suffix: str, payload: Path, records: int) -> dict[tuple[str, str], Callable[[Path], float]]:
    return {
        (KAFKA, THEIRS + suffix): lambda place: _theirs(place, payload, records),
        (SLUICE, OFF + suffix): lambda place: _ours(place, records, fsync=False),
        (SLUICE, ON + suffix): lambda place: _ours(place, records, fsync=True),
    }


def _theirs(place: Path, payload: Path, records: int) -> float:
    kafka = Broker(place)
    try:
        kafka.start(FIRST)
        kafka.make_topic(TOPIC)
        kafka.produce_perf(TOPIC, payload, records, warm=0, acks="all")
        return _killed(kafka, records)
    finally:
        kafka.server.stop()


def _ours(place: Path, records: int, *, fsync: bool) -> float:
    ours = Service(place / "root", fsync=fsync)
    try:
        ours.start(FIRST)
        ours.make_topic(TOPIC)
        order = {"do": "produce_arrow", "url": ours.url, "topic": TOPIC, "acks": "all", "records": records}
        child("bench.peers.clients", order)
        return _killed(ours, records)
    finally:
        ours.server.stop()


def _killed(one: Broker | Service, records: int) -> float:
    before = one.ends(TOPIC)
    if sum(before) != records:
        raise RuntimeError(f"{records} records were acknowledged, {sum(before)} are there before the kill")
    one.server.kill()
    took = one.start(TOPIC, PARTITIONS)
    if wrong := wrong_ends(before, one.ends(TOPIC), one.probes):
        raise RuntimeError(f"{type(one).__name__} after kill -9: {wrong}")
    return took
