"""Small clusters in one process: on memory or in a folder, with time and faults in the test's hands.

::

    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a", "b"))
        assert values(log, "t", 0) == [b"a", b"b"]
        log = cluster.reopen()              # in order; cluster.crash() leaves everything as it lies
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pyarrow as pa

from sluice.conf.settings import ClusterSettings, LogSettings, Settings, StorageSettings, TopicSettings, WalSettings
from sluice.log_store import parquet
from sluice.log_store.clock import ManualClock
from sluice.log_store.delta_log import Commit, DataFile, commit_path, decode_commit
from sluice.log_store.engine import LogStore
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.records import make_batch
from sluice.log_store.scheduler import Scheduler
from sluice.log_store.store import Store, StoreNotFound, open_store
from sluice.log_store.values import ProducerStamp
from tests.support.faulty_store import FaultyStore

WAIT_S = 60.0
"""How long a test waits for what must happen: only a broken one waits that long, however busy the machine is."""
NOW_MS = 1_700_000_000_000
POLL_S = 0.002
BETWEEN_TICKS_S = 0.05


def eventually(condition: Callable[[], Any], timeout: float = WAIT_S) -> Any:
    """Poll until `condition` is true and answer what it said."""
    deadline, pause = monotonic() + timeout, threading.Event()
    while not (found := condition()):
        assert monotonic() < deadline, "it did not happen in time"
        pause.wait(POLL_S)
    return found


def wake(scheduler: Scheduler) -> None:
    """A manual clock tells nobody that it was moved; only what comes first in the queue makes it look again."""
    scheduler.after(float("-inf"), lambda: None)


class Cluster:
    """One storage root that is opened again and again. Leaving the block closes what is open."""

    def __init__(self, store: FaultyStore, settings: Settings, clock: ManualClock | None) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock or ManualClock(NOW_MS)
        self._open: list[LogStore] = []

    def open(self, *, settings: Settings | None = None, **options: Any) -> LogStore:
        log = LogStore.open(settings or self.settings, store=self.store, clock=self.clock, **options)
        self._open.append(log)
        return log

    def reopen(self) -> LogStore:
        """Close in order and open again."""
        self._open[-1].close()
        return self.open()

    def crash(self) -> LogStore:
        """Stop without committing what waits, then open again."""
        self._open[-1].close(drain=False)
        return self.open(force=True)

    def tick(self, seconds: float) -> None:
        """Let time pass. When it returns, every timer that was due has run; what it handed on may still be under way.

        Whoever has an answer may be faster than the thread that gave it: a timer that is set only after time has
        passed would never ring. So the threads that commit and merge come to rest first.
        """
        running = [log for log in self._open if not log.runtime.scheduler._closed]
        for log in running:
            commits_done(log)
            pool_done(log.background.housekeeping._pool)
        self.clock.advance(seconds)
        for log in running:
            rung = threading.Event()
            wake(log.runtime.scheduler)
            log.runtime.scheduler.after(0, rung.set)
            assert rung.wait(WAIT_S), "the timers do not ring"

    def until(self, condition: Callable[[], Any], step: float) -> Any:
        """Let time pass, `step` seconds at a time, until `condition` is true, and answer what it said.

        For what another thread does at its own pace: what it waits for may be set after any tick. In real time a tick
        lasts long enough that little more time passes than is needed.
        """
        deadline, next_tick, pause = monotonic() + WAIT_S, 0.0, threading.Event()
        while not (found := condition()):
            assert monotonic() < deadline, "it did not happen in time"
            if monotonic() >= next_tick:
                self.tick(step)
                next_tick = monotonic() + BETWEEN_TICKS_S
            pause.wait(POLL_S)
        return found

    def settled(self, *futures: Future[Any], step: float = 1.0) -> list[Any]:
        """The results of all of them, while time passes."""
        self.until(lambda: all(future.done() for future in futures), step)
        return [future.result() for future in futures]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.store.clear()
        for log in reversed(self._open):
            # Under a manual clock a drain that cannot succeed would never give up.
            log.close(drain=False)


def small_settings(root: str, *, fsync: bool = False, wal: dict[str, Any] | None = None, **changes: Any) -> Settings:
    """Small and quick; `topics_…` and `cluster_…` go to those groups, everything else to `LogSettings`."""
    groups: dict[str, dict[str, Any]] = {"topics": {}, "cluster": {"claim_renew_ms": 60_000}, "log": {}}
    groups["log"] = {"commit_interval_ms": 0, "commit_threads": 2, "tail_cache_bytes": 1 << 20, "merge_enable": False}
    groups["log"]["retention_check_interval_ms"] = 0
    for name, value in changes.items():
        group, _, rest = name.partition("_")
        groups[group if group in ("topics", "cluster") else "log"][rest if group in groups else name] = value
    return Settings(
        storage=StorageSettings(root=root, fsync=fsync),
        wal=WalSettings(**{"max_bytes": 1 << 20, "file_bytes": 1 << 16} | (wal or {})),
        log=LogSettings(**groups["log"]),
        cluster=ClusterSettings(**groups["cluster"]),
        topics=TopicSettings(**groups["topics"]),
    )


def memory_cluster(*, clock: ManualClock | None = None, **changes: Any) -> Cluster:
    settings = small_settings("memory://", **changes)
    return Cluster(FaultyStore(open_store("memory://")), settings, clock)


def folder_cluster(root: Path, *, fsync: bool = False, clock: ManualClock | None = None, **changes: Any) -> Cluster:
    settings = small_settings(str(root), fsync=fsync, **changes)
    return Cluster(FaultyStore(open_store(root, fsync=fsync)), settings, clock)


# --- records -----------------------------------------------------------------------------------


def batch(*texts: str | bytes | None, ms: int = NOW_MS, key: bytes | None = None) -> pa.RecordBatch:
    rows = [{"key": key, "value": text.encode() if isinstance(text, str) else text} for text in texts]
    return make_batch(rows, default_ms=ms)


def timed(*stamps: int) -> pa.RecordBatch:
    """One record per timestamp; its value is the timestamp as text."""
    return make_batch([{"value": b"%d" % ms, "timestamp": ms} for ms in stamps], default_ms=0)


def append(log: LogStore, topic: str, partition: int, records: pa.RecordBatch, **options: Any) -> AppendResult:
    return log.append(topic, partition, records, **options).result(timeout=WAIT_S)


def append_one_by_one(log: LogStore, topic: str, texts: Iterable[str], partition: int = 0) -> None:
    """One version, and one file, each."""
    for text in texts:
        append(log, topic, partition, batch(text))


def stamp(producer: int, sequence: int, epoch: int = 0, **more: int) -> ProducerStamp:
    return ProducerStamp(producer, epoch, sequence, **more)


def settled(futures: Iterable[Future[AppendResult]]) -> list[AppendResult]:
    return [future.result(timeout=WAIT_S) for future in futures]


def commits_done(log: LogStore) -> None:
    """Until whatever was handed to the commit threads so far is done: what still waits, waits for a reason."""
    pool_done(log.runtime.commits)


def pool_done(pool: ThreadPoolExecutor) -> None:
    """Until whatever was handed to the pool so far is done: all its threads meet."""
    threads = pool._max_workers
    meet = threading.Barrier(threads)
    for future in [pool.submit(meet.wait, WAIT_S) for _ in range(threads)]:
        future.result(timeout=WAIT_S)


# --- reading back ------------------------------------------------------------------------------


def rows(log: LogStore, topic: str, partition: int = 0, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all rows, past the cache."""
    found: list[tuple[int, bytes | None]] = []
    for piece in log.reads(topic, partition).scan(start, readahead=0):
        found += zip(piece.column("offset").to_pylist(), piece.column("value").to_pylist(), strict=True)
    return found


