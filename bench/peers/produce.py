"""Produce, flat out: bodies of the service against producer-perf."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.data import VALUE_BYTES
from bench.figures import Target, at_least
from bench.harness import scratch
from bench.http_bodies import Body
from bench.peers import karapace
from bench.peers.bodies import large_bodies, payload_file
from bench.peers.clients import PRODUCE_THREADS
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import BATCH_BYTES, FLAT_OUT, LINGER_MS, Broker, broker
from bench.peers.servers import Settling
from bench.peers.service import Service, child, service
from bench.peers.sizes import PARTITIONS, Sizes
from sluice.log_store.topic import codec

CODECS = ("none", "zstd")
ACKS = ("all", "1")
FSYNC = ("fsync off", "fsync on")
BODIES = ("Arrow × 10,000", "JSON × 1,000", "binary × 1,000")
CLIENT = "Arrow × 10,000 by the Python client"
LARGE_BATCH, LARGE_LINGER_MS = 1 << 20, 50
LARGE = ", batches of 1 MiB"
Key = tuple[str, str]
Runs = dict[Key, Callable[[str], float]]
"""What is measured on a topic of this name, that nobody has used."""


def theirs_of(acks: str) -> list[str]:
    """Kafka's rows: its producer as it comes and, for acks=all, with batches that are as large as a broker takes."""
    names = [f"Kafka, {kind}, acks={acks}" for kind in CODECS]
    return names + ([f"Kafka, {kind}{LARGE}, acks={acks}" for kind in CODECS] if acks == "all" else [])


def pairs() -> list[tuple[str, str, Target | None]]:
    """(ours, whose, target): each of our rows, without and with fsync, beside each of Kafka's with the same acks."""
    targets = {"Arrow × 10,000": at_least(3), "JSON × 1,000": at_least(1)}
    found: list[tuple[str, str, Target | None]] = []
    for acks in ACKS:
        for name in (*BODIES, CLIENT):
            for fsync in FSYNC:
                for theirs in theirs_of(acks):
                    asked = (acks, fsync, theirs) == ("all", "fsync off", "Kafka, none, acks=all")
                    found.append((f"{name}, acks={acks}, {fsync}", theirs, targets.get(name) if asked else None))
    return found


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "produce",
        f"produce of {VALUE_BYTES} B records to {PARTITIONS} partitions, flat out",
        {
            "kafka": KAFKA_VERSION,
            "partitions": PARTITIONS,
            "rounds": sizes.rounds,
            "records_per_run_of_producer_perf": sizes.produce_records,
            "seconds_per_run_of_sluice": sizes.produce_s,
            "requests_at_once_of_the_python_client": PRODUCE_THREADS,
        },
        notes=[
            "Kafka does not fsync: the targets beside it are for Sluice with fsync off; the ratios are there for fsync"
            " on, the default, as well",
            f"producer-perf: batch.size {BATCH_BYTES >> 10} KiB and linger.ms {LINGER_MS}, the defaults; batches of"
            f" 1 MiB, the most that a broker takes by default, with linger.ms {LARGE_LINGER_MS}",
            "producer-perf makes its batches while it runs, and its rate is that after a warm-up; the load against"
            " Sluice sends requests that were made before, but for those of the Python client, which encodes them, with"
            f" {PRODUCE_THREADS} requests at once",
            "the same JSON orders for both; producer-perf picks them from a file, which is cheaper for it than random"
            " bytes",
            "every run has a topic of its own; a first round of all, of half the length, is not counted; fsync on and"
            " off of one kind of body follow each other",
            "the topics of Sluice are deleted after their run, untimed, because their tails would be merged during"
            " somebody else's: merges within a run are in its figure, those after it are not",
            f"Sluice stores zstd level {codec('producer')[1]} whatever is sent; Kafka stores what its producer sends",
            karapace.line(),
        ],
    )
    rates: dict[Key, list[float]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        payload = payload_file(folder / "payload")
        kafka = stack.enter_context(broker(folder / "kafka"))
        off = stack.enter_context(service(folder / "off", fsync=False))
        on = stack.enter_context(service(folder / "on"))
        settle = Settling([kafka.server, off.server, on.server])
        short = replace(
            sizes,
            produce_records=sizes.produce_records // 2,
            warm_records=sizes.warm_records // 2,
            produce_s=sizes.produce_s / 2,
        )
        for number in range(sizes.rounds + 1):
            runs = _runs(kafka, payload, dict(zip(FSYNC, (off, on), strict=True)), sizes if number else short)
            # Every second round backwards: nobody is always the first after somebody else's work.
            for place, (key, one) in enumerate(reversed(runs.items()) if number % 2 else runs.items()):
                settle()
                rate = one(f"produce-{number}-{place}")
                if number:
                    rates.setdefault(key, []).append(rate)
    for side, what in sorted(rates, key=lambda key: ("acks=1" in key[1], key)):
        findings.add(side, what, "records/s", rates[side, what])
    findings.notes.append(settle.note)
    compare(findings)
    return findings


def _runs(kafka: Broker, payload: Path, services: dict[str, Service], sizes: Sizes) -> Runs:
    """In the order of one round: after each of Kafka's one kind of ours, without and with fsync."""
    kinds = {kind.name: kind for kind in large_bodies()}
    runs: Runs = {}
    for acks in ACKS:
        theirs = theirs_of(acks)
        for place, name in enumerate((*BODIES, CLIENT)):
            if place < len(theirs):
                runs[KAFKA, theirs[place]] = partial(_perf, kafka, payload, theirs[place], acks, sizes)
            for fsync, server in services.items():
                ours = (SLUICE, f"{name}, acks={acks}, {fsync}")
                if name == CLIENT:
                    runs[ours] = partial(_by_client, server, acks, sizes.produce_records)
                else:
                    runs[ours] = partial(_flat_out, server, kinds[name], acks, sizes.produce_s)
    return runs


def _perf(kafka: Broker, payload: Path, row: str, acks: str, sizes: Sizes, topic: str) -> float:
    kafka.make_topic(topic)
    settings = {"acks": acks, "compression_type": "zstd" if "zstd" in row else "none"}
    if LARGE in row:
        settings |= {"batch_size": str(LARGE_BATCH), "linger_ms": str(LARGE_LINGER_MS)}
    records, warm = sizes.produce_records, sizes.warm_records
    return kafka.produce_perf(topic, payload, records, warm=warm, rate=FLAT_OUT, **settings).records_per_s


def _flat_out(server: Service, body: Body, acks: str, seconds: float, topic: str) -> float:
    with server.own_topic(topic):
        found = server.load(body, seconds, acks=acks, topic=topic)
    return float(found["requests"] * body.records / found["seconds"])


def _by_client(server: Service, acks: str, records: int, topic: str) -> float:
    with server.own_topic(topic):
        order = {"do": "produce_arrow", "url": server.url, "topic": topic, "acks": acks, "records": records}
        found = child("bench.peers.clients", order)
    return float(found["records"] / found["seconds"])


def compare(findings: PeerFindings) -> None:
    for ours, theirs, target in pairs():
        findings.compare(f"{ours} / {theirs}", ours, theirs, target)
    for name in (*BODIES, CLIENT):
        off, on = (f"{name}, acks=all, {fsync}" for fsync in FSYNC)
        findings.compare(f"{name}, acks=all: fsync on / off", on, off, at_least(0.6))
