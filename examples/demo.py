"""A tour of the log store, with nothing hidden: produce, repeat, kill, recover, delete, and query as plain Delta.

Run it with `make demo`. It works in a temporary folder, or in the new or empty folder that SLUICE_DEMO_DIR names, which
it then leaves for you to look at. It exits with 0 only if everything that it claims was checked and held.

It uses the log store as a library. The HTTP service and consumer groups are not part of the tour yet; the README shows
them. The Spark source and the Spark jobs do not exist in this version.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from rich.console import Console
from rich.table import Table

from sluice.conf.settings import LogSettings, Settings, SparkSettings, StorageSettings, WalSettings
from sluice.log_store.engine import LogStore
from sluice.log_store.pending import Acks
from sluice.log_store.records import STORED_SCHEMA, make_batch
from sluice.log_store.values import ProducerStamp

MIB = 1 << 20
TOPIC, PARTITIONS = "orders", 3
BATCHES, BATCH = 30, 100
CHILD_TOPIC, CHILD_BATCH, ACKS_BEFORE_KILL = "clicks", 20, 60
DELETE_BEFORE = 250
COUNTRIES = ("DE", "FR", "NL", "PL", "SE")
ITEMS = {"lamp": "39.90", "chair": "119.00", "desk": "349.50", "shelf": "89.95"}

console = Console(highlight=False, soft_wrap=True)


@dataclass(slots=True)
class Checks:
    """What was claimed, and whether it held."""

    failed: list[str] = field(default_factory=list)

    def hold(self, claim: str, held: bool, detail: str = "") -> None:
        mark = "[green]held[/]  " if held else "[red]FAILED[/]"
        console.print(f"  {mark} {claim}" + (f" [dim]({detail})[/]" if detail else ""))
        if not held:
            self.failed.append(claim)


def settings(root: Path, commit_interval_ms: int = 10) -> Settings:
    return Settings(
        storage=StorageSettings(root=str(root)),
        wal=WalSettings(max_bytes=64 * MIB, file_bytes=4 * MIB),
        log=LogSettings(commit_interval_ms=commit_interval_ms),
    )


# --- 1. produce ----------------------------------------------------------------------------------


def orders(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """Orders as a shop would send them; the same seed gives the same orders."""
    chance = random.Random(seed)
    for number in range(count):
        item = chance.choice(list(ITEMS))
        yield {
            "order": f"o-{seed}-{number:05d}",
            "customer": f"c-{chance.randrange(400):03d}",
            "country": chance.choice(COUNTRIES),
            "item": item,
            "quantity": chance.randrange(1, 5),
            "price": ITEMS[item],
        }


def record(order: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": order["customer"].encode(),
        "value": json.dumps(order, separators=(",", ":")).encode(),
        "headers": [("source", b"demo"), ("trace", None)],
    }


def produce(log: LogStore, checks: Checks) -> dict[int, list[bytes]]:
    """Produce the orders; returns the values by partition, in offset order."""
    log.create_topic(TOPIC, partitions=PARTITIONS, configs={"compression.type": "zstd"})
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    answers = []
    for number in range(BATCHES):
        by_partition: dict[int, list[dict[str, Any]]] = {}
        for order in orders(number, BATCH):
            made = record(order)
            by_partition.setdefault(zlib.crc32(made["key"]) % PARTITIONS, []).append(made)
        for partition, records in by_partition.items():
            acks = Acks.ALL if number % 2 else Acks.LEADER
            base = len(expected[partition])
            future = log.append(TOPIC, partition, make_batch(records, default_ms=now_ms()), acks=acks)
            answers.append((base, future))
            expected[partition] += [made["value"] for made in records]
    dense = all(future.result(timeout=30).base_offset == base for base, future in answers)
    total = sum(map(len, expected.values()))
    checks.hold("offsets are dense and in the order of produce", dense, f"{total} records, acks=1 and acks=all")
    return expected


def repeat(log: LogStore, expected: dict[int, list[bytes]], checks: Checks) -> None:
    """An idempotent producer that did not hear the answer sends again."""
    producer_id, epoch = log.new_producer("partition", "demo-shop")
    records = [record(order) for order in orders(1_000, BATCH)]
    batch, stamp = make_batch(records, default_ms=now_ms()), ProducerStamp(producer_id, epoch, sequence=0)
    first = log.append(TOPIC, 0, batch, stamp=stamp).result(timeout=30)
    again = log.append(TOPIC, 0, batch, stamp=stamp).result(timeout=30)
    expected[0] += [made["value"] for made in records]
    same = again.duplicate and again.base_offset == first.base_offset
    grew = log.partition(TOPIC, 0).high_watermark == len(expected[0])
    checks.hold("a repeated batch gets its first offsets back, nothing is appended twice", same and grew)


# --- 2. kill -9 ----------------------------------------------------------------------------------


def produce_until_killed(root: Path) -> None:
    """The child: produce for ever, several batches in flight, and tell the parent of each acknowledgement."""
    # Rare commits, so that the kill meets records that were acknowledged with acks=1 and are only in the WAL.
    with LogStore.open(settings(root, commit_interval_ms=100)) as log:
        log.topic(CHILD_TOPIC, create=True)
        number, waiting = 0, []
        while True:
            values = [b"click-%08d" % n for n in range(number, number + CHILD_BATCH)]
            batch = make_batch([{"value": value} for value in values], default_ms=now_ms())
            acks = Acks.ALL if number // CHILD_BATCH % 2 else Acks.LEADER
            waiting.append((number, log.append(CHILD_TOPIC, 0, batch, acks=acks)))
            number += CHILD_BATCH
            while waiting and (len(waiting) > 8 or waiting[0][1].done()):
                first, future = waiting.pop(0)
                print(first, future.result().base_offset, flush=True)


def kill_a_producer(root: Path) -> dict[int, int]:
    """Start the child, kill it in the middle; returns what it was told: first click of a batch to base offset."""
    child = subprocess.Popen([sys.executable, __file__, "--child", str(root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged: dict[int, int] = {}
    for line in child.stdout:
        if len(acknowledged) == ACKS_BEFORE_KILL:
            child.send_signal(signal.SIGKILL)  # lines that it had written by then are still read: they count
        if line.endswith("\n"):
            first, offset = line.split()
            acknowledged[int(first)] = int(offset)
    child.wait()
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"the child ended by itself with {child.returncode}")
    return acknowledged


def check_recovery(log: LogStore, acknowledged: dict[int, int], checks: Checks) -> None:
    rows = pa.Table.from_batches(list(log.reads(CHILD_TOPIC, 0).scan()), schema=STORED_SCHEMA)
    offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
    replayed = sum(log.report.replayed.values())
    lost = [
        first
        for first, offset in acknowledged.items()
        for n in range(CHILD_BATCH)
        if offset + n >= len(values) or values[offset + n] != b"click-%08d" % (first + n)
    ]
    told = len(acknowledged) * CHILD_BATCH
    checks.hold(
        "every acknowledged record is there, at its offset", not lost, f"{told} acknowledged, {replayed} replayed"
    )
    checks.hold("no gap and no duplicate", offsets == list(range(len(rows))) and len(set(values)) == len(values))


# --- 3. the same data as plain Delta tables ------------------------------------------------------


def table_paths(log: LogStore) -> list[str]:
    root = Path(log.settings.storage.root)
    return [str(root / log.partition(TOPIC, partition).ref.folder) for partition in range(PARTITIONS)]


def revenue(values: list[bytes]) -> dict[str, Decimal]:
    sums: Counter[str] = Counter()
    for order in map(json.loads, values):
        sums[order["country"]] += order["quantity"] * Decimal(order["price"])  # type: ignore[assignment]
    return dict(sums)


def query_delta_rs(paths: list[str], expected: dict[int, list[bytes]], starts: list[int], checks: Checks) -> None:
    builder = QueryBuilder()
    for partition, path in enumerate(paths):
        builder = builder.register(f"p{partition}", DeltaTable(path))
    same = True
    for partition, start in enumerate(starts):
        query = f'SELECT "offset", value FROM p{partition} WHERE "offset" >= {start} ORDER BY "offset"'
        rows = pa.table(builder.execute(query).read_all())
        same &= rows.column("value").to_pylist() == expected[partition][start:]
        same &= rows.column("offset").to_pylist() == list(range(start, len(expected[partition])))
    checks.hold("delta-rs returns exactly the produced rows, partition by partition", same)


def query_spark(paths: list[str], expected: dict[int, list[bytes]], starts: list[int], checks: Checks) -> None:
    # Here, because a reader of this file should see that only queries need Spark.
    from sluice.conf.spark import QUICK_START, spark_session

    with console.status("starting Spark"):
        spark = spark_session(SparkSettings(driver_memory="1g"), "sluice-demo", QUICK_START)
        spark.sparkContext.setLogLevel("ERROR")
    try:
        frames = [spark.read.format("delta").load(path) for path in paths]
        topic = frames[0].where(f"offset >= {starts[0]}")
        for frame, start in zip(frames[1:], starts[1:], strict=True):
            topic = topic.unionAll(frame.where(f"offset >= {start}"))
        topic.createOrReplaceTempView("orders")
        answer = spark.sql(
            "SELECT country, count(*) AS orders, sum(quantity * price) AS revenue FROM ("
            "  SELECT get_json_object(v, '$.country') AS country, int(get_json_object(v, '$.quantity')) AS quantity,"
            "         CAST(get_json_object(v, '$.price') AS DECIMAL(10, 2)) AS price"
            "  FROM (SELECT string(value) AS v FROM orders)"
            ") GROUP BY country ORDER BY country"
        ).collect()
        read = len(frames[1].where("offset = 5").inputFiles())
        of = len(frames[1].inputFiles())
    finally:
        spark.stop()
    show(answer)
    kept = [value for partition, start in enumerate(starts) for value in expected[partition][start:]]
    same = {row.country: row.revenue for row in answer} == revenue(kept)
    checks.hold("Spark's revenue by country equals the one computed from what was sent", same)
    checks.hold("Spark skips files by offset", read == 1, f"offset = 5 reads {read} of {of} files")


def show(answer: list[Any]) -> None:
    table = Table("country", "orders", "revenue")
    for row in answer:
        table.add_row(row.country, str(row.orders), f"{row.revenue:.2f}")
    console.print(table)


# --- the tour ------------------------------------------------------------------------------------


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tour(root: Path, checks: Checks) -> None:
    console.print("[bold]1. Produce[/]: a topic with three partitions, each a Delta table")
    with LogStore.open(settings(root)) as log:
        expected = produce(log, checks)
        repeat(log, expected, checks)

    console.print("[bold]2. kill -9[/]: another process produces, and is killed in the middle")
    acknowledged = kill_a_producer(root)
    began = time.monotonic()
    with LogStore.open(settings(root)) as log:
        console.print(f"  recovered in {(time.monotonic() - began) * 1000:.0f} ms")
        check_recovery(log, acknowledged, checks)

        console.print("[bold]3. Delete and checkpoint[/]")
        start = log.delete_records(TOPIC, 0, DELETE_BEFORE)
        log_start = log.reads(TOPIC, 0).earliest().offset
        checks.hold("the log start moved, and only forward", start == log_start == DELETE_BEFORE, f"now {log_start}")
        starts = [log.reads(TOPIC, partition).earliest().offset for partition in range(PARTITIONS)]
        versions = [log.partition(TOPIC, partition).checkpoint() for partition in range(PARTITIONS)]
        checks.hold("Delta checkpoints are written", min(versions) > 0, f"at versions {', '.join(map(str, versions))}")

        console.print("[bold]4. The log is the lake[/]: the same tables, read by others while this process leads")
        paths = table_paths(log)
        query_delta_rs(paths, expected, starts, checks)
        query_spark(paths, expected, starts, checks)
        checks.hold("the log reports no trouble", not log.troubles())


def run(root: Path) -> int:
    checks = Checks()
    tour(root, checks)
    console.print("[dim]Not part of this tour: the HTTP service and consumer groups, see README.md.[/]")
    if checks.failed:
        console.print(f"[red]{len(checks.failed)} of the claims above did not hold.[/]")
        return 1
    console.print("[green]Everything held.[/]")
    return 0


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        produce_until_killed(Path(sys.argv[2]))
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        console.print("The last part of the demo needs Java 17 or newer: set JAVA_HOME or put java on the PATH.")
        return 1
    if chosen := os.environ.get("SLUICE_DEMO_DIR"):
        root = Path(chosen)
        if root.exists() and any(root.iterdir()):
            console.print(f"SLUICE_DEMO_DIR={root} is not empty: name a new or empty folder.")
            return 2
        code = run(root)
        console.print(f"The tables are in {root}/topics.")
        return code
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        return run(Path(folder))


if __name__ == "__main__":
    sys.exit(main())
