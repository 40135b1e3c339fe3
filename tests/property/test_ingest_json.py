"""The JSON decoders against the json module of the standard library."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.ingest import binary_v2, json_text, json_v2, json_v3
from sluice.ingest.json_scan import ObjectSplitter, count_openings, too_deep
from sluice.ingest.limits import IngestLimits
from sluice.ingest.long_bodies import decode_long
from sluice.ingest.request import Decoded
from sluice.log_store.errors import ClientError
from sluice.log_store.records import MAX_TIMESTAMP_MS
from tests.support.bodies import NOW_MS, same

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
spaces = st.text(" \t\r\n", max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """One of the many JSON texts of a value."""
    pad = (draw(spaces), draw(spaces))
    if isinstance(value, dict):
        members = [f"{draw(spelled(k))}:{draw(spelled(v))}" for k, v in value.items()]
        body = "{" + ",".join(members) + (draw(spaces) if not members else "") + "}"
    elif isinstance(value, list):
        body = "[" + ",".join(draw(spelled(item)) for item in value) + "]"
    else:
        body = json.dumps(value, ensure_ascii=draw(st.booleans()))
    return pad[0] + body + pad[1]


DAMAGES = [
    b"",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b'"',
    b"\\",
    b":",
    b" ",
    b"1",
    b"{}",
    b"},{",
    b"]}",
    b"],[",
    b'","',
    b"\xff",
]

headers = st.none() | st.lists(st.tuples(texts, st.none() | st.binary(max_size=8)), max_size=3)


MEMBERS = ("key", "value", "timestamp", "partition", "headers")


@st.composite
def json_records(draw: st.DrawFn, names: Sequence[str] = MEMBERS) -> tuple[str, dict[str, Any], int | None]:
    """The text of a v2 record, the row it should become, and its partition."""
    members: list[str] = []
    row: dict[str, Any] = {}
    partition = None
    for name in draw(st.permutations(names)):
        if not draw(st.booleans()):
            continue
        if name in ("key", "value"):
            value = draw(json_values)
            text = draw(spelled(value))
            if value is not None:
                row[name] = (_without_spacing(text) if name == "key" else text.strip(" \t\r\n")).encode()
        elif name == "timestamp":
            row[name] = draw(st.integers(0, MAX_TIMESTAMP_MS))
            text = str(row[name])
        elif name == "partition":
            partition = draw(st.integers(0, 2**31 - 1))
            text = str(partition)
        else:
            row[name] = draw(headers)
            text = json.dumps(_header_objects(row[name]))
        members.append(f'{draw(spaces)}"{name}"{draw(spaces)}:{draw(spaces)}{text}{draw(spaces)}')
    return "{" + ",".join(members) + "}", row, partition


def _header_objects(pairs: Any) -> Any:
    if pairs is None:
        return None
    return [{"name": k, "value": None if v is None else base64.b64encode(v).decode()} for k, v in pairs]


def _without_spacing(text: str) -> str:
    kept, inside, escaped = [], False, False
    for character in text:
        if inside or character not in " \t\r\n":
            kept.append(character)
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            inside = not inside
    return "".join(kept)


@given(st.lists(json_records(), min_size=1, max_size=40), spaces, st.integers(1, 200))
def test_v2_json_keeps_text(records: list[tuple[str, dict[str, Any], int | None]], space: str, size: int) -> None:
    body = (space + '{"records":[' + f"{space},".join(text for text, _, _ in records) + f"{space}]}}").encode()
    whole = json_v2.decode(body, now_ms=NOW_MS)
    for result in (whole, in_pieces(body, size)):
        assert same(result.batch, [row for _, row, _ in records])
        partitions = [-1 if partition is None else partition for _, _, partition in records]
        explicit = result.explicit_partitions
        assert (set(partitions) == {-1}) if explicit is None else (explicit.tolist() == partitions)


def in_pieces(body: bytes, size: int) -> Decoded:
    """As if it were long."""
    return decode_long(body, json_v2.BODY, json_v2.columns_of, now_ms=NOW_MS, limits=IngestLimits(), size=size)


@given(st.lists(json_records(), min_size=1, max_size=8), st.integers(1, 40), st.data())
def test_a_damaged_body_is_refused_in_pieces_just_when_it_is_as_a_whole(
    records: list[tuple[str, dict[str, Any], int | None]], size: int, data: st.DataObject
) -> None:
    body = ('{"records":[' + ",".join(text for text, _, _ in records) + "]}").encode()
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 4)))
    body = body[:start] + data.draw(st.sampled_from(DAMAGES)) + body[end:]
    try:
        whole = json_v2.decode(body, now_ms=NOW_MS)
    except ClientError:
        with pytest.raises(ClientError):
            in_pieces(body, size)
        return
    assert in_pieces(body, size).batch.equals(whole.batch)


@pytest.mark.parametrize("form", [json_v2, binary_v2])
@given(st.lists(json_records() | json_records(("key", "value")), min_size=1, max_size=8), st.data())
def test_looking_for_plain_records_first_changes_nothing(
    form: Any, records: list[tuple[str, dict[str, Any], int | None]], data: st.DataObject
) -> None:
    body = ('{"records":[' + ",".join(text for text, _, _ in records) + "]}").encode()
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 4)))
    damaged = body[:start] + data.draw(st.sampled_from(DAMAGES)) + body[end:]
    for text in (body, damaged):
        first, alone = (outcome(form, text, long_enough) for long_enough in (0, len(text)))
        assert first == alone


def outcome(form: Any, body: bytes, long_enough: int) -> Any:
    with patch.object(json_text, "_LONG_ENOUGH", long_enough):
        try:
            found: Decoded = form.decode(body, now_ms=NOW_MS)
        except ClientError as error:
            return type(error), error.message, error.fields
    explicit = found.explicit_partitions
    return found.batch.to_pylist(), None if explicit is None else explicit.tolist()


@given(st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary(), headers), min_size=1, max_size=30))
def test_v2_binary_keeps_bytes(rows: list[tuple[Any, Any, Any]]) -> None:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    body = {"records": [{"key": text(k), "value": text(v), "headers": _header_objects(h)} for k, v, h in rows]}
    result = binary_v2.decode(json.dumps(body).encode(), now_ms=NOW_MS)
    assert same(result.batch, [{"key": k, "value": v, "headers": h} for k, v, h in rows])


@st.composite
def v3_records(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    row: dict[str, Any] = {}
    members = []
    for name in ("key", "value"):
        kind = draw(st.sampled_from(["BINARY", "JSON", "STRING", None]))
        if kind == "BINARY":
            row[name] = draw(st.binary(max_size=20))
            text = json.dumps(base64.b64encode(row[name]).decode())
        elif kind == "STRING":
            string = draw(texts)
            row[name], text = string.encode(), json.dumps(string)
        elif kind == "JSON":
            value = draw(json_values)
            text = draw(spelled(value))
            if value is not None:
                row[name] = (_without_spacing(text) if name == "key" else text.strip(" \t\r\n")).encode()
        if kind is not None:
            members.append(f'"{name}":{{"type":"{kind}","data":{text}}}')
    return "{" + ",".join(members) + "}", row


@given(st.lists(v3_records(), min_size=1, max_size=20), spaces, st.data())
def test_v3_stream_and_batch_agree(records: list[tuple[str, dict[str, Any]]], space: str, data: st.DataObject) -> None:
    stream = space.join(text for text, _ in records).encode() + space.encode()
    splitter, objects = ObjectSplitter(1 << 20), []
    while stream:
        size = data.draw(st.integers(1, max(1, len(stream))))
        objects += splitter.feed(stream[:size])
        stream = stream[size:]
    splitter.finish()
    assert objects == [text.encode() for text, _ in records]
    partly = json_v3.decode_records(objects, now_ms=NOW_MS)
    assert not partly.failures
    assert same(partly.decoded.batch, [row for _, row in records])
    entries = ",".join(f'{{"id":"{n}"{"," if text != "{}" else ""}{text[1:]}' for n, (text, _) in enumerate(records))
    ids, batch = json_v3.decode_batch(f'{{"entries":[{entries}]}}'.encode(), now_ms=NOW_MS)
    assert ids == [str(n) for n in range(len(records))]
    assert batch.decoded.batch.equals(partly.decoded.batch)


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def _openings(value: Any, depth: int, at: int = 1) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return (at == depth) + sum(_openings(item, depth, at + 1) for item in inner)


@given(st.data(), json_values, st.integers(1, 5))
def test_depth_and_count_are_those_of_the_parsed_value(data: st.DataObject, value: Any, limit: int) -> None:
    text = data.draw(spelled(value)).encode()
    assert (too_deep(text, limit, len(text)) is not None) == (_depth(value) > limit)
    assert count_openings(text, limit) == _openings(value, limit)
