"""Rows of a partition against its log and against other readers, in this process: no Spark is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from sluice.jobs.verify_facts import RowSums, row_sums
from sluice.jobs.verify_findings import Finding
from sluice.log_store import reader
from sluice.log_store.delta_log import DataFile
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.records import STORED_SCHEMA
from sluice.log_store.store import Store

MOST_KEYS = 5
"""Keys that a partition's findings name; the others are counted."""


# --- key compaction ------------------------------------------------------------------------------


def cleaned_range(state: PartitionState) -> tuple[int, int] | None:
    """Offsets that key compaction has seen, where each key stands once; None if there are none."""
    if state.last_cleaning < 0 or state.first_dirty <= state.log_start:
        return None
    return state.log_start, state.first_dirty


def check_cleaned(store: Store, folder: str, state: PartitionState) -> Iterator[Finding]:
    """No key stands twice in the cleaned range, and none is null. Memory grows with the keys of one partition."""
    if (cleaned := cleaned_range(state)) is None:
        return
    files = reader.files_between(state.files, len(state.files), *cleaned)
    batches = list(reader.scan(store, folder, files, *cleaned, columns=["offset", "key"]))
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    counted = table.group_by("key").aggregate([("offset", "count"), ("offset", "min"), ("offset", "max")])
    twice = counted.filter(pc.greater(counted.column("offset_count"), 1))
    nulls = counted.filter(pc.is_null(counted.column("key")))
    yield from keys_found(twice.filter(pc.is_valid(twice.column("key"))).to_pylist(), state.version)
    for row in nulls.to_pylist():
        yield null_keys_found(row["offset_count"], row["offset_min"], state.version)


def keys_found(rows: Iterable[dict[str, object]], version: int) -> Iterator[Finding]:
    """Rows with `key`, `offset_count`, `offset_min`, `offset_max`."""
    found = list(rows)
    for row in found[:MOST_KEYS]:
        text = (
            f"key {bytes(row['key'])[:100]!r} stands {row['offset_count']} times in the compacted part, "  # type: ignore[call-overload]
            f"at {row['offset_min']} and {row['offset_max']}"
        )
        yield Finding("R-7", text, offset=int(str(row["offset_min"])), version=version)
    if len(found) > MOST_KEYS:
        yield Finding("R-7", f"{len(found) - MOST_KEYS} more keys stand twice in the compacted part", version=version)


def null_keys_found(count: int, offset: int, version: int) -> Finding:
    text = f"{count} records without a key stand in the compacted part"
    return Finding("R-7", text, offset=offset, version=version)


# --- stock readers -------------------------------------------------------------------------------


def delta_rs_batches(store: Store, folder: str, version: int) -> Iterator[pa.RecordBatch]:
    """All rows of one version as delta-rs and its own Parquet decoder return them."""
    table = DeltaTable(f"{store.delta_uri}/{folder}", version=version, storage_options=store.delta_storage_options)
    for batch in QueryBuilder().register("log", table).execute("SELECT * FROM log"):
        yield from pa.table(pa.record_batch(batch)).select(STORED_SCHEMA.names).cast(STORED_SCHEMA).to_batches()


def our_batches(store: Store, folder: str, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
    """All rows of live files, those below the log start too: what a stock reader must return (I-11, R-11)."""
    return reader.scan(store, folder, files, 0, 2**62)


def sums_of(batches: Iterable[pa.RecordBatch]) -> RowSums:
    total = RowSums()
    for batch in batches:
        if batch.num_rows:
            total += row_sums(batch)
    return total


def check_sums(name: str, ours: RowSums, theirs: RowSums, version: int) -> Iterator[Finding]:
    if ours == theirs:
        return
    if ours.rows != theirs.rows:
        text = f"{name} returns {theirs.rows} rows where {ours.rows} are committed"
    else:
        text = f"{name} returns other rows than were committed: {theirs} instead of {ours}"
    yield Finding("I-11", text, version=version)
