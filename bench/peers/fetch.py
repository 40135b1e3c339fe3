"""Reading a whole topic: HTTP fetch and the Python reader against consumer-perf."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.data import VALUE_BYTES
from bench.harness import scratch
from bench.peers.filling import fill
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker, broker
from bench.peers.service import TOPIC, Service, child
from bench.peers.sizes import PARTITIONS, Sizes

FETCH, TABLES = "HTTP fetch, Arrow", "Python reader, tables"
BATCHES, RECORDS = "Python reader, batches", "Python reader, record by record"
CODECS = ("none", "zstd")
JOBS = {FETCH: "fetch_arrow", TABLES: "reader_tables", BATCHES: "reader_batches", RECORDS: "reader_records"}


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "fetch",
        f"reading {sizes.fetch_records:,} × {VALUE_BYTES} B records from {PARTITIONS} partitions, one client process",
        {"kafka": KAFKA_VERSION, "records": sizes.fetch_records, "rounds": sizes.rounds},
        notes=[
            "consumer-perf: its rate while fetching (fetch.nMsg.sec); the seconds in which it joins its group are not"
            " counted",
            "HTTP fetch: four requests at once, rows as Arrow tables; so are the reader's tables; its batches hold"
            " an object for each record",
            "both logs are in the page cache; Sluice stores zstd, Kafka what its producer sent",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        root = folder / "root"
        filled = fill(root, folder / "lines", sizes.fetch_records)
        kafka = stack.enter_context(broker(folder / "kafka"))
        for codec in CODECS:
            kafka.console_produce(codec, filled.lines, codec=codec)
        ours = Service(root, fsync=False)
        stack.callback(ours.server.stop)
        ours.start(topic="other")
        runs: dict[tuple[str, str], Callable[[], float]] = {
            (KAFKA, f"consumer-perf, {codec}"): partial(_theirs, kafka, codec, filled.records) for codec in CODECS
        }
        runs |= {(SLUICE, name): partial(_ours, ours, job, filled.records) for name, job in JOBS.items()}
        rates: dict[tuple[str, str], list[float]] = {key: [] for key in runs}
        for number in range(sizes.rounds + 1):
            for key, one in sorted(runs.items(), reverse=number % 2 == 1):
                rate = one()
                if number:  # the first round fills the page cache
                    rates[key].append(rate)
    for (side, what), rounds in rates.items():
        findings.add(side, what, "records/s", rounds)
    for name in JOBS:
        for codec in CODECS:
            findings.compare(f"{name} / consumer-perf, {codec}", name, f"consumer-perf, {codec}")
    return findings


def _theirs(kafka: Broker, topic: str, records: int) -> float:
    done = kafka.consume_perf(topic, records)
    if done.records < records:
        raise RuntimeError(f"consumer-perf read {done.records} of {records}")
    return done.records_per_s


def _ours(server: Service, job: str, records: int) -> float:
    found = child("bench.peers.clients", {"do": job, "url": server.url, "topic": TOPIC})
    if found["records"] != records:
        raise RuntimeError(f"{job} read {found['records']} of {records}")
    return float(records / found["seconds"])
