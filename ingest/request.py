"""What every decoder makes of a body: one columnar batch, and the partitions its sender asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.log_store.errors import InvalidRequest, SluiceError
from sluice.log_store.records import HEADERS, RECORD_SCHEMA, TIMESTAMP

Int32s = np.ndarray[Any, np.dtype[np.int32]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

NOT_GIVEN = -1
MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Decoded:
    batch: pa.RecordBatch
    """Of RECORD_SCHEMA, in the order of the request."""
    explicit_partitions: Int32s | None
    """Per record, -1 where none was asked for; None when no record asks for one."""

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)


@dataclass(frozen=True, slots=True)
class Failure:
    index: int
    error: SluiceError


@dataclass(frozen=True, slots=True)
class PartlyDecoded:
    """Some records of a v3 request, and why the others are missing."""

    decoded: Decoded
    indices: Sequence[int]
    """Place in the request of each decoded record."""
    failures: Sequence[Failure]
    key_types: Sequence[str | None]
    """As v3 reports name them, per decoded record; None without a key."""
    value_types: Sequence[str | None]


def assemble(timestamps: pa.Array, keys: pa.Array, values: pa.Array, headers: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([timestamps, keys, values, headers], schema=RECORD_SCHEMA)


def plain_columns(keys: pa.Array, values: pa.Array, now_ms: int) -> Decoded:
    """Records that say nothing else."""
    count = len(values)
    times = timestamps_of(np.full(count, now_ms, np.int64))
    return Decoded(assemble(times, keys, values, pa.nulls(count, HEADERS)), None)


def refuse_empty(count: int, name: str) -> None:
    if not count:
        raise InvalidRequest(f"{name}: must not be empty", field=name)


# --- columns from lists ------------------------------------------------------------------------


def timestamp_column(given: Sequence[int | None], now_ms: int) -> pa.Array:
    count = len(given)
    if given.count(None) == count:
        return timestamps_of(np.full(count, now_ms, np.int64))
    return timestamps_of(np.array([now_ms if ms is None else ms for ms in given], np.int64))


def timestamps_of(ms: Int64s) -> pa.Array:
    return pa.Array.from_buffers(TIMESTAMP, len(ms), [None, pa.py_buffer(ms * 1000)])


def partition_column(given: Sequence[int | None]) -> Int32s | None:
    if given.count(None) == len(given):
        return None
    return np.array([NOT_GIVEN if partition is None else partition for partition in given], np.int32)


def binary_of(data: bytes, offsets: Int32s, valid: Bools | None) -> pa.Array:
    """A binary column over memory that exists; nothing is copied."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [bits, pa.py_buffer(offsets), pa.py_buffer(data)], -1 if bits else 0
    )


def bytes_column(values: Sequence[bytes | None]) -> pa.Array:
    """Like `pa.array`, which grows by doubling, so that large values take half of what they would."""
    if sum(map(len, filter(None, values))) < 1 << 20:
        return pa.array(values, pa.binary())
    offsets: Int32s = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = np.array([value is not None for value in values], np.bool_) if None in values else None
    return binary_of(b"".join([value for value in values if value]), offsets, valid)
