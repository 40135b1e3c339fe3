"""v2 binary bodies (`application/vnd.kafka.binary.v2+json`): as v2 JSON, with key and value in base64.

Base64 is RFC 4648's standard alphabet with padding and nothing between; it is stored decoded. An empty text is an
empty key or value; null, or none, is a null key or a tombstone.
"""

from __future__ import annotations

import msgspec

from sluice.ingest.headers import ABSENT, header_column
from sluice.ingest.json_scan import LONG_NAME
from sluice.ingest.json_text import check_count, check_names, check_utf8, parse
from sluice.ingest.json_v2 import Milliseconds, Partition
from sluice.ingest.limits import DEFAULT_LIMITS, IngestLimits
from sluice.ingest.long_bodies import LONG, Elements, ListBody, decode_long
from sluice.ingest.request import Decoded, assemble, bytes_column, partition_column, refuse_empty, timestamp_column


class BinaryRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    value: bytes | None = None
    key: bytes | None = None
    partition: Partition | None = None
    timestamp: Milliseconds | None = None
    headers: msgspec.Raw = ABSENT


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    records: list[BinaryRecord]


_DECODER = msgspec.json.Decoder(_Body)
BODY = ListBody("records", _DECODER, Elements.of(BinaryRecord))


def decode(body: bytes, *, now_ms: int, limits: IngestLimits = DEFAULT_LIMITS) -> Decoded:
    if len(body) > LONG:
        return decode_long(body, BODY, columns_of, now_ms=now_ms, limits=limits)
    return columns_of(records_of(body, limits), now_ms, limits)


def records_of(body: bytes, limits: IngestLimits) -> list[BinaryRecord]:
    """All that is checked by the text of one body."""
    check_utf8(body)
    if len(body) > LONG_NAME:
        check_names(body)
    check_count(body, limits.max_records, "records")
    records = parse(_DECODER, body).records
    refuse_empty(len(records), "records")
    return records


def columns_of(records: list[BinaryRecord], now_ms: int, limits: IngestLimits) -> Decoded:
    """The records of one body, or of several, which may fail together where none would alone."""
    batch = assemble(
        timestamp_column([record.timestamp for record in records], now_ms),
        bytes_column([record.key for record in records]),
        bytes_column([record.value for record in records]),
        header_column([record.headers for record in records], limits),
    )
    return Decoded(batch, partition_column([record.partition for record in records]))
