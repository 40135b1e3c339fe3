"""Rules for JSON text that the parser does not check, and its errors in our words."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from sluice.ingest.json_scan import (
    LONG_NAME,
    SHORT,
    WHITE_SPACE,
    count_openings,
    has_long_name,
    too_deep,
    without_spacing,
)
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge

T = TypeVar("T")
P = TypeVar("P")

_MOST_SHOWN = 120
_LONG_ENOUGH = 1 << 10
"""Bytes of a body from which on it pays to look for plain records first."""
_PLACE = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_EXPECTED = re.compile(r"Expected (.*?)(?:, got (.*))?", re.DOTALL)
_SPACING = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|[ \t\n\r]++', re.DOTALL)

_SCHEMA_FIELDS = frozenset(
    f"{prefix}schema{suffix}" for prefix in ("", "key_", "value_") for suffix in ("", "_id", "_version")
) | {"subject", "subject_name_strategy"}


def parse(decoder: msgspec.json.Decoder[T], text: bytes | memoryview | msgspec.Raw, place: str = "") -> T:
    """Decodes, or raises InvalidRequest with the field below `place` and the rule it broke."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _translated(error.args[0], place) from None
    except RecursionError:
        raise InvalidRequest(f"{place or 'body'}: is nested too deeply", field=place or "body") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidRequest(f"{place or 'body'}: {str(error)[:200]}", field=place or "body") from None


def parse_either(plain: msgspec.json.Decoder[P], decoder: msgspec.json.Decoder[T], text: bytes) -> P | T:
    """By `plain`, which knows of fewer members and is done sooner. A text that has others is parsed once more; so is
    one that is wrong, of which `decoder` knows best what to say. Of a short one there is nothing to gain."""
    if len(text) > _LONG_ENOUGH:
        with suppress(msgspec.DecodeError, ValueError, RecursionError):
            return plain.decode(text)
    return parse(decoder, text)


def _translated(message: str, place: str) -> InvalidRequest:
    if len(message) > 4 * _MOST_SHOWN:  # an unknown name may be as long as the body
        message = message[: 2 * _MOST_SHOWN] + "…" + message[-2 * _MOST_SHOWN :]
    found = _PLACE.fullmatch(message)
    rule, path = (found[1], found[2]) if found else (message, "")
    if named := _UNKNOWN.fullmatch(rule) or _MISSING.fullmatch(rule):
        path = f"{path}.{named[1]}" if path else named[1]
        if named.re is _MISSING:
            rule = "must be given"
        else:
            schema = path.rpartition(".")[2] in _SCHEMA_FIELDS
            rule = "schemas are not supported" if schema else "unknown field"
    field = joined(place, path)[:_MOST_SHOWN] or "body"
    return InvalidRequest(f"{field}: {_rule(rule)[:200]}", field=field)


def _rule(message: str) -> str:
    """msgspec's sentence as a rule: what it must be, not what was expected."""
    if expected := _EXPECTED.fullmatch(message):
        rule = f"must be {expected[1]}" + (f", not {expected[2]}" if expected[2] else "")
        return rule.replace("`", "")
    return "must be base64" if message == "Invalid base64 encoded string" else message


def joined(place: str, path: str) -> str:
    return f"{place}.{path}" if place and path and not path.startswith("[") else place + path


def inside(place: str, error: InvalidRequest) -> InvalidRequest:
    """The same error, seen from outside: `value.data` of `entries[3]`."""
    field = joined(place, str(error.fields.get("field", "")))
    rule = error.message.partition(": ")[2] or error.message
    return InvalidRequest(f"{field}: {rule}", field=field)


def check_utf8(text: bytes | memoryview) -> None:
    """The parser skips raw values without looking at their characters. Nothing is copied here."""
    if isinstance(text, bytes) and text.isascii():
        return
    ends = pa.py_buffer(np.array([0, len(text)], np.int32))
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(text)]).validate(full=True)
    except pa.ArrowInvalid:
        raise InvalidRequest("body: must be UTF-8", field="body") from None


def check_names(text: bytes | memoryview) -> None:
    if has_long_name(text):
        raise InvalidRequest(f"body: names of members must not be longer than {LONG_NAME} bytes", field="body")


def check_count(body: bytes, limit: int, name: str) -> None:
    """Refuses more than `limit` elements of the list `name` before the parser makes an object of each."""
    if len(body) > 3 * limit and body.count(b"{") > limit + 1 and count_openings(body, 3) > limit:
        raise RecordListTooLarge(f"{name}: must not be more than {limit}", field=name, limit=limit)


def check_depth(text: bytes, limit: int, field: str) -> None:
    if too_deep(text, limit, len(text)) is not None:
        raise depth_error(field, limit)


def depth_error(field: str, limit: int) -> InvalidRequest:
    return InvalidRequest(f"{field}: must not be nested deeper than {limit}", field=field)


def compact(given: bytes | msgspec.Raw) -> bytes:
    """Valid JSON without white space outside strings; digits, escapes and the order of members stay."""
    if len(given) >= SHORT:
        # The expression below keeps a list of all that it found, which is much for a long text, as is a copy of that.
        return without_spacing(memoryview(given))
    text = bytes(given)
    if text[:1] not in (b"{", b"[") or not any(space in text for space in (b" ", b"\n", b"\t", b"\r")):
        return text.strip(WHITE_SPACE)
    return _SPACING.sub(_keep_string, text)


def _keep_string(match: re.Match[bytes]) -> bytes:
    return match[1] or b""
