"""What a batch must be before it may take an offset (R-12). Pure and columnar.

A batch is refused whole; the error lists every bad record by its index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.log_store.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge
from sluice.log_store.records import MAX_TIMESTAMP_MS, micros_of, record_sizes
from sluice.log_store.topic import TopicConfig

MOST_LISTED = 100
"""Bad records that one error lists; more would only make the answer long."""


def validate(batch: pa.RecordBatch, config: TopicConfig, now_ms: int) -> None:
    _check_sizes(batch, config)
    if config.compact:
        _check_keys(batch)
    _check_headers(batch)
    if not config.log_append_time:
        _check_timestamps(batch, config, now_ms)


def _check_sizes(batch: pa.RecordBatch, config: TopicConfig) -> None:
    limit = config.max_message_bytes
    bad = np.flatnonzero(record_sizes(batch) > limit)
    if len(bad):
        message = f"record is larger than max.message.bytes ({limit})"
        raise MessageTooLarge(f"{message}: index {bad[0]}", record_errors=_listed(bad, message))


def _check_keys(batch: pa.RecordBatch) -> None:
    keys = batch.column("key")
    if keys.null_count:
        bad = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        message = "a compacted topic needs a key"
        raise InvalidRecord(f"{message}: index {bad[0]}", record_errors=_listed(bad, message))


def _check_headers(batch: pa.RecordBatch) -> None:
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return
    keys = pc.struct_field(headers.flatten(), "key")  # null as well where the header itself is
    if keys.null_count:
        missing = keys.is_null().to_numpy(zero_copy_only=False)
        bad = np.unique(pc.list_parent_indices(headers).to_numpy()[missing])
        message = "a header needs a key"
        raise InvalidRecord(f"{message}: index {bad[0]}", record_errors=_listed(bad, message))


def _check_timestamps(batch: pa.RecordBatch, config: TopicConfig, now_ms: int) -> None:
    ms = micros_of(batch.column("timestamp")) // 1000
    early = now_ms - ms > config.message_timestamp_before_max_ms
    late = ms - now_ms > config.message_timestamp_after_max_ms
    bad = np.flatnonzero((ms < 0) | (ms > MAX_TIMESTAMP_MS) | early | late)
    if len(bad):
        message = "timestamp is outside message.timestamp.before.max.ms and after.max.ms of the time of receipt"
        raise InvalidTimestamp(f"{message}: index {bad[0]}", record_errors=_listed(bad, message))


def _listed(bad: np.ndarray[Any, Any], message: str) -> list[dict[str, Any]]:
    return [{"batch_index": int(index), "message": message} for index in bad[:MOST_LISTED]]
