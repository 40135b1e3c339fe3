"""The same partition read three ways: by Sluice, by delta-rs and by delta-spark, as plain comparable rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.conf.settings import LogSettings, Settings, StorageSettings, WalSettings
from sluice.log_store import parquet
from sluice.log_store.checkpoints import clean_log
from sluice.log_store.delta_log import DataFile
from sluice.log_store.engine import LogStore
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.records import STORED_SCHEMA, make_batch, micros_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
START_MS = 1_700_000_000_123
FAR_FUTURE_MS = 2**60


class Row(NamedTuple):
    offset: int
    micros: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def open_log(root: Path) -> LogStore:
    """A log that commits every append at once: one version and one file each."""
    return LogStore.open(
        Settings(
            storage=StorageSettings(root=str(root)),
            wal=WalSettings(max_bytes=16 * MIB, file_bytes=MIB),
            log=LogSettings(commit_interval_ms=0, checkpoint_interval_versions=10_000, merge_enable=False),
        )
    )


def produce(log: LogStore, topic: str, records: Iterable[Mapping[str, Any]], partition: int = 0) -> int:
    """One committed batch; returns its first offset."""
    batch = make_batch(records, default_ms=START_MS)
    return log.append(topic, partition, batch).result(timeout=30).base_offset


def numbered(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"key": b"k%d" % (n % 3), "value": b'{"n":%d}' % n, "timestamp": START_MS + n}
        for n in range(first, first + count)
    ]


def table_path(log: LogStore, topic: str, partition: int = 0) -> str:
    root = log.runtime.store.local_path
    assert root is not None
    return str(root / log.partition(topic, partition).ref.folder)


# --- three readers -------------------------------------------------------------------------------


def our_rows(log: LogStore, topic: str, partition: int = 0) -> list[Row]:
    batches = list(log.reads(topic, partition).scan())
    return _rows(pa.Table.from_batches(batches, schema=STORED_SCHEMA))


def delta_rs_rows(path: str, options: dict[str, str] | None = None) -> list[Row]:
    table = DeltaTable(path, storage_options=options)
    found = QueryBuilder().register("log", table).execute('SELECT * FROM log ORDER BY "offset"').read_all()
    return _rows(pa.table(found))


def spark_rows(spark: SparkSession, path: str) -> list[Row]:
    frame = spark.read.format("delta").load(path)
    assert frame.columns == STORED_SCHEMA.names
    # As a number, because Python's datetimes depend on the time zone of the machine.
    selected = frame.selectExpr("offset", "unix_micros(timestamp) AS micros", "key", "value", "headers")
    return [
        Row(row.offset, row.micros, _bytes(row.key), _bytes(row.value), _headers(row.headers))
        for row in selected.orderBy("offset").collect()
    ]


def _rows(table: pa.Table) -> list[Row]:
    assert table.schema.names == STORED_SCHEMA.names
    micros = micros_of(table.column("timestamp")) if table.num_rows else []
    columns = (table.column(name).to_pylist() for name in ("offset", "key", "value", "headers"))
    return [
        Row(offset, int(at), key, value, _headers(headers))
        for at, offset, key, value, headers in zip(micros, *columns, strict=True)
    ]


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    return None if headers is None else tuple((header["key"], _bytes(header["value"])) for header in headers)


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


# --- what happens to tables ----------------------------------------------------------------------


def checkpoint_and_clean(log: LogStore, topic: str, partition: int = 0) -> int:
    """Checkpoint, then delete every commit file that two checkpoints make superfluous; returns how many went."""
    led = log.partition(topic, partition)
    version = led.checkpoint()
    cleaned = clean_log(log.runtime.store, led.ref.folder, older_than_ms=FAR_FUTURE_MS, synced_version=version)
    return cleaned.versions


def rewrite(
    log: LogStore, topic: str, kind: PlanKind, first: int, last: int, partition: int = 0, *, start: int = 0
) -> int:
    """Replace live files number `first`..`last` by one with their rows from offset `start` on; returns the version."""
    led = log.partition(topic, partition)
    replaced = led.state.files[first : last + 1]
    low, high = max(start, replaced[0].base_offset), replaced[-1].end_offset
    table = pa.Table.from_batches(list(log.reads(topic, partition).scan(low, high)), schema=STORED_SCHEMA)
    encoded = parquet.encode(table)
    name = f"{encoded.base_offset:020d}-{log.runtime.leadership.epoch}-{uuid.uuid4().hex}.parquet"
    log.runtime.store.put(f"{led.ref.folder}/{name}", encoded.data)
    plan = Plan(
        plan_id=uuid.uuid4().hex,
        kind=kind,
        reason="test",
        base_version=led.state.version,
        removes=tuple(file.path for file in replaced),
        adds=(DataFile.of(name, encoded, log.runtime.clock.wall_ms()),),
    )
    return log.apply_plan(topic, partition, plan)