def values(log: LogStore, topic: str, partition: int = 0) -> list[bytes | None]:
    return [value for _, value in rows(log, topic, partition)]


def fetched(log: LogStore, topic: str, offset: int, partition: int = 0, **limits: int) -> list[tuple[int, Any]]:
    answer = log.reads(topic, partition).fetch(offset, **limits)
    return [
        pair
        for piece in answer.rows.batches
        for pair in zip(piece.column("offset").to_pylist(), piece.column("value").to_pylist(), strict=True)
    ]


def folder_of(log: LogStore, topic: str, partition: int = 0) -> str:
    return log.partition(topic, partition).ref.folder


def commits(store: Store, folder: str) -> list[Commit]:
    """Every version that is there, from 0 on."""
    return [decode_commit(version, data) for version, data in enumerate(_versions(store, folder))]


def _versions(store: Store, folder: str) -> Iterator[bytes]:
    version = 0
    while True:
        try:
            yield store.get(commit_path(folder, version))
        except StoreNotFound:
            return
        version += 1


def actions(store: Store, folder: str, version: int) -> list[dict[str, Any]]:
    """The plain JSON of one version, as another engine sees it."""
    return [msgspec.json.decode(line) for line in store.get(commit_path(folder, version)).splitlines()]


def foreign_commit(store: Store, folder: str, version: int, *parts: dict[str, Any]) -> None:
    """A commit as another engine would write it."""
    info = {"commitInfo": {"timestamp": NOW_MS, "operation": "WRITE", "engineInfo": "other-engine/1.0"}}
    store.put_if_absent(commit_path(folder, version), b"".join(msgspec.json.encode(p) + b"\n" for p in [info, *parts]))


# --- plans -------------------------------------------------------------------------------------


def write_file(partition: PartitionLog, table: pa.Table, tags: dict[str, str] | None = None) -> DataFile:
    """Put a data file as a maintenance job would: outside the log."""
    encoded = parquet.encode(table)
    name = f"{encoded.base_offset:020d}-{partition.runtime.leadership.epoch}-{uuid.uuid4().hex}.parquet"
    partition.runtime.store.put(f"{partition.ref.folder}/{name}", encoded.data)
    return DataFile.of(name, encoded, partition.runtime.clock.wall_ms(), tags)


def table_of(log: LogStore, topic: str, partition: int, files: Sequence[DataFile]) -> pa.Table:
    """All rows of neighbouring files, those below the log start too."""
    runtime, folder = log.runtime, folder_of(log, topic, partition)
    from sluice.log_store import reader

    return pa.Table.from_batches(reader.scan(runtime.store, folder, files, 0, 2**62))


def plan(kind: PlanKind, base_version: int, **changes: Any) -> Plan:
    changes.setdefault("plan_id", uuid.uuid4().hex)
    return Plan(kind=kind, reason="a test", base_version=base_version, **changes)


def rewrite(
    log: LogStore,
    topic: str,
    kind: PlanKind,
    files: Sequence[DataFile],
    *,
    keep: Callable[[int], bool] = lambda _: True,
    partition: int = 0,
    **changes: Any,
) -> Plan:
    """A plan that turns these files into one with the rows whose offsets are kept."""
    table = table_of(log, topic, partition, files)
    table = table.filter(pa.array([keep(offset) for offset in table.column("offset").to_pylist()]))
    led = log.partition(topic, partition)
    adds = (write_file(led, table.combine_chunks()),) if table.num_rows else ()
    return plan(kind, led.state.version, removes=tuple(file.path for file in files), adds=adds, **changes)


def other(file: DataFile, **changes: Any) -> DataFile:
    return replace(file, **changes)


ALL, LEADER, NONE = Acks.ALL, Acks.LEADER, Acks.NONE
