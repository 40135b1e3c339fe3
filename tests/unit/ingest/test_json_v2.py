"""v2 JSON: text is kept, rules are named (docs/http.md)."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sluice.ingest.json_v2 import decode
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import Decoded
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge
from sluice.log_store.records import MAX_TIMESTAMP_MS, RECORD_SCHEMA
from tests.support.bodies import NOW_MS, b64, rows_of, same, v2

MANY = 40  # more than the decoder calls few


def decoded(*records: bytes, limits: IngestLimits | None = None) -> Decoded:
    return decode(v2(*records), now_ms=NOW_MS, limits=limits or IngestLimits())


def values(*texts: bytes) -> list[bytes | None]:
    """Stored values, decoded both as a small and as a large request."""
    records = [b'{"value":' + text + b"}" for text in texts]
    few: list[bytes | None] = decoded(*records).batch.column("value").to_pylist()
    many: list[bytes | None] = decoded(*records * MANY).batch.column("value").to_pylist()
    assert many == few * MANY
    return few


def keys(*texts: bytes) -> list[bytes | None]:
    records = [b'{"key":' + text + b"}" for text in texts]
    few: list[bytes | None] = decoded(*records).batch.column("key").to_pylist()
    many: list[bytes | None] = decoded(*records * MANY).batch.column("key").to_pylist()
    assert many == few * MANY
    return few


def refused(body: bytes, field: str, rule: str = "") -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(body, now_ms=NOW_MS)
    assert caught.value.fields["field"] == field
    assert caught.value.message.startswith(f"{field}: ")
    assert rule in caught.value.message


def test_a_whole_record() -> None:
    record = {"key": {"id": 7}, "value": [1, 2], "partition": 3, "timestamp": 5}
    header = {"name": "h", "value": b64(b"\x00\xff")}
    result = decode(json.dumps({"records": [{**record, "headers": [header]}]}).encode(), now_ms=NOW_MS)
    assert result.batch.schema.equals(RECORD_SCHEMA)
    assert same(
        result.batch,
        [{"key": b'{"id":7}', "value": b"[1, 2]", "timestamp": 5, "headers": [("h", b"\x00\xff")]}],
    )
    assert result.explicit_partitions is not None
    assert result.explicit_partitions.tolist() == [3]
    assert result.explicit_partitions.dtype == np.int32
    assert result.count == 1


def test_the_value_is_the_text_that_was_sent() -> None:
    """docs/http.md: digits and inner spacing kept; white space around it is not part of it."""
    texts = [
        b"1.50",
        b'{ "b" : 1,\t"a":[ ] }',
        b'"\\u00e9 \xc3\xa9"',
        b"-0",
        b"1e999",
        b'""',
        b"false",
        b'{"a":1,"a":2}',
    ]
    assert values(*texts) == texts
    assert values(b" \n\t 5 \r\n ", b" null ") == [b"5", None]


def test_null_and_absent_values_are_tombstones() -> None:
    assert values(b"null", b'"null"', b"true", b"1234", b'""') == [None, b'"null"', b"true", b"1234", b'""']
    assert decoded(b'{"key":1}').batch.column("value").to_pylist() == [None]
    assert decoded(*[b"{}"] * MANY).batch.column("value").null_count == MANY


def test_spacing_never_changes_a_key() -> None:
    """docs/http.md: no white space outside strings; digits, escapes and the order of members stay."""
    texts = [b'{ "b" : [ 1.0 , 2 ],\r\n\t"a b" : "c \\" d" }', b'"New  York"', b" 1.0 ", b'[ "\\\\" , " " ]', b"null"]
    assert keys(*texts) == [b'{"b":[1.0,2],"a b":"c \\" d"}', b'"New  York"', b"1.0", b'["\\\\"," "]', None]
    assert keys(b'{"a":1}', b"[1]", b'"x"') == [b'{"a":1}', b"[1]", b'"x"']


def test_what_is_not_given_is_null_now_or_anywhere() -> None:
    result = decoded(b'{"value":1}', b'{"value":2,"key":null,"partition":null,"timestamp":null,"headers":null}')
    assert rows_of(result.batch) == [
        {"key": None, "value": value, "timestamp": NOW_MS, "headers": None} for value in (b"1", b"2")
    ]
    assert result.explicit_partitions is None
    mixed = decoded(b'{"partition":2,"timestamp":9}', b"{}")
    assert mixed.explicit_partitions is not None
    assert mixed.explicit_partitions.tolist() == [2, -1]
    assert [row["timestamp"] for row in rows_of(mixed.batch)] == [9, NOW_MS]


def test_headers_keep_order_and_repeats() -> None:
    texts = [
        b'{"headers":[{"name":"b","value":"QQ=="},{"name":"a"},{"value":null,"name":"b"},{"name":"","value":""}]}',
        b'{"headers":[]}',
        b"{}",
    ]
    expected = [[("b", b"A"), ("a", None), ("b", None), ("", b"")], [], None]
    assert [row["headers"] for row in rows_of(decoded(*texts).batch)] == expected


@pytest.mark.parametrize(
    "text",
    [b"NaN", b"Infinity", b"-Infinity", b"01", b"1.", b".5", b"+1", b"1e", b"-", b"tru", b"'a'", b"[1,]", b"[1 2]",
     b"{1:2}", b'{"a" 1}', b'{"a":1,}', b'"a\nb"', b'"\\q"', b'"\\u12g4"', b'"\x01"', b'"\\ud800"', b'"\\udc00"',
     b'"\\ud800\\ud800"', b"/*c*/1", b"\xc2\xa01", b'"open', b"[[1]", b""],
)  # fmt: skip
@pytest.mark.parametrize("member", [b"value", b"key"])
def test_text_that_is_no_json_is_refused(member: bytes, text: bytes) -> None:
    for count in (0, MANY):
        with pytest.raises(InvalidRequest, match=r"^body: ") as caught:
            decoded(*[b"{}"] * count, b'{"' + member + b'":' + text + b"}")
        assert caught.value.fields["field"] == "body"


@pytest.mark.parametrize("wrong", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_text_that_is_not_utf8_is_refused(wrong: bytes) -> None:
    for text in (b'{"value":"' + wrong + b'"}', b'{"value":{"' + wrong + b'":1}}', b'{"' + wrong + b'":1}'):
        refused(v2(text), "body", "UTF-8")
    assert values('"é€😀"'.encode()) == ['"é€😀"'.encode()]


@pytest.mark.parametrize(
    ("record", "field", "rule"),
    [
        (b'{"timestamp":true}', "timestamp", "must be int | null, not bool"),
        (b'{"timestamp":1.0}', "timestamp", "not float"),
        (b'{"timestamp":"1"}', "timestamp", "not str"),
        (b'{"timestamp":-1}', "timestamp", "must be int >= 0"),
        (b'{"timestamp":253402300800000}', "timestamp", "must be int <= 253402300799999"),
        (b'{"timestamp":' + b"9" * 30 + b"}", "timestamp", "must be int"),
        (b'{"timestamp":' + b"9" * 5000 + b"}", "timestamp", "out of range"),
        (b'{"partition":-1}', "partition", "must be int >= 0"),
        (b'{"partition":2147483648}', "partition", "must be int <= 2147483647"),
        (b'{"partition":0.5}', "partition", "not float"),
        (b'{"headers":{}}', "headers", "must be array | null, not object"),
        (b'{"headers":[1]}', "headers[0]", "must be object, not int"),
        (b'{"headers":[{"name":"a"},{"value":"QQ=="}]}', "headers[1].name", "must be given"),
        (b'{"headers":[{"name":null}]}', "headers[0].name", "must be str, not null"),
        (b'{"headers":[{"name":"a","value":"Q"}]}', "headers[0].value", "must be base64"),
        (b'{"headers":[{"name":"a","key":"b"}]}', "headers[0].key", "unknown field"),
        (b'{"topic":"x"}', "topic", "unknown field"),
        (b'{"value_schema_id":1}', "value_schema_id", "schemas are not supported"),
    ],
)
def test_a_refusal_names_record_field_and_rule(record: bytes, field: str, rule: str) -> None:
    refused(v2(b"{}", b"{}", record), f"records[2].{field}", rule)


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        (b"", "body", "truncated"),
        (b"[]", "body", "must be object, not array"),
        (b"null", "body", "must be object"),
        (b"{}", "records", "must be given"),
        (b'{"records":[]}', "records", "must not be empty"),
        (b'{"records":null}', "records", "must be array, not null"),
        (b'{"records":[1]}', "records[0]", "must be object, not int"),
        (b'{"records":[{}],"more":1}', "more", "unknown field"),
        (b'{"key_schema":"{}","records":[{}]}', "key_schema", "schemas are not supported"),
        (b'{"value_schema_id":7,"records":[{}]}', "value_schema_id", "schemas are not supported"),
        (v2(b"{}") + b"x", "body", "trailing"),
        (b"\xef\xbb\xbf" + v2(b"{}"), "body", "malformed"),
    ],
)
def test_a_body_of_another_shape_is_refused(body: bytes, field: str, rule: str) -> None:
    refused(body, field, rule)


def test_a_long_unknown_name_does_not_make_a_long_answer() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoded(b'{"' + b"x" * 100_000 + b'":1}')
    assert len(caught.value.message) < 400


def test_bounds_of_numbers_are_included() -> None:
    result = decoded(b'{"timestamp":0,"partition":0}', b'{"timestamp":%d,"partition":2147483647}' % MAX_TIMESTAMP_MS)
    assert [row["timestamp"] for row in rows_of(result.batch)] == [0, MAX_TIMESTAMP_MS]


@pytest.mark.parametrize("member", ["value", "key"])
@pytest.mark.parametrize("count", [1, MANY])
def test_nesting_is_limited(member: str, count: int) -> None:
    def nested(depth: int, name: str = member) -> bytes:
        return b'{"%s":' % name.encode() + b'[{"a":' * (depth // 2) + b"0" + b"}]" * (depth // 2) + b"}"

    fine = [nested(64)] * count
    assert decoded(*fine).count == count
    for depth in (66, 400, 3000, 100_000):
        with pytest.raises(InvalidRequest, match="nested"):
            decoded(*fine, nested(depth))
    with pytest.raises(InvalidRequest, match=rf"records\[{count}\].{member}: must not be nested deeper than 64"):
        decoded(*fine, nested(66), nested(66))
    assert decoded(nested(10), limits=IngestLimits(max_depth=10)).count == 1
    with pytest.raises(InvalidRequest):
        decoded(nested(12), limits=IngestLimits(max_depth=10))


def test_wide_values_and_brackets_in_strings_are_not_deep() -> None:
    flat = b'{"value":[' + b",".join([b'{"a":"\\\\\\"[[{{"}'] * 5_000) + b"]}"
    strings = b'{"value":"' + b"[" * 5_000 + b'"}'
    assert decoded(*[flat, strings] * 20).count == 40


def test_the_number_of_records_is_limited() -> None:
    limits = IngestLimits(max_records=100)
    assert decoded(*[b'{"value":{"a":{}}}'] * 100, limits=limits).count == 100
    for record in (b"{}", b'{"value":{"a":{}}}'):
        with pytest.raises(RecordListTooLarge, match="records: must not be more than 100"):
            decoded(*[record] * 101, limits=limits)


def test_headers_are_limited_in_number_and_size() -> None:
    limits = IngestLimits(max_headers=3, max_header_bytes=20, max_request_headers=5)
    one = b'{"name":"12345","value":"MTIzNDU="}'

    def record(count: int, header: bytes = one) -> bytes:
        return b'{"headers":[' + b",".join([header] * count) + b"]}"

    assert decoded(record(2), record(2), limits=limits).count == 2
    with pytest.raises(InvalidRequest, match=r"records\[1\].headers: must not be larger than 20 bytes"):
        decoded(b"{}", record(3), limits=limits)
    small = b'{"name":""}'
    with pytest.raises(InvalidRequest, match=r"records\[1\].headers: must not be more than 3"):
        decoded(b"{}", record(4, small), limits=limits)
    with pytest.raises(RecordListTooLarge, match="headers: a request must not have more than 5"):
        decoded(record(3, small), record(3, small), limits=limits)


def test_the_last_of_two_members_of_one_name_counts() -> None:
    assert values(b'1,"value":2') == [b"2"]
