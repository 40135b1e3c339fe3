"""Bytes on disk for the same JSON orders: Kafka's log with zstd, ours as it is written, merged and deeply merged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bench.figures import REPOSITORY, at_most
from bench.growth import orders
from bench.harness import scratch, settings_for
from bench.peers.findings import KAFKA, OTHER, SLUICE, PeerFindings
from bench.peers.jars import KAFKA_VERSION
from bench.peers.kafka import BATCH_BYTES, ZSTD_LEVEL, Broker, broker
from bench.peers.service import TOPIC
from bench.peers.sizes import PARTITIONS, Sizes
from sluice.log_store.engine import LogStore
from sluice.log_store.records import TIMESTAMP
from sluice.log_store.topic import codec

REQUEST = 1_000
QUIET_MS, SETTLE_S, MERGE_S = 500, 3.0, 120.0
OUR_LEVEL = codec("producer")[1] or 0
BEFORE, MERGED, DEEP = "Sluice, as written", "Sluice, merged", "Sluice, deeply merged"
DEFAULT, LARGE = "Kafka, zstd, default batches", "Kafka, zstd, batches of 1 MiB"
SAME_LEVEL = f"Kafka, zstd level {OUR_LEVEL}, default batches"
THEIRS = {DEFAULT: (BATCH_BYTES, ZSTD_LEVEL), LARGE: (1 << 20, ZSTD_LEVEL), SAME_LEVEL: (BATCH_BYTES, OUR_LEVEL)}
"""batch.size and compression.zstd.level of each."""
ALL = ", with log and index files"


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "disk",
        f"bytes on disk per record, {sizes.disk_records:,} JSON orders over {PARTITIONS} partitions",
        {"kafka": KAFKA_VERSION, "records": sizes.disk_records, "records_per_request": REQUEST}
        | {"rounds": sizes.rounds},
        notes=[
            "the same orders in every round; where Kafka's producer ends a batch depends on its timing",
            f"Kafka: console-producer; zstd at its default level, {ZSTD_LEVEL}, with a batch.size of"
            f" {BATCH_BYTES >> 10} KiB, the default, and of 1 MiB, and at level {OUR_LEVEL} (compression.zstd.level),"
            " which Sluice takes for what it writes and merges by itself",
            "record timestamps are the time of sending on both sides",
            f"as written: one commit and file per request of {REQUEST:,} records; a busy service groups more into one",
            "with log and index files: blocks on disk; Kafka's indexes, our Delta log and state; files that a merge"
            " replaced are not counted, they stay for file.delete.delay.ms",
        ],
    )
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        kafka = stack.enter_context(broker(folder / "kafka"))
        for number in range(sizes.rounds):
            place = folder / f"round-{number}"
            place.mkdir()
            for key, value in _round(place, kafka, number, sizes.disk_records).items():
                found.setdefault(key, []).append(value)
            shutil.rmtree(place)
    for (side, what), rounds in found.items():
        findings.add(side, what, "B/record", rounds)
    compare(findings)
    return findings


def compare(findings: PeerFindings) -> None:
    for ours in (BEFORE, MERGED, DEEP):
        for theirs in THEIRS:
            target = at_most(0.8) if (ours, theirs) == (MERGED, DEFAULT) else None
            findings.compare(f"{ours} / {theirs}", ours, theirs, target)
    findings.compare(f"{MERGED} / {DEFAULT}{ALL}", MERGED + ALL, DEFAULT + ALL)


def _round(place: Path, kafka: Broker, number: int, records: int) -> dict[tuple[str, str], float]:
    """Bytes per record of each kind, once."""
    written, merged, lines = place / "written", place / "merged", place / "lines"
    found: dict[tuple[str, str], float] = {}

    def add(side: str, what: str, sizes: tuple[int, int]) -> None:
        found[side, what], found[side, what + ALL] = (size / records for size in sizes)

    raw = _append(written, lines, records, merge=False)
    _append(merged, lines, records, merge=True)
    found[OTHER, "JSON text"] = raw / records
    for index, (what, (batch, level)) in enumerate(THEIRS.items()):
        topic = f"orders-{number}-{index}"
        kafka.console_produce(topic, lines, records, codec="zstd", batch_bytes=batch, level=level)
        add(KAFKA, what, kafka.log_bytes(topic))
    add(SLUICE, BEFORE, _live_bytes(written))
    add(SLUICE, MERGED, _live_bytes(merged))
    _deep_merge(merged)
    add(SLUICE, DEEP, _live_bytes(merged))
    return found


def _append(root: Path, lines: Path, records: int, *, merge: bool) -> int:
    """Both the log and the lines for Kafka; the size of the text."""
    settings = settings_for(root, fsync=False, merge=merge)
    settings = replace(settings, log=replace(settings.log, merge_quiet_ms=QUIET_MS))
    size = 0
    with LogStore.open(settings) as log, lines.open("wb") as out:
        log.create_topic(TOPIC, partitions=PARTITIONS)
        for number in range(records // REQUEST):
            rows = _sent_now(orders(REQUEST, number))
            log.append(TOPIC, number % PARTITIONS, rows).result()
            values = rows.column("value").to_pylist()
            size += sum(map(len, values))
            out.write(b"\n".join(values) + b"\n")
        if merge:
            _until_merged(log)
    return size


def _sent_now(rows: pa.RecordBatch) -> pa.RecordBatch:
    """With the time of the request, as the service gives it to records without one and Kafka's producer to its own."""
    at = pa.scalar(int(time.time() * 1e6)).cast(TIMESTAMP)
    columns = [pa.array([at] * rows.num_rows, TIMESTAMP), *rows.columns[1:]]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _until_merged(log: LogStore) -> None:
    """What the service does in the background, until there is nothing left of it."""
    partitions = [log.partition(TOPIC, number) for number in range(PARTITIONS)]
    counters, pause = log.background.housekeeping.counters, threading.Event()
    deadline, seen = time.monotonic() + MERGE_S, (-1, -1)
    while (now := (counters.merges, sum(len(one.state.files) for one in partitions))) != seen:
        if time.monotonic() > deadline:
            raise RuntimeError("merging did not end")
        seen = now
        pause.wait(SETTLE_S)
    if not counters.merges:
        raise RuntimeError("nothing was merged")


def _live_bytes(root: Path) -> tuple[int, int]:
    """Of the live data files, and with everything else in the folders but data files that are no longer live."""
    with LogStore.open(settings_for(root, fsync=False, merge=False)) as log:
        partitions = [log.partition(TOPIC, number) for number in range(PARTITIONS)]
        live = {root / one.ref.folder / file.path: file.size for one in partitions for file in one.state.files}
        folders = [root / one.ref.folder for one in partitions]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    data = [file for file in files if file.parent in folders and file.suffix == ".parquet"]
    beside = set(files) - (set(data) - set(live))
    return sum(live.values()), sum(file.stat().st_blocks * 512 for file in beside)


def _deep_merge(root: Path) -> None:
    command = [sys.executable, "-m", "sluice.jobs", "run", "merge", "--root", str(root), "--include-active", "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"the deep merge ended with {done.returncode}: {done.stderr[-1000:]}")
    json.loads(done.stdout)
