from __future__ import annotations

import pytest

from sluice.ingest.binary_v2 import decode
from sluice.ingest.limits import IngestLimits
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge
from tests.support.bodies import NOW_MS, rows_of, same, v2


def test_base64_is_stored_decoded() -> None:
    body = v2(
        b'{"key":"AP8=","value":"e30=","partition":1,"timestamp":5,"headers":[{"name":"h","value":"QQ=="}]}',
        b'{"key":"","value":""}',
        b'{"key":null,"value":null}',
        b"{}",
    )
    result = decode(body, now_ms=NOW_MS)
    assert same(
        result.batch,
        [
            {"key": b"\x00\xff", "value": b"{}", "timestamp": 5, "headers": [("h", b"A")]},
            {"key": b"", "value": b""},
            {},
            {},
        ],
    )
    assert result.explicit_partitions is not None
    assert result.explicit_partitions.tolist() == [1, -1, -1, -1]


@pytest.mark.parametrize("text", ["Q", "QQ", "QQ=", "Q Q=", "QQ==QQ==", "====", "-_8=", "QQ\\n==", "é==="])
@pytest.mark.parametrize("member", ["key", "value"])
def test_anything_but_base64_is_refused(member: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match="must be base64") as caught:
        decode(v2(b"{}", f'{{"{member}":"{text}"}}'.encode()), now_ms=NOW_MS)
    assert caught.value.fields["field"] == f"records[1].{member}"


@pytest.mark.parametrize("text", [b"1", b"{}", b"[]", b"true"])
def test_key_and_value_are_strings(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"records\[0\].value: must be"):
        decode(v2(b'{"value":' + text + b"}"), now_ms=NOW_MS)


def test_the_other_rules_are_those_of_v2_json() -> None:
    for record in (b'{"timestamp":-1}', b'{"partition":"1"}', b'{"headers":3}', b'{"x":1}', b'{"key_schema":1}'):
        with pytest.raises(InvalidRequest, match=r"^records\[0\]\."):
            decode(v2(record), now_ms=NOW_MS)
    for body in (b"", b"[]", b'{"records":[]}', b'{"records":[{"value":"\xff"}]}'):
        with pytest.raises(InvalidRequest):
            decode(body, now_ms=NOW_MS)
    with pytest.raises(RecordListTooLarge):
        decode(v2(*[b"{}"] * 11), now_ms=NOW_MS, limits=IngestLimits(max_records=10))


def test_missing_timestamps_become_now() -> None:
    assert rows_of(decode(v2(b"{}"), now_ms=77).batch)[0]["timestamp"] == 77
