"""New data files of a job, written by the log's own encoder: by the driver, or by executors beside each other (I-4)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

import pyarrow as pa

from sluice.log_store.delta_log import DataFile
from sluice.log_store.parquet import FileEncoder
from sluice.log_store.store import Store


def data_file_name(base_offset: int, epoch: int) -> str:
    return f"{base_offset:020d}-{epoch}-{uuid.uuid4().hex}.parquet"


def write_data_file(
    store: Store,
    folder: str,
    batches: Iterable[pa.RecordBatch],
    *,
    epoch: int,
    codec: tuple[str, int | None],
    now_ms: int,
    tags: Mapping[str, str] | None = None,
) -> DataFile | None:
    """Write rows that come in offset order as one file of a partition; None if there are none.

    Nobody knows the file until a plan names it: one that is left behind by a kill is an orphan, and goes with them.
    """
    encoded = FileEncoder(*codec).write_all(batches)
    if not encoded.records:
        return None
    name = data_file_name(encoded.base_offset, epoch)
    store.put(f"{folder}/{name}", encoded.data)
    return DataFile.of(name, encoded, now_ms, tags)


def drop_data_files(store: Store, folder: str, files: Iterable[DataFile]) -> None:
    """Files of a plan that was refused: only their writer knows them."""
    for file in files:
        store.delete(f"{folder}/{file.path}")
