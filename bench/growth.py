"""What months do to a cluster, in minutes: versions, partitions and a large WAL, measured young against old.

Every part runs in a process of its own, so that memory and file handles are its own. The clock is compressed: what
takes hours in production (retention of commit files, deletion of removed files) takes seconds here.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.figures import REPOSITORY, Findings, at_least, at_most, percentile
from bench.harness import append_orders, scratch, seconds
from bench.peers.kafka import ZSTD_LEVEL
from bench.peers.wire import varint
from sluice.conf.settings import LogSettings, Settings, StorageSettings, WalSettings
from sluice.log_store import parquet
from sluice.log_store.engine import LogStore
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import Acks
from sluice.log_store.records import HEADERS, RECORD_SCHEMA, TIMESTAMP, stored_table

YOUNG, OLD, OLD_FULL = 1_000, 10_000, 100_000
WAL_MIB, WAL_MIB_FULL = 256, 1_024
ROUNDS, APPENDS, OPENS = 16, 125, 12
RECORDS = 10
QUIET_MS = 1_000
BEHIND = 40
"""Versions after the last checkpoint when a cluster is closed: each of them is read again when it is opened. Fewer than
make the merger look, because a merge is a version too."""
GROWTH = at_most(1.3)
BATCH_OF_MODEL = 1_000
MIB = 1 << 20


def run(*, full: bool = False, versions: int | None = None) -> Findings:
    old = versions or (OLD_FULL if full else OLD)
    wal = WAL_MIB_FULL if full else WAL_MIB
    findings = Findings(
        "growth",
        f"after {old:,} versions against after {YOUNG:,}; many partitions; a large WAL; bytes per record",
        {
            "versions": [YOUNG, old],
            "records per append": RECORDS,
            "commit.interval.ms": 0,
            "checkpoint.interval.versions": 150,
            "log.json.retention.ms": 5_000,
            "file.delete.delay.ms": 2_000,
            "tail.cache.bytes": 4 * MIB,
            "fsync": False,
            "wal_mib": wal,
        },
        notes=[
            "each part is a process of its own",
            "two clusters in one process, the young one beside the old one, in turns: a busy machine slows both",
            "each cluster is opened with its files in the page cache; open = LogStore.open and the first read",
            f"both are closed {BEHIND} versions after a checkpoint, with no merge left to do",
            "reads are scans of the files, past the tail cache; the newest records of the old log share row groups with"
            " older ones, which are decoded as well",
            "the tail cache is small, so that it is full from the start; by default memory grows by tail.cache.bytes",
            "the WAL is in the page cache after a kill -9; after a power loss its disk must be read as well",
            f"Kafka's log is a model, not a broker: record batches v2 of the same records, {BATCH_OF_MODEL:,} each,"
            f" zstd level {ZSTD_LEVEL}; a broker's own log is in [disk](#disk), and the target is for that",
        ],
    )
    _show_versions(findings, _child("versions", old=old), old)
    _show_partitions(findings, _child("round_robin", partitions=1_000), _child("existing", partitions=10_000))
    _show_wal(findings, wal)
    _show_bytes(findings, _child("bytes"))
    return findings


# --- data and clusters -----------------------------------------------------------------------------


def orders(records: int, seed: int) -> pa.RecordBatch:
    """JSON orders of about 173 bytes."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(10**8, 10**9, records).tolist()
    customers, products = rng.integers(0, 20_000, records).tolist(), rng.zipf(1.3, records).clip(max=5_000).tolist()
    quantity, cents = rng.integers(1, 6, records).tolist(), rng.integers(199, 50_000, records).tolist()
    stamps = 1_750_000_000_000 + seed * 1_000 + rng.integers(0, 5, records).cumsum()
    places = [("DE", "EUR"), ("FR", "EUR"), ("US", "USD"), ("GB", "GBP"), ("PL", "PLN")]
    where = [places[index] for index in rng.integers(0, len(places), records).tolist()]
    values = [
        b'{"order_id":"o-%d","customer_id":"c-%05d","product_id":"p-%04d","quantity":%d,"price":%d.%02d,'
        b'"currency":"%s","country":"%s","status":"created","created_at":%d}'
        % (i, c, p, q, m // 100, m % 100, place[1].encode(), place[0].encode(), ms)
        for i, c, p, q, m, place, ms in zip(
            ids, customers, products, quantity, cents, where, stamps.tolist(), strict=True
        )
    ]
    columns = [
        pa.array(stamps * 1000).cast(TIMESTAMP),
        pa.nulls(records, pa.binary()),
        pa.array(values, pa.binary()),
        pa.nulls(records, HEADERS),
    ]
    return pa.record_batch(columns, schema=RECORD_SCHEMA)


def _settings(root: Path, *, fsync: bool = False, wal: dict[str, Any] | None = None, **log: Any) -> Settings:
    changes = {
        "commit_interval_ms": 0,
        "checkpoint_interval_versions": 150,
        "json_retention_ms": 5_000,
        "file_delete_delay_ms": 2_000,
        "tail_cache_bytes": 4 * MIB,
        "merge_quiet_ms": QUIET_MS,
    }
    return Settings(
        storage=StorageSettings(root=str(root), fsync=fsync),
        wal=WalSettings(**(wal or {})),
        log=LogSettings(**changes | log),
    )


@contextmanager
def _open(root: Path, **changes: Any) -> Iterator[LogStore]:
    with LogStore.open(_settings(root, **changes)) as log:
        yield log


def _usage() -> dict[str, float]:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") / MIB,
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


# --- many versions ---------------------------------------------------------------------------------


class Grown:
    """One cluster with one partition."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._batches = cycle([orders(RECORDS, seed) for seed in range(50)])
        self.log: LogStore
        self.partition: PartitionLog

    def open(self) -> None:
        self.log = LogStore.open(_settings(self.root))
        if self.log.catalog.state.find("orders") is None:
            self.log.create_topic("orders", partitions=1)
        self.partition = self.log.partition("orders", 0)
        # A topic may not ask for so little.
        config = replace(self.partition.config, file_delete_delay_ms=2_000)
        self.partition._config = lambda: config

    def append(self) -> None:
        self.log.append("orders", 0, next(self._batches)).result()

    def until(self, versions: int) -> None:
        while self.partition.state.version < versions:
            self.append()

    def settle(self) -> None:
        """Nothing left to merge, and as many versions after a checkpoint as the other cluster."""
        self._until_merged()
        self.partition.checkpoint()
        for _ in range(BEHIND):
            self.append()
        self._until_merged()  # the tail once more: a version too, for both clusters

    def _until_merged(self) -> None:
        counters, pause, seen = self.log.background.housekeeping.counters, threading.Event(), -1
        while seen != counters.merges:
            seen = counters.merges
            pause.wait(2.5 * QUIET_MS / 1000)

    @property
    def behind(self) -> int:
        return self.partition.state.version - self.partition.durability.checkpointed

    def read_rate(self, *, newest: int | None = None) -> float:
        """Records per second of a scan of everything, or of the newest records; past the tail cache."""
        end = self.partition.high_watermark
        start = self.partition.log_start if newest is None else max(self.partition.log_start, end - newest)
        counted: list[int] = []
        scan = self.log.reads("orders", 0).scan
        spent = seconds(lambda: counted.append(sum(rows.num_rows for rows in scan(start, end))))
        return counted[0] / spent

    def opening(self) -> float:
        def open_and_read() -> None:
            self.open()
            end = self.partition.high_watermark
            assert self.log.reads("orders", 0).fetch(end - 1).rows.batches

        gc.collect()
        spent = seconds(open_and_read)
        self.log.close()
        return spent

    def shape(self) -> dict[str, float]:
        folder = self.root / self.partition.ref.folder
        log = [entry.name for entry in os.scandir(folder / "_delta_log")]
        sizes = []
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):  # clean-up goes on
                    sizes.append(os.stat(f"{place}/{name}").st_size)
        return _usage() | {
            "live": len(self.partition.state.files),
            "removed": len(self.partition.state.removed),
            "commits": sum(name.endswith(".json") for name in log),
            "files": len(sizes),
            "disk_mib": sum(sizes) / MIB,
            "disk_per_record": sum(sizes) / max(1, self.partition.high_watermark),
        }


def part_versions(folder: Path, *, old: int) -> dict[str, Any]:
    aged, young = Grown(folder / "old"), Grown(folder / "young")
    aged.open()
    aged.until(YOUNG)
    shapes = [aged.shape()]
    begun = time.perf_counter()
    for mark in sorted({old // 4, old // 2, old}):
        aged.until(mark)
        shapes.append(aged.shape() | {"version": mark, "seconds": time.perf_counter() - begun})
    young.open()
    young.until(YOUNG)
    return {"shapes": shapes} | _compare({"young": young, "old": aged})


def _compare(both: dict[str, Grown]) -> dict[str, Any]:
    """In turns, the first of one round being the second of the next."""
    appends: dict[str, list[list[float]]] = {name: [] for name in both}
    for number in range(ROUNDS):
        for name, cluster in sorted(both.items(), reverse=number % 2 == 0):
            gc.collect()
            appends[name].append([seconds(cluster.append) for _ in range(APPENDS)])
    for cluster in both.values():
        cluster.settle()
    shapes_of_both = {name: cluster.shape() for name, cluster in both.items()}
    reads: dict[str, list[float]] = {name: [] for name in both}
    tails: dict[str, list[float]] = {name: [] for name in both}
    for number in range(ROUNDS):
        for name, cluster in sorted(both.items(), reverse=number % 2 == 0):
            reads[name].append(cluster.read_rate())
            tails[name].append(cluster.read_rate(newest=YOUNG * RECORDS))
    distances = {name: cluster.behind for name, cluster in both.items()}
    if abs(distances["young"] - distances["old"]) > 2:
        raise RuntimeError(f"not comparable: versions after the last checkpoint {distances}")
    for cluster in both.values():
        cluster.log.close()
    opens: dict[str, list[float]] = {name: [] for name in both}
    for number in range(OPENS):
        for name, cluster in sorted(both.items(), reverse=number % 2 == 0):
            opens[name].append(cluster.opening())
    return {
        "both": shapes_of_both,
        "behind": distances,
        "appends": appends,
        "reads": reads,
        "tails": tails,
        "opens": opens,
    }


def _show_versions(findings: Findings, found: dict[str, Any], old: int) -> None:
    young, aged = f"after {YOUNG:,}", f"after {old:,}"
    tails: dict[str, list[float]] = {}
    halves: dict[str, list[float]] = {}
    for name, when in (("young", young), ("old", aged)):
        rounds: list[list[float]] = found["appends"][name]
        everything = [t for r in rounds for t in r]
        findings.add(f"append p50, {when}", "ms", [percentile(r, 50) * 1e3 for r in rounds])
        findings.add(f"append p99, {when}", "ms", [percentile(everything, 99) * 1e3])
        tails[name] = [percentile(everything, 99)]
        halves[name] = [percentile(r, 50) for r in rounds]
        findings.add(f"open and first read, {when}", "ms", [t * 1e3 for t in found["opens"][name]])
        findings.add(f"sequential read of everything, {when}", "records/s", found["reads"][name])
        findings.add(f"read of the newest {YOUNG * RECORDS:,}, {when}", "records/s", found["tails"][name])
    findings.ratio("append p50: old / young", halves["old"], halves["young"])
    findings.ratio("append p99: old / young", tails["old"], tails["young"], GROWTH)

    def middle(key: str, name: str) -> list[float]:
        return [float(np.median(found[key][name]))]

    findings.ratio("open: old / young", middle("opens", "old"), middle("opens", "young"), GROWTH)
    # Asked for is the read of everything. Of the newest rows alone the groups that hold them are decoded whole.
    for what, key, target in (("everything", "reads", GROWTH), (f"the newest {YOUNG * RECORDS:,}", "tails", None)):
        findings.ratio(
            f"time per record in a read of {what}: old / young", middle(key, "young"), middle(key, "old"), target
        )
    for name, when in (("young", young), ("old", aged)):
        findings.add(f"versions after the last checkpoint at open, {when}", "versions", [found["behind"][name]])
    first, last = found["shapes"][0], found["shapes"][-1]
    for key, what, unit in (
        ("disk_mib", "disk use", "MiB"),
        ("disk_per_record", "disk use per record, unmerged tail included", "bytes"),
        ("live", "live files", "files"),
        ("commits", "commit files", "files"),
        ("rss_mib", "memory", "MiB"),
        ("fds", "file handles", "handles"),
    ):
        findings.add(f"{what}, {young}", unit, [first[key]])
        findings.add(f"{what}, {aged}", unit, [last[key]])
    findings.ratio("disk use per record: old / young", [last["disk_per_record"]], [first["disk_per_record"]], GROWTH)
    findings.add("file handles: growth", "handles", [last["fds"] - first["fds"]], at_most(8))
    findings.ratio("memory: old / young", [last["rss_mib"]], [first["rss_mib"]], GROWTH)


# --- many partitions -------------------------------------------------------------------------------


def part_round_robin(folder: Path, *, partitions: int) -> dict[str, Any]:
    rows = orders(RECORDS, 1)
    with _open(folder, commit_interval_ms=50) as log:
        before = _usage()
        log.create_topic("orders", partitions=partitions)
        times = []
        for _ in range(4):
            gc.collect()
            times.append([seconds(partial(append_orders, log, rows, n)) for n in range(partitions)])
        return {"times": times, "before": before, "after": _usage()}


def _create(log: LogStore, topics: int, partitions: int) -> None:
    for number in range(topics):
        log.create_topic(f"t{number}", partitions=partitions)


def part_existing(folder: Path, *, partitions: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, topics in (("one topic", 1), ("topics of 10", partitions // 10)):
        root = folder / name.replace(" ", "-")
        with _open(root) as log:
            found[f"{name}: create"] = seconds(partial(_create, log, topics, partitions // topics))
        opens = []
        for _ in range(5):
            gc.collect()
            begun = time.perf_counter()
            log = LogStore.open(_settings(root))
            opens.append(time.perf_counter() - begun)
            found[f"{name}: usage"] = _usage()
            log.close()
        found[f"{name}: open"] = opens
    return found


def _show_partitions(findings: Findings, busy: dict[str, Any], existing: dict[str, Any]) -> None:
    first, *later = busy["times"]
    findings.add("1,000 partitions in turn, first append: p50", "ms", [percentile(first, 50) * 1e3])
    findings.add("1,000 partitions in turn, first append: p99", "ms", [percentile(first, 99) * 1e3])
    findings.add("1,000 partitions in turn, later appends: p50", "ms", [percentile(r, 50) * 1e3 for r in later])
    findings.add(
        "1,000 partitions in turn, later appends: p99", "ms", [percentile(r, 99) * 1e3 for r in later], at_most(120)
    )
    grown = busy["after"]["rss_mib"] - busy["before"]["rss_mib"]
    findings.add("1,000 partitions in turn: memory", "MiB", [busy["after"]["rss_mib"]], at_most(1024))
    findings.add("1,000 partitions in turn: memory per partition", "KiB", [grown * 1024 / 1_000])
    findings.add("1,000 partitions in turn: threads", "threads", [busy["after"]["threads"]], at_most(40))
    findings.add("1,000 partitions in turn: file handles", "handles", [busy["after"]["fds"]], at_most(100))
    for name, limit in (("one topic", 1.0), ("topics of 10", 2.0)):
        findings.add(f"10,000 partitions, {name}: create", "s", [existing[f"{name}: create"]])
        findings.add(f"10,000 partitions, {name}: open the cluster", "s", existing[f"{name}: open"], at_most(limit))
        findings.add(
            f"10,000 partitions, {name}: memory", "MiB", [existing[f"{name}: usage"]["rss_mib"]], at_most(1024)
        )


# --- a large WAL -----------------------------------------------------------------------------------

_HUGE_WAL = {"max_bytes": 16 << 30, "sync_interval_ms": 600_000}


def part_fill_wal(folder: Path, *, mib: int) -> dict[str, Any]:
    """Leaves by kill -9, with everything committed or acknowledged and nothing synced."""
    batches = cycle([orders(1_000, seed) for seed in range(20)])
    log = LogStore.open(_settings(folder, fsync=True, wal=_HUGE_WAL, commit_interval_ms=50, merge_enable=False))
    log.create_topic("orders", partitions=8)
    wal = log.runtime.wal
    assert wal is not None
    acked = 0
    while wal.size_bytes < mib * MIB:
        futures = [log.append("orders", n % 8, next(batches), acks=Acks.LEADER) for n in range(32)]
        acked += sum(future.result().count for future in futures)
    print(json.dumps({"acked": acked, "wal_mib": wal.size_bytes / MIB}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def part_recover(folder: Path, *, acked: int) -> dict[str, Any]:
    opened: list[LogStore] = []
    settings = _settings(folder, fsync=True, wal=_HUGE_WAL, commit_interval_ms=50, merge_enable=False)
    spent = seconds(lambda: opened.append(LogStore.open(settings)))
    log = opened[0]
    first = spent + seconds(lambda: log.append("orders", 0, orders(1, 0)).result())
    usage = _usage()
    rows = sum(log.reads("orders", number).latest().offset for number in range(8)) - 1
    assert rows == acked, f"{acked} acknowledged, {rows} there"
    peak = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line).split()[1])
    log.close()
    return {"open": spent, "first_ack": first, "usage": usage, "peak_mib": peak / 1024}


def _show_wal(findings: Findings, mib: int) -> None:
    with scratch() as folder:
        left = _child("fill_wal", folder=folder, mib=mib)
        found = _child("recover", folder=folder, acked=left["acked"])
    what = f"kill -9 with {left['wal_mib']:,.0f} MiB in the WAL"
    findings.add(f"{what}: open", "s", [found["open"]])
    findings.add(f"{what}: first ack", "s", [found["first_ack"]], at_most(5))
    findings.add(f"{what}: peak memory", "MiB", [found["peak_mib"]], at_most(1024))
    findings.add(f"{what}: records", "records", [left["acked"]])


# --- bytes per record ------------------------------------------------------------------------------


def part_bytes(folder: Path) -> dict[str, Any]:
    batches = [orders(BATCH_OF_MODEL, seed) for seed in range(400)]
    with _open(folder, merge_quiet_ms=100, merge_cpu_percent=100) as log:
        log.create_topic("orders", partitions=1)
        for batch in batches:
            log.append("orders", 0, batch).result()
        partition = log.partition("orders", 0)
        deadline = time.monotonic() + 60
        while len(partition.state.files) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        after, files = sum(file.size for file in partition.state.files), len(partition.state.files)
    records = len(batches) * BATCH_OF_MODEL
    raw = sum(len(value) for batch in batches for value in batch.column("value").to_pylist())
    return {
        "raw": raw / records,
        "unmerged": sum(parquet.encode(stored_table([batch], 0)).size for batch in batches) / records,
        "merged": after / records,
        "files": files,
        "kafka": sum(_kafka_bytes(batch) for batch in batches) / records,
    }


def _kafka_bytes(batch: pa.RecordBatch) -> int:
    """The size of a Kafka record batch (format 2, zstd) with the same records."""
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    body = bytearray()
    for number, (micros, value) in enumerate(zip(stamps, batch.column("value").to_pylist(), strict=True)):
        record = b"\0" + varint((micros - stamps[0]) // 1000) + varint(number) + varint(-1)
        record += varint(len(value)) + value + varint(0)
        body += varint(len(record)) + record
    return 61 + len(pa.Codec("zstd", ZSTD_LEVEL).compress(bytes(body), asbytes=True))


def _show_bytes(findings: Findings, found: dict[str, Any]) -> None:
    findings.add("JSON order, raw", "bytes", [found["raw"]])
    findings.add("stored, one file per 1,000 records", "bytes", [found["unmerged"]])
    findings.add(f"stored, merged into {found['files']:.0f} file(s)", "bytes", [found["merged"]])
    findings.add("in Kafka's log with zstd", "bytes", [found["kafka"]])
    findings.ratio("merged / Kafka's zstd", [found["merged"]], [found["kafka"]])
    findings.ratio("raw / merged", [found["raw"]], [found["merged"]], at_least(3))


# --- processes -------------------------------------------------------------------------------------

PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "versions": part_versions,
    "round_robin": part_round_robin,
    "existing": part_existing,
    "fill_wal": part_fill_wal,
    "recover": part_recover,
    "bytes": part_bytes,
}


def _child(part: str, *, folder: Path | None = None, **arguments: Any) -> dict[str, Any]:
    if folder is None:
        with scratch() as own:
            return _child(part, folder=own, **arguments)
    command = [sys.executable, "-m", "bench.growth", part, str(folder), json.dumps(arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode not in (0, -signal.SIGKILL) or not done.stdout:
        raise RuntimeError(f"the part {part!r} of this benchmark ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[1]](Path(sys.argv[2]), **json.loads(sys.argv[3]))))
