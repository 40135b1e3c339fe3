"""v3 records: one object, a stream of concatenated objects, or `records:batch`.

``{"partition_id"?: int, "headers"?: […], "key"?: {type, data}, "value"?: {type, data}, "timestamp"?: RFC 3339 | ms}``

- `type` is BINARY (base64), JSON (any JSON; stored as in `json_v2`) or STRING (stored as UTF-8).
- null or missing data, or no key or value at all: a null key, a tombstone.
- `timestamp` with a zone, cut to milliseconds, or a whole number of milliseconds from 0 to the year 9999.
- A record that is wrong does not harm the others; a body that is no JSON, or a batch with wrong ids, is refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Generic, TypeVar

import msgspec

from sluice.ingest.headers import ABSENT, Row, headers_of, row_column
from sluice.ingest.json_scan import PIECE
from sluice.ingest.json_text import check_count, check_depth, check_names, check_utf8, compact, inside, parse
from sluice.ingest.json_v2 import Milliseconds, Partition
from sluice.ingest.limits import DEFAULT_LIMITS, IngestLimits
from sluice.ingest.long_bodies import LONG, Elements, ListBody, pieces_of
from sluice.ingest.request import (
    Decoded,
    Failure,
    PartlyDecoded,
    assemble,
    bytes_column,
    partition_column,
    refuse_empty,
    timestamp_column,
)
from sluice.log_store.errors import InvalidRequest, SluiceError
from sluice.log_store.records import MAX_TIMESTAMP_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNSUPPORTED = ("AVRO", "JSONSCHEMA", "PROTOBUF")

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


class Data(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: str
    data: msgspec.Raw = ABSENT


class Record(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    partition_id: Partition | None = None
    headers: msgspec.Raw = ABSENT
    key: Data | None = None
    value: Data | None = None
    timestamp: Milliseconds | Instant | None = None


class Entry(Record, forbid_unknown_fields=True, gc=False, kw_only=True):
    id: Name


class _EntryId(msgspec.Struct, gc=False):
    id: Name


E = TypeVar("E")


class _Entries(msgspec.Struct, Generic[E], forbid_unknown_fields=True, gc=False):
    entries: list[E]


_RECORD = msgspec.json.Decoder(Record)
_ENTRY = msgspec.json.Decoder(Entry)
_ENTRIES: msgspec.json.Decoder[_Entries[Entry]] = msgspec.json.Decoder(_Entries[Entry])
_ENTRY_IDS: msgspec.json.Decoder[_Entries[_EntryId]] = msgspec.json.Decoder(_Entries[_EntryId])
_ENTRY_TEXTS: msgspec.json.Decoder[_Entries[msgspec.Raw]] = msgspec.json.Decoder(_Entries[msgspec.Raw])
_BODY = ListBody("entries", _ENTRIES, Elements.of(Entry))
_IDS, _TEXTS = Elements.of(_EntryId), Elements.of(msgspec.Raw)
_BYTES: msgspec.json.Decoder[bytes | None] = msgspec.json.Decoder(bytes | None)
_STRING: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)


def decode_record(body: bytes, *, now_ms: int, limits: IngestLimits = DEFAULT_LIMITS) -> PartlyDecoded:
    """A body that is one record. What is wrong with it is raised."""
    partly = decode_records([body], now_ms=now_ms, limits=limits)
    for failure in partly.failures:
        raise failure.error
    return partly


def decode_records(objects: Sequence[bytes], *, now_ms: int, limits: IngestLimits = DEFAULT_LIMITS) -> PartlyDecoded:
    """Objects of a stream, as `ObjectSplitter` cuts them; each fails alone."""

    def records() -> Iterable[Record | SluiceError]:
        for text in objects:
            try:
                check_utf8(text)
                yield parse(_RECORD, text)
            except SluiceError as error:
                yield error

    return _columns(records(), now_ms, limits, lambda _: "")


def decode_batch(body: bytes, *, now_ms: int, limits: IngestLimits = DEFAULT_LIMITS) -> tuple[list[str], PartlyDecoded]:
    """`{"entries": [{"id", …record}]}`: the ids in order, and what became of each entry."""
    ids: list[str] = []
    entries = _long(body, ids, limits) if len(body) > LONG else _short(body, ids, limits)
    partly = _columns(entries, now_ms, limits, lambda index: f"entries[{index}]")
    refuse_empty(len(ids), "entries")
    _refuse_repeats(ids)
    return ids, partly


def _short(body: bytes, ids: list[str], limits: IngestLimits) -> Iterator[Record | SluiceError]:
    check_utf8(body)
    check_names(body)
    check_count(body, limits.max_entries, "entries")
    try:
        entries = parse(_ENTRIES, body).entries
    except InvalidRequest:
        # The ids first: they prove that every entry is an object, and objects have been counted.
        ids += [entry.id for entry in parse(_ENTRY_IDS, body).entries]
        yield from _one_by_one(parse(_ENTRY_TEXTS, body).entries, 0)
    else:
        ids += [entry.id for entry in entries]
        yield from entries


def _long(body: bytes, ids: list[str], limits: IngestLimits, size: int = PIECE) -> Iterator[Record | SluiceError]:
    for piece in pieces_of(body, _BODY, most=limits.max_entries, longest=limits.max_text_bytes, size=size):
        try:
            entries = piece.parsed(_BODY.elements) if piece.guessed is None else piece.guessed
        except InvalidRequest:
            ids += [entry.id for entry in piece.parsed(_IDS)]
            yield from _one_by_one(piece.parsed(_TEXTS), piece.first)
        else:
            ids += [entry.id for entry in entries]
            yield from entries


def _one_by_one(texts: Sequence[msgspec.Raw], first: int) -> Iterator[Record | SluiceError]:
    for index, text in enumerate(texts, first):
        try:
            yield parse(_ENTRY, text, f"entries[{index}]")
        except InvalidRequest as error:
            error.__context__ = None  # whose frames would keep the text, as its own would
            yield error.with_traceback(None)


def _refuse_repeats(ids: Sequence[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for index, name in enumerate(ids):
        if name in seen:
            raise InvalidRequest(f"entries[{index}].id: must be unique in the batch", field=f"entries[{index}].id")
        seen.add(name)


# --- records to columns ------------------------------------------------------------------------


def _columns(
    records: Iterable[Record | SluiceError], now_ms: int, limits: IngestLimits, place: Callable[[int], str]
) -> PartlyDecoded:
    indices: list[int] = []
    failures: list[Failure] = []
    good: list[Record] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    rows: list[Row] = []
    for index, record in enumerate(records):
        if not isinstance(record, Record):
            failures.append(Failure(index, record))
            continue
        try:
            key = _bytes_of(record.key, limits, "key")
            value = _bytes_of(record.value, limits, "value")
            row = headers_of(record.headers, limits)
            timestamp = record.timestamp
            if isinstance(timestamp, datetime):
                record.timestamp = _ms(timestamp)
            record.headers = ABSENT  # what is left of the record must not keep the text around it
            for part in (record.key, record.value):
                if part is not None:
                    part.data = ABSENT
        except InvalidRequest as error:
            failures.append(Failure(index, inside(place(index), error)))
            continue
        good.append(record)
        indices.append(index)
        keys.append(key)
        values.append(value)
        rows.append(row)
    batch = assemble(
        timestamp_column([record.timestamp for record in good], now_ms),  # type: ignore[misc]  # all are ms by now
        bytes_column(keys),
        bytes_column(values),
        row_column(rows),
    )
    return PartlyDecoded(
        Decoded(batch, partition_column([record.partition_id for record in good])),
        indices,
        failures,
        [None if record.key is None else record.key.type for record in good],
        [None if record.value is None else record.value.type for record in good],
    )


def _bytes_of(given: Data | None, limits: IngestLimits, field: str) -> bytes | None:
    if given is None:
        return None
    kind, data = given.type, given.data
    if kind == "JSON":
        text = bytes(data)
        check_depth(text, limits.max_depth, f"{field}.data")
        if text in (b"", b"null"):
            return None
        return compact(text) if field == "key" else text
    if kind == "BINARY":
        return parse(_BYTES, data, f"{field}.data") if len(data) else None
    if kind == "STRING":
        return _string(data, f"{field}.data")
    raise _wrong_type(kind, f"{field}.type")


def _string(data: msgspec.Raw, field: str) -> bytes | None:
    text = memoryview(data)
    if text and text[0] == ord('"'):
        plain = bytes(text[1:-1])
        if b"\\" not in plain:
            return plain  # valid UTF-8 already, and a str could need four times as much
    string = parse(_STRING, data, field) if text else None
    return None if string is None else string.encode()


def _wrong_type(kind: str, field: str) -> InvalidRequest:
    if kind in _UNSUPPORTED:
        return InvalidRequest(f"{field}: {kind} is not supported, there is no schema registry", field=field)
    return InvalidRequest(f"{field}: must be BINARY, JSON or STRING", field=field)


def _ms(instant: datetime) -> int:
    ms = (instant - _EPOCH) // _MILLISECOND
    if not 0 <= ms <= MAX_TIMESTAMP_MS:
        raise InvalidRequest("timestamp: must be from 1970 to the end of 9999, in UTC", field="timestamp")
    return ms
