"""v2 JSON bodies (`application/vnd.kafka.json.v2+json`, `application/json`) to columns.

``{"records": [{"key"?: any, "value"?: any, "partition"?: int, "timestamp"?: ms, "headers"?: […]}]}``

- `value` is stored as the text that was sent, without the white space around it. null, or no value: a tombstone.
- `key` likewise, without white space outside strings. null, or no key: a null key.
- `timestamp` is a whole number of milliseconds from 0 to the year 9999; null, or none: the time of receipt.
- `partition` is a whole number from 0; `headers` as in `headers.py`.
- Unknown members are refused. Of a member given twice the last counts, but `records` of a long body are given once.
- Valid JSON means RFC 8259 in UTF-8, no NaN, no lone surrogate in an escape, nesting up to `max_depth`.

Key and value are never parsed into Python objects: the parser checks them while it skips them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from sluice.ingest.headers import ABSENT, header_column
from sluice.ingest.json_scan import LONG_NAME, too_deep
from sluice.ingest.json_text import (
    check_count,
    check_depth,
    check_names,
    check_utf8,
    compact,
    depth_error,
    parse_either,
)
from sluice.ingest.limits import DEFAULT_LIMITS, IngestLimits
from sluice.ingest.long_bodies import LONG, Elements, ListBody, decode_long
from sluice.ingest.request import (
    MAX_PARTITION,
    Bools,
    Decoded,
    Int32s,
    assemble,
    binary_of,
    partition_column,
    plain_columns,
    refuse_empty,
    timestamp_column,
)
from sluice.log_store.records import MAX_TIMESTAMP_MS

Partition = Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTITION)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMESTAMP_MS)]

_FEW = 16
"""Records below which numpy's overhead is more than the work."""
_SHORT = 64 << 10
"""Bytes above which a further copy costs more."""


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    value: msgspec.Raw = ABSENT
    key: msgspec.Raw = ABSENT
    partition: Partition | None = None
    timestamp: Milliseconds | None = None
    headers: msgspec.Raw = ABSENT


class PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What most records are: nothing but these two have to be looked at."""

    value: msgspec.Raw = ABSENT
    key: msgspec.Raw = ABSENT
    partition: ClassVar[None] = None
    timestamp: ClassVar[None] = None
    headers: ClassVar[msgspec.Raw] = ABSENT


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[JsonRecord]


class _PlainBody(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[PlainRecord]


Records = Sequence[PlainRecord | JsonRecord]
_DECODER = msgspec.json.Decoder(_Body)
_PLAIN = msgspec.json.Decoder(_PlainBody)
BODY = ListBody("records", _DECODER, Elements.of(JsonRecord))


def decode(body: bytes, *, now_ms: int, limits: IngestLimits = DEFAULT_LIMITS) -> Decoded:
    if len(body) > LONG:
        return decode_long(body, BODY, columns_of, now_ms=now_ms, limits=limits)
    return columns_of(records_of(body, limits), now_ms, limits)


def records_of(body: bytes, limits: IngestLimits) -> Records:
    """All that is checked by the text of one body. All are plain, or none is."""
    check_utf8(body)
    if len(body) > LONG_NAME:
        check_names(body)
    check_count(body, limits.max_records, "records")
    records: Records = parse_either(_PLAIN, _DECODER, body).records
    refuse_empty(len(records), "records")
    return records


def columns_of(records: Records, now_ms: int, limits: IngestLimits) -> Decoded:
    """The records of one body, or of several, which may fail together where none would alone. Plain ones come last."""
    keys = _key_column([record.key for record in records], limits.max_depth)
    values = _value_column([record.value for record in records], limits.max_depth)
    if records and isinstance(records[0], PlainRecord):
        return plain_columns(keys, values, now_ms)
    batch = assemble(
        timestamp_column([record.timestamp for record in records], now_ms),
        keys,
        values,
        header_column([record.headers for record in records], limits),
    )
    return Decoded(batch, partition_column([record.partition for record in records]))


def _value_column(texts: list[msgspec.Raw], max_depth: int) -> pa.Array:
    if _few_and_short(texts):
        return _few([bytes(text) for text in texts], max_depth, "value")
    return _column(b"".join(texts), _lengths(texts), max_depth, "value")


def _key_column(texts: list[msgspec.Raw], max_depth: int) -> pa.Array:
    if texts.count(ABSENT) == len(texts):
        return pa.nulls(len(texts), pa.binary())
    if _few_and_short(texts):
        return _few([compact(text) for text in texts], max_depth, "key")
    data, lengths = b"".join(texts), _lengths(texts)
    if any(space in data for space in (b" ", b"\n", b"\t", b"\r")):
        data = b""  # not needed any more, and it may be large
        keys = [compact(text) for text in texts]
        data, lengths = b"".join(keys), _lengths(keys)
    return _column(data, lengths, max_depth, "key")


def _few_and_short(texts: list[msgspec.Raw]) -> bool:
    return len(texts) < _FEW and sum(map(len, texts)) < _SHORT


def _few(texts: list[bytes], max_depth: int, name: str) -> pa.Array:
    for index, text in enumerate(texts):
        check_depth(text, max_depth, f"records[{index}].{name}")
    return pa.array([None if text in (b"", b"null") else text for text in texts], pa.binary())


def _lengths(texts: list[msgspec.Raw] | list[bytes]) -> Int32s:
    return np.fromiter(map(len, texts), np.int32, len(texts))


def _column(data: bytes, lengths: Int32s, max_depth: int, name: str) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if (deep := too_deep(data, max_depth, int(lengths.max()))) is not None:
        index = int(np.searchsorted(offsets, deep, side="right")) - 1
        raise depth_error(f"records[{index}].{name}", max_depth)
    return binary_of(data, offsets, _valid(data, offsets, lengths))


def _valid(data: bytes, offsets: Int32s, lengths: Int32s) -> Bools | None:
    """False where nothing was sent, or null: the only JSON text of four bytes that begins with n."""
    absent = lengths == 0
    four = np.flatnonzero(lengths == 4)
    if len(four):
        absent[four] = np.frombuffer(data, np.uint8)[offsets[four]] == ord("n")
    return ~absent if absent.any() else None
