from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.errors import CorruptData
from sluice.log_store.values import OffsetRange, TopicPartition
from sluice.streaming.spark.offsets import SourceOffset, plain

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "__x"]), st.integers(0, 20))
ranges = st.builds(lambda start, count: OffsetRange(start, start + count), st.integers(0, 2**62), st.integers(0, 9))


@given(
    found=st.dictionaries(partitions, ranges), stamp=st.dictionaries(st.sampled_from(["query", "batch"]), st.integers())
)
def test_an_offset_survives_its_json(found: dict[TopicPartition, OffsetRange], stamp: dict[str, int]):
    offset = SourceOffset(found, {tp.topic: f"id-{tp.topic}" for tp in found}, stamp)
    assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(found=st.dictionaries(partitions, ranges), order=st.randoms())
def test_the_text_does_not_depend_on_the_order_of_partitions(found: dict[TopicPartition, OffsetRange], order: Any):
    ids = {tp.topic: "i" for tp in found}
    shuffled = list(found.items())
    order.shuffle(shuffled)
    assert json.dumps(SourceOffset(found, ids).to_json()) == json.dumps(SourceOffset(dict(shuffled), ids).to_json())


def test_the_form_begins_like_that_of_the_kafka_source():
    tp = TopicPartition("orders", 0)
    offset = SourceOffset({tp: OffsetRange(5, 9)}, {"orders": "8c1f"}, {"generation": 3})
    assert offset.to_json() == {
        "orders": {"0": 9},
        "@": {"from": {"orders": {"0": 5}}, "ids": {"orders": "8c1f"}, "generation": 3},
    }
    assert plain({tp: 9}) == {"orders": {"0": 9}}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"orders": {"0": 9}},
        {"orders": {"0": 9}, "@": {"from": {}, "ids": {}}},
        {"orders": {"0": 9}, "@": {"from": {"orders": {"0": 5}}, "ids": {}}},
        {"orders": {"x": 9}, "@": {"from": {"orders": {"x": 5}}, "ids": {"orders": "i"}}},
        {"orders": 9, "@": {"from": {"orders": 5}, "ids": {"orders": "i"}}},
    ],
)
def test_a_foreign_checkpoint_is_refused(data: Any):
    with pytest.raises(CorruptData, match="not written by this source"):
        SourceOffset.from_json(data)
