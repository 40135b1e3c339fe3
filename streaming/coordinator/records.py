"""Records of `__consumer_offsets`: keys and values that a person can read with Spark SQL.

::

    {"type":"offset","group":"g","topic":"t","partition":0}  ->  {"offset":7,"metadata":"","commit_ms":…,"topic_id":"…"}
    {"type":"group","group":"g"}                             ->  what `groups.metadata` writes

A null value deletes what has that key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from sluice.log_store.errors import CorruptData, UnsupportedFormat
from sluice.log_store.records import HEADERS, RECORD_SCHEMA, TIMESTAMP
from sluice.log_store.values import TopicPartition

Row: TypeAlias = tuple[bytes, bytes | None]


class OffsetKey(msgspec.Struct, frozen=True, tag_field="type", tag="offset"):
    group: str
    topic: str
    partition: int


class GroupKey(msgspec.Struct, frozen=True, tag_field="type", tag="group"):
    group: str


class Committed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The next offset to read of one partition, as a group committed it."""

    offset: int
    metadata: str
    commit_ms: int
    topic_id: str
    """Of the incarnation that it was committed for: with another one it means nothing (R-8)."""
    leader_epoch: int | None = None
    query: str | None = None
    """The Spark query that committed it, and up to which of its batches."""
    batch: int | None = None


_KEYS: msgspec.json.Decoder[OffsetKey | GroupKey] = msgspec.json.Decoder(OffsetKey | GroupKey)
_VALUES = msgspec.json.Decoder(Committed)
_encode = msgspec.json.Encoder().encode


def group_key(group_id: str) -> bytes:
    return _encode(GroupKey(group_id))


def offset_key(group_id: str, where: TopicPartition) -> bytes:
    return _encode(OffsetKey(group_id, where.topic, where.partition))


def encode_committed(committed: Committed) -> bytes:
    return _encode(committed)


def decode_key(data: bytes) -> OffsetKey | GroupKey:
    try:
        return _KEYS.decode(data)
    except msgspec.ValidationError as error:
        raise UnsupportedFormat(f"a key of __consumer_offsets needs a newer Sluice: {data[:200]!r}: {error}") from error
    except msgspec.DecodeError as error:
        raise CorruptData(f"a key of __consumer_offsets is damaged: {data[:200]!r}: {error}") from error


def decode_committed(key: OffsetKey, data: bytes) -> Committed:
    try:
        return _VALUES.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise CorruptData(f"the committed offset {key} is damaged: {error}") from error


def batch_of(rows: Iterable[Row], now_ms: int) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True)
    stamps = pa.array(np.full(len(keys), now_ms * 1000, dtype=np.int64)).cast(TIMESTAMP)
    columns = [stamps, pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.nulls(len(keys), HEADERS)]
    return pa.record_batch(columns, schema=RECORD_SCHEMA)
