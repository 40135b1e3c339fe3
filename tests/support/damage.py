"""Healthy roots with a bit of everything, and ways to damage exactly one thing of them."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sluice.conf.settings import LogSettings, Settings, StorageSettings, WalSettings
from sluice.log_store import parquet, snapshot
from sluice.log_store.delta_log import DataFile, commit_path
from sluice.log_store.engine import LogStore
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import PlanKind
from sluice.log_store.records import STORED_SCHEMA, make_batch
from sluice.log_store.store import Store, open_store
from sluice.log_store.topic import CONSUMER_OFFSETS
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.records import Committed, batch_of, encode_committed, offset_key
from sluice.streaming.groups import partition_of_group
from tests.support.logs import plan, table_of, write_file

MS = 1_700_000_000_000
GROUP = "readers"
OFFSETS_PARTITIONS = 2
_CRC_AT = len('{"commitInfo":{"sluiceCrc":"')

Actions = list[dict[str, Any]]


def open_root(root: Path | str) -> LogStore:
    """Every append is a version and a file of its own."""
    return LogStore.open(
        Settings(
            storage=StorageSettings(root=str(root), fsync=False),
            wal=WalSettings(max_bytes=1 << 22, file_bytes=1 << 18),
            log=LogSettings(commit_interval_ms=0, checkpoint_interval_versions=10_000, merge_enable=False),
        )
    )


def numbered(first: int, count: int, keys: int = 1_000) -> pa.RecordBatch:
    rows = [
        {"key": b"k%d" % (n % keys), "value": b"value %d" % n, "timestamp": MS + n} for n in range(first, first + count)
    ]
    return make_batch(rows, default_ms=MS)


def append(log: LogStore, topic: str, batch: pa.RecordBatch, partition: int = 0) -> None:
    log.append(topic, partition, batch).result(timeout=60)


def healthy_root(root: Path) -> None:
    """`t`: 16 versions with a merge and two checkpoints; `c`: compacted up to offset 8; a group that reads `t`."""
    with open_root(root) as log:
        log.create_topic("t")
        for first in range(0, 40, 4):
            append(log, "t", numbered(first, 4))
        led = log.partition("t", 0)
        merge(log, led, led.state.files[2:5])
        led.checkpoint()
        for first in range(40, 60, 4):
            append(log, "t", numbered(first, 4))
        led.checkpoint()
        append(log, "t", numbered(60, 4))
        log.create_topic("c", configs={"cleanup.policy": "compact"})
        for first in range(0, 16, 4):
            append(log, "c", numbered(first, 4, keys=4))
        compact(log, log.partition("c", 0), {4, 5, 6, 7}, first_dirty=8)
        commit_offset(log, GROUP, "t", 64)


def merge(log: LogStore, led: PartitionLog, files: Sequence[DataFile]) -> None:
    rows = table_of(log, led.ref.topic, led.ref.partition, files).combine_chunks()
    removes = tuple(file.path for file in files)
    led.apply_plan(plan(PlanKind.MERGE, led.state.version, removes=removes, adds=(write_file(led, rows),)))


def compact(log: LogStore, led: PartitionLog, keep: set[int], first_dirty: int) -> None:
    files = [file for file in led.state.files if file.end_offset <= first_dirty]
    rows = table_of(log, led.ref.topic, led.ref.partition, files)
    rows = rows.filter(pa.array([offset in keep for offset in rows.column("offset").to_pylist()])).combine_chunks()
    led.apply_plan(
        plan(
            PlanKind.COMPACT,
            led.state.version,
            removes=tuple(file.path for file in files),
            adds=(write_file(led, rows),),
            first_dirty=first_dirty,
        )
    )


def commit_offset(log: LogStore, group: str, topic: str, offset: int, partition: int | None = None) -> None:
    meta = log.internal_topic(CONSUMER_OFFSETS, partitions=OFFSETS_PARTITIONS, configs={"cleanup.policy": "compact"})
    value = Committed(offset=offset, metadata="", commit_ms=MS, topic_id=log.topic(topic).topic_id)
    row = (offset_key(group, TopicPartition(topic, 0)), encode_committed(value))
    where = partition_of_group(group, meta.partitions) if partition is None else partition
    log.partition(CONSUMER_OFFSETS, where).append(batch_of([row], MS)).result(timeout=60)


# --- commits -----------------------------------------------------------------------------------


def commit_file(root: Path, version: int, folder: str = "topics/t/0") -> Path:
    return root / commit_path(folder, version)


def actions_of(root: Path, version: int, folder: str = "topics/t/0") -> Actions:
    return [msgspec.json.decode(line) for line in commit_file(root, version, folder).read_bytes().splitlines()]


def edit_commit(
    root: Path, version: int, change: Callable[[Actions], Any], folder: str = "topics/t/0", *, foreign: bool = False
) -> None:
    """Change a commit and make its checksum right again: only its meaning is wrong then."""
    actions = actions_of(root, version, folder)
    change(actions)
    if not foreign:
        actions[0]["commitInfo"]["sluiceCrc"] = "00000000"
    data = b"".join(msgspec.json.encode(action) + b"\n" for action in actions)
    if not foreign:
        data = data[:_CRC_AT] + b"%08x" % zlib.crc32(data) + data[_CRC_AT + 8 :]
    commit_file(root, version, folder).write_bytes(data)


def details(actions: Actions) -> dict[str, Any]:
    found: dict[str, Any] = actions[0]["commitInfo"]["sluice"]
    return found


def set_details(**values: Any) -> Callable[[Actions], None]:
    """Change commitInfo and, where they say the same, the txn actions."""
    txns = {"epoch": "sluice.epoch", "end": "sluice.end", "start": "sluice.start"}

    def change(actions: Actions) -> None:
        details(actions).update(values)
        for action in actions:
            for name, value in values.items():
                if "txn" in action and action["txn"]["appId"] == txns.get(name):
                    action["txn"]["version"] = value

    return change


def set_stats(**values: Any) -> Callable[[Actions], None]:
    """Of the first add."""

    def change(actions: Actions) -> None:
        add = first_add(actions)
        stats = msgspec.json.decode(add["stats"])
        for name, value in values.items():
            stats[name] = {**stats[name], **value} if isinstance(value, dict) else value
        add["stats"] = msgspec.json.encode(stats).decode()

    return change


def first_add(actions: Actions) -> dict[str, Any]:
    found: dict[str, Any] = next(action["add"] for action in actions if "add" in action)
    return found


# --- data files --------------------------------------------------------------------------------


def state_of(root: Path, folder: str = "topics/t/0") -> PartitionState:
    return snapshot.load(store_of(root), folder).state


def store_of(root: Path) -> Store:
    return open_store(root, fsync=False)


def last_file(root: Path, folder: str = "topics/t/0") -> Path:
    return root / folder / state_of(root, folder).files[-1].path


def rewrite_last_file(root: Path, change: Callable[[pa.Table], pa.Table], folder: str = "topics/t/0") -> None:
    """Other rows in the newest file, with right size and checksums in the log: only the rows are wrong then."""
    state = state_of(root, folder)
    path = root / folder / state.files[-1].path
    table = change(pa.Table.from_batches(pa.parquet.ParquetFile(path).iter_batches(), schema=STORED_SCHEMA))
    encoded = parquet.encode(table)
    path.write_bytes(memoryview(encoded.data))

    def change_add(actions: Actions) -> None:
        add = first_add(actions)
        add["size"] = encoded.size
        add["tags"] |= {"sluice.crc": f"{encoded.file_crc:08x}", "sluice.footer": f"{encoded.footer_crc:08x}"}

    edit_commit(root, state.version, change_add, folder)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


def edit_snapshot(root: Path, version: int, folder: str = "topics/t/0", **values: Any) -> None:
    path = root / snapshot.state_path(folder, version)
    body = msgspec.json.decode(path.read_bytes().partition(b"\n")[2])
    text = msgspec.json.encode(body | values)
    path.write_bytes(b"%08x\n" % zlib.crc32(text) + text + b"\n")


def new_name(base_offset: int, epoch: int = 1) -> str:
    return f"{base_offset:020d}-{epoch}-{uuid.uuid4().hex}.parquet"
