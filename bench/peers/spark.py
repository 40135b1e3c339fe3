"""Spark's batch reads of one topic: our source, Spark's own Kafka source, and a Parquet scan of the same rows."""

from __future__ import annotations

from contextlib import ExitStack

from bench.data import VALUE_BYTES
from bench.figures import at_least
from bench.harness import scratch
from bench.peers.filling import FILE_RECORDS, fill
from bench.peers.findings import KAFKA, OTHER, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION, spark_kafka_jars
from bench.peers.kafka import broker
from bench.peers.service import TOPIC, child
from bench.peers.sizes import PARTITIONS, Sizes

OURS, PARQUET = "Sluice source", "Parquet scan"
LABELS = {
    "sluice": (SLUICE, OURS),
    "kafka, none": (KAFKA, "Kafka source, none"),
    "kafka, zstd": (KAFKA, "Kafka source, zstd"),
    "parquet": (OTHER, PARQUET),
}


def run(sizes: Sizes) -> PeerFindings:
    source = spark_kafka_jars()
    findings = PeerFindings(
        "spark",
        f"Spark on local[2] reads {sizes.spark_records:,} × {VALUE_BYTES} B records of {PARTITIONS} partitions",
        {
            "kafka": KAFKA_VERSION,
            "records": sizes.spark_records,
            "records_per_file": FILE_RECORDS,
            "rounds": sizes.rounds,
            "sink": "noop",
            "jars_of_the_kafka_source": source.names,
        },
        notes=[
            "the same four columns (key, value, offset, timestamp) of the same records; one session; a first round of"
            " each is not counted",
            "spark.python.unix.domain.socket.enabled = true, as docs/spark.md advises",
            "the broker runs beside Spark on the same cores, as it must; our source needs no service to read",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        filled = fill(folder / "root", folder / "lines", sizes.spark_records)
        kafka = stack.enter_context(broker(folder / "kafka"))
        for codec in ("none", "zstd"):
            kafka.console_produce(codec, filled.lines, filled.records, codec=codec)
        order = {
            "bootstrap": kafka.address,
            "root": str(folder / "root"),
            "topic": TOPIC,
            "parquet": filled.parquet,
            "jars": [str(jar) for jar in source.jars],
            "scratch": str(folder / "spark"),
            "rounds": sizes.rounds,
        }
        found = child("bench.peers.spark_reads", order, timeout_s=600)
    wrong = {name: count for name, count in found["counts"].items() if count != filled.records}
    if wrong:
        raise RuntimeError(f"{filled.records} records were written, but read were {wrong}")
    for name, (side, label) in LABELS.items():
        rates = [filled.records / spent for spent in found["seconds"][name]]
        findings.add(side, label, "records/s", rates)
    findings.compare(f"{OURS} / {PARQUET}", OURS, PARQUET, at_least(0.9))
    findings.compare(f"{OURS} / Kafka source, none", OURS, "Kafka source, none", at_least(3))
    findings.compare(f"{OURS} / Kafka source, zstd", OURS, "Kafka source, zstd")
    return findings
