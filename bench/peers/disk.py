"""Bytes on disk for the same JSON orders: Kafka's log with zstd, ours as it is written, merged and deeply merged."""

from __future__ import annotations

import json
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
from bench.peers.kafka import broker
from bench.peers.service import TOPIC
from bench.peers.sizes import PARTITIONS, Sizes
from sluice.log_store.engine import LogStore
from sluice.log_store.records import TIMESTAMP

REQUEST = 1_000
QUIET_MS, SETTLE_S, MERGE_S = 500, 3.0, 120.0
LARGE_BATCH = 1 << 20
BEFORE, MERGED, DEEP = "Sluice, as written", "Sluice, merged", "Sluice, deeply merged"
DEFAULT, LARGE = "Kafka, zstd, default batches", "Kafka, zstd, batches of 1 MiB"
ALL = ", with log and index files"


def run(sizes: Sizes) -> PeerFindings:
    findings = PeerFindings(
        "disk",
        f"bytes on disk per record, {sizes.disk_records:,} JSON orders over {PARTITIONS} partitions",
        {"kafka": KAFKA_VERSION, "records": sizes.disk_records, "records_per_request": REQUEST},
        notes=[
            "one round: the same bytes come out of every one",
            "Kafka: console-producer, zstd at its default level, batch.size 16 KiB (default) and 1 MiB",
            "record timestamps are the time of sending on both sides",
            "as written: one commit and file per request of 1,000 records; a busy service groups more into one",
            "with log and index files: blocks on disk; Kafka's indexes, our Delta log and state; files that a merge"
            " replaced are not counted, they stay for file.delete.delay.ms",
        ],
    )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        written, merged, lines = folder / "written", folder / "merged", folder / "lines"
        raw = _append(written, lines, sizes.disk_records, merge=False)
        _append(merged, lines, sizes.disk_records, merge=True)
        findings.add(OTHER, "JSON text", "B/record", [raw / sizes.disk_records])
        kafka = stack.enter_context(broker(folder / "kafka"))
        for what, size in ((DEFAULT, 16_384), (LARGE, LARGE_BATCH)):
            topic = f"orders-{size}"
            kafka.console_produce(topic, lines, codec="zstd", batch_bytes=size)
            if kafka.records(topic) != sizes.disk_records:
                raise RuntimeError(f"Kafka has {kafka.records(topic)} of {sizes.disk_records} records")
            _add(findings, KAFKA, what, kafka.log_bytes(topic), sizes.disk_records)
        _add(findings, SLUICE, BEFORE, _live_bytes(written), sizes.disk_records)
        _add(findings, SLUICE, MERGED, _live_bytes(merged), sizes.disk_records)
        _deep_merge(merged)
        _add(findings, SLUICE, DEEP, _live_bytes(merged), sizes.disk_records)
    for ours in (BEFORE, MERGED, DEEP):
        for theirs in (DEFAULT, LARGE):
            target = at_most(0.8) if (ours, theirs) == (MERGED, DEFAULT) else None
            findings.compare(f"{ours} / {theirs}", ours, theirs, target)
    findings.compare(f"{MERGED} / {DEFAULT}{ALL}", MERGED + ALL, DEFAULT + ALL)
    return findings


def _add(findings: PeerFindings, side: str, what: str, found: tuple[int, int], records: int) -> None:
    findings.add(side, what, "B/record", [found[0] / records])
    findings.add(side, what + ALL, "B/record", [found[1] / records])


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
