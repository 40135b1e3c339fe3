"""Produce, flat out: bodies of the service against producer-perf."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.data import VALUE_BYTES
from bench.figures import at_least
from bench.harness import scratch
from bench.http_bodies import Body
from bench.peers import karapace
from bench.peers.bodies import large_bodies, payload_file
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker, broker
from bench.peers.servers import settle
from bench.peers.service import TOPIC, Service, child, service
from bench.peers.sizes import PARTITIONS, Sizes

CODECS = ("none", "zstd")
ACKS = ("all", "1")
CLIENT = "Arrow × 10,000 by the Python client"
Runs = dict[tuple[str, str], Callable[[], float]]


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
        },
        notes=[
            "Kafka does not fsync: the ratios use Sluice with fsync off; with fsync on (the default) is printed too",
            "producer-perf makes its batches while it runs, and its rate is that after a warm-up; the load against"
            " Sluice sends requests that were made before, but for those of the Python client, which encodes them",
            "the same JSON orders for both; producer-perf picks them from a file, which is cheaper for it than random"
            " bytes",
            "before each run the servers have finished what the last one left them (merges, flushes), 10 s at most",
            "Sluice stores zstd level 1 whatever is sent; Kafka stores what its producer sends",
            karapace.line(),
        ],
    )
    rates: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        payload = payload_file(folder / "payload")
        kafka = stack.enter_context(broker(folder / "kafka"))
        off = stack.enter_context(service(folder / "off", fsync=False))
        on = stack.enter_context(service(folder / "on"))
        servers = (kafka.server, off.server, on.server)
        kafka.produce_perf("warm", payload, sizes.warm_records, warm=0, acks="all")
        for server in (off, on):
            server.load(large_bodies()[1], 0.5, acks="all")
        for number in range(sizes.rounds):
            runs: Runs = {}
            for acks in ACKS:
                for codec, (server, fsync) in zip(CODECS, ((off, "fsync off"), (on, "fsync on")), strict=True):
                    topic = f"produce-{codec}-{acks}-{number}"
                    measure = partial(_perf, kafka, payload, topic, codec, acks, sizes)
                    runs[KAFKA, f"Kafka, {codec}, acks={acks}"] = measure
                    runs |= _ours(server, fsync, acks, sizes)
            # Every second round backwards: nobody is always the first after somebody else's work.
            for key, one in reversed(runs.items()) if number % 2 else runs.items():
                settle(*servers)
                rates.setdefault(key, []).append(one())
    for side, what in sorted(rates, key=lambda key: ("acks=1" in key[1], key)):
        findings.add(side, what, "records/s", rates[side, what])
    _ratios(findings)
    return findings


def _perf(kafka: Broker, payload: Path, topic: str, codec: str, acks: str, sizes: Sizes) -> float:
    kafka.make_topic(topic)
    done = kafka.produce_perf(
        topic, payload, sizes.produce_records, warm=sizes.warm_records, acks=acks, compression_type=codec
    )
    return done.records_per_s


def _ours(server: Service, fsync: str, acks: str, sizes: Sizes) -> Runs:
    runs: Runs = {
        (SLUICE, f"{kind.name}, acks={acks}, {fsync}"): partial(_flat_out, server, kind, acks, sizes.produce_s)
        for kind in large_bodies()
    }
    runs[SLUICE, f"{CLIENT}, acks={acks}, {fsync}"] = partial(_by_client, server, acks, sizes.produce_records)
    return runs


def _flat_out(server: Service, body: Body, acks: str, seconds: float) -> float:
    found = server.load(body, seconds, acks=acks)
    return float(found["requests"] * body.records / found["seconds"])


def _by_client(server: Service, acks: str, records: int) -> float:
    order = {"do": "produce_arrow", "url": server.url, "topic": TOPIC, "acks": acks, "records": records}
    found = child("bench.peers.clients", order)
    return float(found["records"] / found["seconds"])


def _ratios(findings: PeerFindings) -> None:
    targets = {"Arrow × 10,000": at_least(3), "JSON × 1,000": at_least(1)}
    names = [*(kind.name for kind in large_bodies()), CLIENT]
    for acks in ACKS:
        for name in names:
            for codec in CODECS:
                target = targets.get(name) if (acks, codec) == ("all", "none") else None
                ours, theirs = f"{name}, acks={acks}, fsync off", f"Kafka, {codec}, acks={acks}"
                findings.compare(f"{ours} / {theirs}", ours, theirs, target)
    for name in names:
        ours, default = f"{name}, acks=all, fsync off", f"{name}, acks=all, fsync on"
        findings.compare(f"{default} / Kafka, none, acks=all", default, "Kafka, none, acks=all")
        findings.compare(f"{name}, acks=all: fsync on / off", default, ours, at_least(0.6))
