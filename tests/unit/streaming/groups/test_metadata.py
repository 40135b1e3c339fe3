"""The stored group: readable, exact, and refused when it is damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.log_store.errors import CorruptData, UnsupportedFormat
from sluice.streaming.groups import GroupMetadata, decode_metadata, encode_metadata
from sluice.streaming.groups.state import Member, ProtocolOffer
from tests.counts import HYPOTHESIS_EXAMPLES

ONE = GroupMetadata(
    generation=4,
    protocol_type="consumer",
    protocol="range",
    leader="m",
    members=(
        Member(
            member_id="m",
            instance_id="i",
            client_id="c",
            client_host="h",
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            protocols=(ProtocolOffer("range", b'{"topics":["orders"]}'), ProtocolOffer("raw", b"\x00\xff")),
            assignment=b'{"partitions":[["orders",0]]}',
        ),
    ),
    current_state_timestamp_ms=1_700_000_000_000,
)


def test_it_can_be_read_by_people():
    assert json.loads(encode_metadata(ONE)) == {
        "format": 1,
        "protocol_type": "consumer",
        "protocol": "range",
        "generation": 4,
        "leader": "m",
        "current_state_timestamp": 1_700_000_000_000,
        "members": [
            {
                "member_id": "m",
                "instance_id": "i",
                "client_id": "c",
                "client_host": "h",
                "session_timeout_ms": 45_000,
                "rebalance_timeout_ms": 300_000,
                "protocols": [
                    {"name": "range", "metadata": {"json": {"topics": ["orders"]}}},
                    {"name": "raw", "metadata": {"base64": "AP8="}},
                ],
                "assignment": {"json": {"partitions": [["orders", 0]]}},
            }
        ],
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
payloads = (
    st.binary(max_size=20)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    | st.sampled_from(
        [
            b"",
            b"{ }",
            b'{"a":1,"a":2}',
            b'"\\ud800"',
            b'{"json":1}',
            b'{"base64":"AA=="}',
            b"NaN",
            b"1e400",
            b"-0",
            b"1.0",
            b"[" * 5_000 + b"]" * 5_000,
            b"\xef\xbb\xbf{}",
        ]
    )
)


@st.composite
def groups(draw: st.DrawFn) -> GroupMetadata:
    names = draw(st.lists(texts, unique=True, max_size=4))
    protocol = draw(texts)
    members = tuple(
        Member(
            member_id=name,
            instance_id=draw(st.sampled_from([None, f"i-{name}"])),
            client_id=draw(texts),
            client_host=draw(texts),
            session_timeout_ms=draw(st.integers(1, 10**9)),
            rebalance_timeout_ms=draw(st.integers(1, 10**9)),
            protocols=(ProtocolOffer(protocol, draw(payloads)), ProtocolOffer(protocol + "2", draw(payloads))),
            assignment=draw(payloads),
        )
        for name in names
    )
    return GroupMetadata(
        generation=draw(st.integers(0, 2**31)),
        protocol_type=draw(st.none() | texts),
        protocol=protocol if members else None,
        leader=draw(st.sampled_from(names)) if names else None,
        members=members,
        current_state_timestamp_ms=draw(st.integers(0, 2**50)),
    )


@settings(max_examples=HYPOTHESIS_EXAMPLES)
@given(groups())
def test_it_comes_back_as_it_was(metadata: GroupMetadata):
    assert decode_metadata(encode_metadata(metadata)) == metadata


def damaged(**changes: Any) -> bytes:
    return json.dumps(json.loads(encode_metadata(ONE)) | changes).encode()


def damaged_member(**changes: Any) -> bytes:
    (member,) = json.loads(encode_metadata(ONE))["members"]
    return damaged(members=[member | changes])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        encode_metadata(ONE)[:-1],
        damaged(format="1"),
        damaged(generation=None),
        damaged(generation=True),
        damaged(protocol=7),
        damaged(protocol="sticky"),
        damaged(leader="x"),
        damaged(leader=None),
        damaged(members=[]),
        damaged(members={}),
        damaged(members=[1]),
        damaged(members=json.loads(encode_metadata(ONE))["members"] * 2),
        damaged_member(session_timeout_ms="1"),
        damaged_member(assignment=None),
        damaged_member(assignment={"base64": "?"}),
        damaged_member(assignment={"hex": ""}),
        damaged_member(protocols=[{"name": "range"}]),
        damaged_member(protocols=[]),
    ],
)
def test_damage_is_not_accepted(data: bytes):
    with pytest.raises(CorruptData):
        decode_metadata(data)


def test_a_newer_format_is_left_alone():
    with pytest.raises(UnsupportedFormat):
        decode_metadata(damaged(format=2))
