"""Reading a whole topic: HTTP fetch and the Python reader against consumer-perf."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.data import VALUE_BYTES
from bench.harness import scratch
from bench.peers.clients import FETCH_THREADS
from bench.peers.filling import FILE_RECORDS, fill
from bench.peers.findings import KAFKA, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import Broker, broker
from bench.peers.service import TOPIC, Service, child
from bench.peers.sizes import PARTITIONS, Sizes

FETCH, TABLES, AS_JSON = "HTTP fetch, Arrow", "Python reader, tables", "HTTP fetch, JSON"
BATCHES, RECORDS = "Python reader, batches", "Python reader, record by record"
CODECS = ("none", "zstd")
FEW = "few"
"""The topic of those who make objects."""
ROWS = {FETCH: "fetch_arrow", TABLES: "reader_tables"}
OBJECTS = {AS_JSON: "fetch_json", BATCHES: "reader_batches", RECORDS: "reader_records"}
Key = tuple[str, str]


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "fetch",
        f"reading {sizes.fetch_records:,} × {VALUE_BYTES} B records from {PARTITIONS} partitions, one client process",
        {"kafka": KAFKA_VERSION, "records": sizes.fetch_records, "rounds": sizes.rounds}
        | {"records_where_python_makes_objects": sizes.fetch_objects},
        notes=[
            "consumer-perf: its rate while fetching (fetch.nMsg.sec); the seconds in which it joins its group are not"
            " counted. Each run is a JVM that starts cold: the more it reads, the less of that is in its rate",
            "consumer-perf makes an object of each record, and so do the reader's batches, its records one by one and"
            " HTTP fetch as JSON: these are the like for like. Rows of a table are only counted",
            f"where Python makes objects, {sizes.fetch_objects:,} records are read: it has no code to warm up",
            f"HTTP fetch: {FETCH_THREADS} requests at once",
            "both logs are in the page cache; Sluice stores zstd, Kafka what its producer sent; a first round, shorter"
            " for consumer-perf, is not counted",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        root = folder / "root"
        filled = fill(root, folder / "lines", sizes.fetch_records)
        few = fill(root, folder / "few", sizes.fetch_objects, topic=FEW)
        findings.notes.append(
            f"Sluice's records are in {len(filled.parquet)} files of up to {FILE_RECORDS:,}, as merging leaves them;"
            " many small files, before they are merged, read slower"
        )
        kafka = stack.enter_context(broker(folder / "kafka"))
        for codec in CODECS:
            kafka.console_produce(codec, filled.lines, filled.records, codec=codec)
        ours = Service(root, fsync=False)
        stack.callback(ours.server.stop)
        ours.start(topic="other")
        rates: dict[Key, list[float]] = {}
        for number in range(sizes.rounds + 1):
            theirs = filled.records if number else filled.records // 4  # the first one only touches everything
            runs: dict[Key, Callable[[], float]] = {
                (KAFKA, f"consumer-perf, {codec}"): partial(_theirs, kafka, codec, theirs) for codec in CODECS
            }
            runs |= {(SLUICE, name): partial(_ours, ours, job, TOPIC, filled.records) for name, job in ROWS.items()}
            runs |= {(SLUICE, name): partial(_ours, ours, job, FEW, few.records) for name, job in OBJECTS.items()}
            for key, one in sorted(runs.items(), reverse=number % 2 == 1):
                rate = one()
                if number:
                    rates.setdefault(key, []).append(rate)
    for side, what in runs:
        findings.add(side, what, "records/s", rates[side, what])
    compare(findings)
    return findings


def compare(findings: PeerFindings) -> None:
    for name in (*ROWS, *OBJECTS):
        for codec in CODECS:
            findings.compare(f"{name} / consumer-perf, {codec}", name, f"consumer-perf, {codec}")


def _theirs(kafka: Broker, topic: str, records: int) -> float:
    done = kafka.consume_perf(topic, records)
    if done.records < records:
        raise RuntimeError(f"consumer-perf read {done.records} of {records}")
    return done.records_per_s


def _ours(server: Service, job: str, topic: str, records: int) -> float:
    found = child("bench.peers.clients", {"do": job, "url": server.url, "topic": topic})
    if found["records"] != records:
        raise RuntimeError(f"{job} read {found['records']} of {records}")
    return float(records / found["seconds"])
