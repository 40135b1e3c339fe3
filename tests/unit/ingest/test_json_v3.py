"""v3 records: one, a stream, a batch (docs/http.md)."""

from __future__ import annotations

import pytest

from sluice.ingest.json_v3 import decode_batch, decode_record, decode_records
from sluice.ingest.limits import IngestLimits
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge, SluiceError
from sluice.log_store.records import MAX_TIMESTAMP_MS
from tests.support.bodies import NOW_MS, entries, rows_of, same


def refusal(body: bytes) -> SluiceError:
    with pytest.raises(InvalidRequest) as caught:
        decode_record(body, now_ms=NOW_MS)
    assert caught.value.message.startswith(f"{caught.value.fields['field']}: ")
    return caught.value


def stored(data: bytes, member: str = "value") -> bytes | None:
    partly = decode_record(b'{"%s":%s}' % (member.encode(), data), now_ms=NOW_MS)
    value: bytes | None = partly.decoded.batch.column(member)[0].as_py()
    return value


def test_a_whole_record() -> None:
    partly = decode_record(
        b'{"partition_id":2,"headers":[{"name":"h","value":"QQ=="}],"key":{"type":"STRING","data":"k\\u00e9"},'
        b'"value":{"type":"BINARY","data":"AP8="},"timestamp":"2024-01-02T03:04:05.678Z"}',
        now_ms=NOW_MS,
    )
    row = {"key": "ké".encode(), "value": b"\x00\xff", "timestamp": 1704164645678, "headers": [("h", b"A")]}
    assert same(partly.decoded.batch, [row])
    assert partly.decoded.explicit_partitions is not None
    assert partly.decoded.explicit_partitions.tolist() == [2]
    assert (partly.key_types, partly.value_types) == (["STRING"], ["BINARY"])


def test_types() -> None:
    assert stored(b'{"type":"JSON","data": { "a" : 1.0 } }') == b'{ "a" : 1.0 }'
    assert stored(b'{"type":"JSON","data": { "a" : 1.0 } }', "key") == b'{"a":1.0}'
    assert stored(b'{"type":"STRING","data":""}') == b""
    assert stored(b'{"type":"BINARY","data":""}') == b""
    assert stored(b'{"type":"JSON","data":""}') == b'""'
    for kind in (b"JSON", b"STRING", b"BINARY"):
        assert stored(b'{"type":"%s","data":null}' % kind) is None
        assert stored(b'{"type":"%s"}' % kind) is None
    assert stored(b"null") is None
    empty = decode_record(b"{}", now_ms=NOW_MS)
    assert same(empty.decoded.batch, [{}])
    assert (empty.key_types, empty.value_types) == ([None], [None])


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        (b'{"value":{"type":"AVRO","data":1}}', "value.type", "AVRO is not supported"),
        (b'{"key":{"type":"PROTOBUF","data":1}}', "key.type", "PROTOBUF is not supported"),
        (b'{"key":{"type":"JSONSCHEMA","data":1}}', "key.type", "JSONSCHEMA is not supported"),
        (b'{"value":{"type":"json","data":1}}', "value.type", "must be BINARY, JSON or STRING"),
        (b'{"value":{"data":1}}', "value.type", "must be given"),
        (b'{"value":{"type":"JSON","schema_id":1,"data":1}}', "value.schema_id", "schemas are not supported"),
        (b'{"value":{"type":"JSON","subject":"s","data":1}}', "value.subject", "schemas are not supported"),
        (b'{"value":{"type":"STRING","data":1}}', "value.data", "must be str | null, not int"),
        (b'{"value":{"type":"BINARY","data":"Q"}}', "value.data", "must be base64"),
        (b'{"value":5}', "value", "must be object | null, not int"),
        (b'{"partition_id":-1}', "partition_id", "must be int >= 0"),
        (b'{"partition":1}', "partition", "unknown field"),
        (b'{"headers":[{"name":1}]}', "headers[0].name", "must be str"),
        (b'{"timestamp":"2024-01-02T03:04:05"}', "timestamp", "timezone"),
        (b'{"timestamp":"yesterday"}', "timestamp", "RFC3339"),
        (b'{"timestamp":"1969-12-31T23:59:59.999Z"}', "timestamp", "from 1970"),
        (b'{"timestamp":"9999-12-31T23:59:59-01:00"}', "timestamp", "end of 9999"),
        (b'{"timestamp":-1}', "timestamp", "must be int >= 0"),
        (b'{"timestamp":1.5}', "timestamp", "not float"),
        (b'{"timestamp":true}', "timestamp", "not bool"),
        (b'{"value":{"type":"JSON","data":' + b"[" * 70 + b"]" * 70 + b"}}", "value.data", "nested deeper than 64"),
        (b'{"value":{"type":"JSON","data":' + b"[" * 9999, "body", "nested too deeply"),
        (b'{"value":{"type":"JSON","data":NaN}}', "body", "malformed"),
        (b'{"value":{"type":"STRING","data":"\xff"}}', "body", "UTF-8"),
        (b"{}{}", "body", "trailing"),
        (b"[]", "body", "must be object"),
        (b"", "body", "truncated"),
    ],
)
def test_a_refusal_names_field_and_rule(body: bytes, field: str, rule: str) -> None:
    error = refusal(body)
    assert error.fields["field"] == field
    assert rule in error.message


