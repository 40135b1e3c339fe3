from __future__ import annotations

import pytest

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.groups.subscription import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

FULL = Subscription(("b", "a"), (TopicPartition("a", 0), TopicPartition("b", 3)), 7, "x")


def test_a_subscription_is_readable_json():
    assert encode_subscription(FULL) == (
        b'{"topics":["b","a"],"owned_partitions":[["a",0],["b",3]],"generation":7,"user_data":"x"}'
    )
    assert encode_subscription(Subscription(("ü",))) == '{"topics":["ü"]}'.encode()


@pytest.mark.parametrize("subscription", [FULL, Subscription(()), Subscription(("t",), generation=0)])
def test_a_subscription_comes_back(subscription: Subscription):
    assert decode_subscription(encode_subscription(subscription)) == subscription


def test_unknown_fields_are_left_to_newer_clients():
    assert decode_subscription(b'{"topics": ["t"], "rack": "r1"}') == Subscription(("t",))


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"{}", "topics"),
        (b'{"topics":"t"}', "topics"),
        (b'{"topics":[1]}', "topics"),
        (b'{"topics":[],"owned_partitions":[["t"]]}', "owned_partitions"),
        (b'{"topics":[],"owned_partitions":[["t",-1]]}', "owned_partitions"),
        (b'{"topics":[],"owned_partitions":[["t",true]]}', "owned_partitions"),
        (b'{"topics":[],"owned_partitions":{}}', "owned_partitions"),
        (b'{"topics":[],"generation":"1"}', "generation"),
        (b'{"topics":[],"generation":-2}', "generation"),
        (b'{"topics":[],"user_data":5}', "user_data"),
    ],
)
def test_a_wrong_field_is_named(data: bytes, field: str):
    with pytest.raises(InvalidRequest) as refused:
        decode_subscription(data)
    assert refused.value.fields["field"] == field


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"nul", b"[" * 100_000])
def test_what_is_no_object_is_refused(data: bytes):
    with pytest.raises(InvalidRequest):
        decode_subscription(data)


def test_assignments():
    assignment = Assignment((TopicPartition("t", 1),), "x")
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert encode_assignment(Assignment()) == b'{"partitions":[]}'
    assert decode_assignment(b"") == Assignment()
    with pytest.raises(InvalidRequest):
        decode_assignment(b"{}")
