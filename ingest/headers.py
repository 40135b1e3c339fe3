"""Record headers in JSON: `[{"name": "trace", "value": "<base64>" | null}, …]`, in v3 and, as ours, in v2.

Order and repeats are kept; no list, or null, is stored as null. How many there are is counted in the text, before
the parser makes an object of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from sluice.ingest.json_scan import count_openings
from sluice.ingest.json_text import parse
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import Int64s
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge
from sluice.log_store.records import HEADERS

ABSENT = msgspec.Raw(b"")


class Header(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str
    value: bytes | None = None


Row = list[Header] | None

_ROW: msgspec.json.Decoder[Row] = msgspec.json.Decoder(Row)
_ROWS: msgspec.json.Decoder[list[Row]] = msgspec.json.Decoder(list[Row])
_FIELDS = list(HEADERS.value_type)
_INDEX = re.compile(r"\[(\d+)\]")


def headers_of(text: msgspec.Raw, limits: IngestLimits, place: str = "headers") -> Row:
    """The headers of one record."""
    if len(text) == 0:
        return None
    _check_length(text, limits, place)
    data = bytes(text)
    if data.count(b"{") > limits.max_headers and count_openings(data, 2) > limits.max_headers:
        raise _too_many(place, limits)
    row = parse(_ROW, data, place)
    if row and sum(_size(header) for header in row) > limits.max_header_bytes:
        raise _too_large(place, limits)
    return row


def header_column(texts: Sequence[msgspec.Raw], limits: IngestLimits) -> pa.Array:
    """The headers of all records of a v2 request, decoded in one go."""
    if texts.count(ABSENT) == len(texts):
        return pa.nulls(len(texts), HEADERS)
    text = _one_list(texts, limits)
    most = limits.max_request_headers
    if len(text) > 12 * most and text.count(b"{") > most and count_openings(text, 3) > most:
        raise RecordListTooLarge(f"headers: a request must not have more than {most}", field="headers", limit=most)
    try:
        rows = parse(_ROWS, text)
    except InvalidRequest as error:
        raise InvalidRequest(f"records{_headers_after_index(error.message)}", **_placed(error)) from None
    _check_counts(rows, limits)
    return row_column(rows)


def _check_length(text: msgspec.Raw, limits: IngestLimits, place: str) -> None:
    """Against the longest spelling of what is allowed: six bytes for an escaped character, and the words around."""
    if len(text) > 6 * limits.max_header_bytes + 64 * limits.max_headers:
        raise _too_large(place, limits)


def _one_list(texts: Sequence[msgspec.Raw], limits: IngestLimits) -> bytes:
    parts: list[msgspec.Raw | bytes] = [b"["]
    for index, text in enumerate(texts):
        _check_length(text, limits, f"records[{index}].headers")
        parts.append(text if len(text) else b"null")
        parts.append(b",")
    parts[-1] = b"]"
    return b"".join(parts)


def _placed(error: InvalidRequest) -> dict[str, str]:
    return {"field": f"records{_headers_after_index(str(error.fields['field']))}"}


def _headers_after_index(text: str) -> str:
    """`[3][1].name: …` of the joined lists is `[3].headers[1].name: …` of the records."""
    return _INDEX.sub(r"[\1].headers", text, count=1)


def _check_counts(rows: Sequence[Row], limits: IngestLimits) -> None:
    for index, row in enumerate(rows):
        if not row:
            continue
        if len(row) > limits.max_headers:
            raise _too_many(f"records[{index}].headers", limits)
        if sum(map(_size, row)) > limits.max_header_bytes:
            raise _too_large(f"records[{index}].headers", limits)


def _size(header: Header) -> int:
    value = header.value
    # Four bytes bound a character: exact only where it could matter.
    name = len(header.name) if header.name.isascii() else len(header.name.encode())
    return name if value is None else name + len(value)


def row_column(rows: Sequence[Row]) -> pa.Array:
    if rows.count(None) == len(rows):
        return pa.nulls(len(rows), HEADERS)
    flat = [header for row in rows if row for header in row]
    ends: Int64s = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) if row else 0 for row in rows], out=ends[1:])
    names = pa.array([header.name for header in flat], pa.string())
    values = pa.array([header.value for header in flat], pa.binary())
    structs = pa.StructArray.from_arrays([names, values], fields=_FIELDS)
    mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), structs, type=HEADERS, mask=mask)


def _too_many(place: str, limits: IngestLimits) -> InvalidRequest:
    return InvalidRequest(f"{place}: must not be more than {limits.max_headers}", field=place)


def _too_large(place: str, limits: IngestLimits) -> InvalidRequest:
    return InvalidRequest(f"{place}: must not be larger than {limits.max_header_bytes} bytes", field=place)