def test_timestamps() -> None:
    texts = [
        b"5",
        b'"1970-01-01T00:00:00.005999Z"',
        b'"1970-01-01T01:00:00.005+01:00"',
        b"%d" % MAX_TIMESTAMP_MS,
        b"null",
    ]
    partly = decode_records([b'{"timestamp":%s}' % text for text in texts], now_ms=NOW_MS)
    stamps = [row["timestamp"] for row in rows_of(partly.decoded.batch)]
    assert stamps == [5, 5, 5, MAX_TIMESTAMP_MS, NOW_MS]


def test_a_record_of_a_stream_fails_alone() -> None:
    objects = [b"{}", b'{"x":1}', b'{"key":{"type":"JSON","data":1}}', b"{nonsense}", b'{"value":{"type":"X"}}', b"{}"]
    partly = decode_records(objects, now_ms=NOW_MS)
    assert partly.indices == [0, 2, 5]
    assert [failure.index for failure in partly.failures] == [1, 3, 4]
    assert same(partly.decoded.batch, [{}, {"key": b"1"}, {}])
    nothing = decode_records([b"nonsense"], now_ms=NOW_MS)
    assert (nothing.decoded.count, len(nothing.failures)) == (0, 1)
    assert decode_records([], now_ms=NOW_MS).decoded.count == 0


def test_an_entry_of_a_batch_fails_alone() -> None:
    value = b'"value":{"type":"JSON","data":%d}'
    good = entries(b'{"id":"a",' + value % 1 + b"}", b'{"id":"b",' + value % 2 + b"}")
    ids, partly = decode_batch(good, now_ms=NOW_MS)
    assert (ids, partly.indices, partly.failures) == (["a", "b"], [0, 1], [])
    for wrong, field in (
        (b'{"id":"x","value":{"type":"AVRO"}}', "entries[1].value.type"),
        (b'{"id":"x","value":7}', "entries[1].value"),
        (b'{"id":"x","headers":[{}]}', "entries[1].headers[0].name"),
        (b'{"id":"x","more":7}', "entries[1].more"),
        (b'{"id":"x","timestamp":"x"}', "entries[1].timestamp"),
        (b'{"id":"x","value":{"type":"JSON","data":' + b"[" * 70 + b"]" * 70 + b"}}", "entries[1].value.data"),
    ):
        ids, partly = decode_batch(entries(b'{"id":"a"}', wrong, b'{"id":"b"}'), now_ms=NOW_MS)
        assert (ids, partly.indices) == (["a", "x", "b"], [0, 2])
        (failure,) = partly.failures
        assert (failure.index, failure.error.fields["field"]) == (1, field)
        assert failure.error.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (entries(), "entries"),
        (entries(b"{}"), "entries[0].id"),
        (entries(b'{"id":""}'), "entries[0].id"),
        (entries(b'{"id":"' + b"x" * 81 + b'"}'), "entries[0].id"),
        (entries(b'{"id":7}'), "entries[0].id"),
        (entries(b'{"id":"a"}', b'{"id":"b"}', b'{"id":"a"}'), "entries[2].id"),
        (entries(b'{"id":"a","value":7}', b'{"id":"a"}'), "entries[1].id"),
        (entries(b'{"id":"a"}', b"7"), "entries[1]"),
        (b"{}", "entries"),
        (b'{"entries":[{"id":"a"}],"more":1}', "more"),
        (b'{"entries":[{"id":"a"}', "body"),
        (b'{"entries":[{"id":"\xff"}]}', "body"),
    ],
)
def test_a_batch_with_wrong_ids_or_shape_is_refused_whole(body: bytes, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_batch(body, now_ms=NOW_MS)
    assert caught.value.fields["field"] == field


def test_limits() -> None:
    many = [b'{"id":"%d"}' % n for n in range(11)]
    limits = IngestLimits(max_entries=10, max_headers=1, max_header_bytes=3)
    assert decode_batch(entries(*many[:10]), now_ms=NOW_MS, limits=limits)[1].decoded.count == 10
    with pytest.raises(RecordListTooLarge, match="entries: must not be more than 10"):
        decode_batch(entries(*many), now_ms=NOW_MS, limits=limits)
    longest = "é" * 80
    assert decode_batch(entries(f'{{"id":"{longest}"}}'.encode()), now_ms=NOW_MS)[0] == [longest]
    for headers in (b'[{"name":"a"},{"name":"b"}]', b'[{"name":"\xc3\xa9\xc3\xa9"}]'):
        with pytest.raises(InvalidRequest, match="headers: must not be"):
            decode_record(b'{"headers":' + headers + b"}", now_ms=NOW_MS, limits=limits)
