from __future__ import annotations

from typing import Any

import pytest

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors import Member, Strategy, parse_question

BASE: dict[str, Any] = {"partitions_per_topic": {"t": 2}, "subscriptions": {"c": ["t"]}}


def test_a_full_question():
    question = parse_question(
        {
            "strategy": "sticky",
            "partitions_per_topic": {"t": 2, "empty": 0},
            "subscriptions": {"b": ["t", "t"], "a": []},
            "previous": {"b": [["t", 0], ["t", 0]], "left": [["t", 1]]},
            "previous_generation": {"b": 4, "left": 5},
            "instance_ids": {"a": "one", "b": None, "left": "two"},
            "name": "what else is said is passed over",
        }
    )
    assert question.strategy is Strategy.STICKY
    assert question.partitions_per_topic == {"t": 2, "empty": 0}
    assert question.members == (
        Member(member_id="b", topics=frozenset({"t"}), owned=frozenset({TopicPartition("t", 0)}), generation=4),
        Member(member_id="a", topics=frozenset(), instance_id="one"),
    )


@pytest.mark.parametrize("extra", [{}, dict.fromkeys(["strategy", "previous", "previous_generation", "instance_ids"])])
def test_what_is_optional_may_be_missing_or_null(extra: dict[str, None]):
    question = parse_question({**BASE, **extra})
    assert question.strategy is None
    assert question.members == (Member(member_id="c", topics=frozenset({"t"})),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions_per_topic": None}, r"^partitions_per_topic: must be an object, not None"),
        ({"partitions_per_topic": {"t": "2"}}, r"^partitions_per_topic\['t'\]: must be an integer, not '2'"),
        ({"partitions_per_topic": {"t": True}}, r"^partitions_per_topic\['t'\]: must be an integer"),
        ({"partitions_per_topic": {"t": 1.0}}, r"^partitions_per_topic\['t'\]: must be an integer"),
        ({"subscriptions": ["c"]}, r"^subscriptions: must be an object"),
        ({"subscriptions": {"c": "t"}}, r"^subscriptions\['c'\]: must be a list of topics, not 't'"),
        ({"subscriptions": {"c": None}}, r"^subscriptions\['c'\]: must be a list of topics"),
        ({"subscriptions": {"c": ["t", 5]}}, r"^subscriptions\['c'\]\[1\]: must be a string, not 5"),
        ({"previous": []}, r"^previous: must be an object"),
        ({"previous": {"c": "t-0"}}, r"^previous\['c'\]: must be a list of \[topic, partition\]"),
        ({"previous": {"c": [["t"]]}}, r"^previous\['c'\]\[0\]: must be \[topic, partition\], not \['t'\]"),
        ({"previous": {"c": [["t", 0], {"t": 0}]}}, r"^previous\['c'\]\[1\]: must be \[topic, partition\]"),
        ({"previous": {"c": [["t", "0"]]}}, r"^previous\['c'\]\[0\]\[1\]: must be an integer"),
        ({"previous": {"gone": [[0, 0]]}}, r"^previous\['gone'\]\[0\]\[0\]: must be a string"),
        ({"previous_generation": {"c": "1"}}, r"^previous_generation\['c'\]: must be an integer"),
        ({"instance_ids": {"c": 1}}, r"^instance_ids\['c'\]: must be a string"),
        ({"strategy": 1}, r"^strategy: must be a string, not 1"),
        ({"strategy": "best"}, r"^strategy 'best' is none of range, roundrobin"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], message: str):
    with pytest.raises(InvalidRequest, match=message):
        parse_question({**BASE, **change})


@pytest.mark.parametrize("missing", list(BASE))
def test_a_missing_field_is_named(missing: str):
    with pytest.raises(InvalidRequest, match=f"^{missing}: is missing"):
        parse_question({name: value for name, value in BASE.items() if name != missing})


def test_a_long_value_is_shortened_in_the_message():
    with pytest.raises(InvalidRequest) as caught:
        parse_question({**BASE, "subscriptions": "x" * 10_000})
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("value", [None, 5, "text", [[]]])
def test_a_question_is_an_object(value: object):
    with pytest.raises(InvalidRequest, match="must be an object"):
        parse_question(value)
