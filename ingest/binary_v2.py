"""v2 binary bodies (`application/vnd.kafka.binary.v2+json`): as v2 JSON, with key and value in base64.

Base64 is RFC 4648's standard alphabet with padding and nothing between; it is stored decoded. An empty text is an
empty key or value; null, or none, is a null key or a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from sluice.ingest.headers import ABSENT, header_column
from sluice.ingest.json_scan import LONG_NAME
from sluice.ingest.json_text import check_count, check_names, check_utf8, parse_either
from sluice.ingest.json_v2 import Milliseconds, Partition
from sluice.ingest.limits import DEFAULT_LIMITS, IngestLimits
from sluice.ingest.long_bodies import LONG, Elements, ListBody, decode_long
from sluice.ingest.request import (
    Decoded,
    assemble,
    bytes_column,
    partition_column,
    plain_columns,
    refuse_empty,
    timestamp_column,
)


class BinaryRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    value: bytes | None = None
    key: bytes | None = None
    partition: Partition | None = None
    timestamp: Milliseconds | None = None
    headers: msgspec.Raw = ABSENT


class PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """As in `json_v2`."""

    value: bytes | None = None
    key: bytes | None = None
    partition: ClassVar[None] = None
    timestamp: ClassVar[None] = None
    headers: ClassVar[msgspec.Raw] = ABSENT


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[BinaryRecord]


class _PlainBody(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[PlainRecord]


Records = Sequence[PlainRecord | BinaryRecord]
_DECODER = msgspec.json.Decoder(_Body)
_PLAIN = msgspec.json.Decoder(_PlainBody)
BODY = ListBody("records", _DECODER, Elements.of(BinaryRecord))


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
    keys = bytes_column([record.key for record in records])
    values = bytes_column([record.value for record in records])
    if records and isinstance(records[0], PlainRecord):
        return plain_columns(keys, values, now_ms)
    batch = assemble(
        timestamp_column([record.timestamp for record in records], now_ms),
        keys,
        values,
        header_column([record.headers for record in records], limits),
    )
    return Decoded(batch, partition_column([record.partition for record in records]))
