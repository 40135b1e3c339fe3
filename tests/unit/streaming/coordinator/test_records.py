"""Keys, values and the replay of `__consumer_offsets`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.log_store.errors import CorruptData, UnsupportedFormat
from sluice.log_store.records import stored_table
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.records import (
    Committed,
    GroupKey,
    OffsetKey,
    batch_of,
    decode_committed,
    decode_key,
    encode_committed,
    group_key,
    offset_key,
)
from sluice.streaming.coordinator.replay import Replay
from tests import counts

KEY = OffsetKey("g", "t", 3)


def test_what_is_written_is_plain_json() -> None:
    assert json.loads(offset_key("g", TopicPartition("t", 3))) == {
        "type": "offset",
        "group": "g",
        "topic": "t",
        "partition": 3,
    }
    assert json.loads(group_key("müller")) == {"type": "group", "group": "müller"}
    committed = Committed(offset=7, metadata="", commit_ms=1, topic_id="id")
    assert json.loads(encode_committed(committed)) == {"offset": 7, "metadata": "", "commit_ms": 1, "topic_id": "id"}
    spark = Committed(offset=7, metadata="m", commit_ms=1, topic_id="id", leader_epoch=2, query="q", batch=9)
    assert json.loads(encode_committed(spark)).keys() >= {"leader_epoch", "query", "batch"}
    assert decode_committed(KEY, encode_committed(spark)) == spark


def test_what_a_newer_version_wrote_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedFormat):
        decode_key(b'{"type":"transaction","group":"g"}')


@pytest.mark.parametrize("data", [b"", b"{", b"\xff"])
def test_a_damaged_key_is_told(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_key(data)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"offset":"1"}', b"[]"])
def test_a_damaged_value_is_told(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_committed(KEY, data)


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("gh"), st.integers(0, 2), st.none() | st.integers(0, 9)), max_size=40))
def test_the_last_record_of_each_key_is_what_there_is(writes: list[tuple[str, int, int | None]]) -> None:
    expected: dict[str, dict[TopicPartition, int]] = {}
    rows = []
    for group, partition, offset in writes:
        where = TopicPartition("t", partition)
        value = None
        if offset is None:
            expected.get(group, {}).pop(where, None)
        else:
            value = encode_committed(Committed(offset=offset, metadata="", commit_ms=0, topic_id="i"))
            expected.setdefault(group, {})[where] = offset
        rows.append((offset_key(group, where), value))
    pieces = [batch_of(rows[at : at + 7], 5) for at in range(0, len(rows), 7)]
    batches = stored_table(pieces, 100).to_batches() if pieces else []
    replay = Replay().take(batches)
    found = {group: {at: one.offset for at, one in stored.offsets.items()} for group, stored in replay.groups().items()}
    assert found == {group: offsets for group, offsets in expected.items() if offsets}
    assert replay.end == (100 + len(rows) if rows else 0)


def test_a_group_without_a_record_of_its_own_is_a_simple_one() -> None:
    value = encode_committed(Committed(offset=1, metadata="", commit_ms=0, topic_id="i"))
    batch = batch_of([(offset_key("g", TopicPartition("t", 0)), value)], 5)
    (stored,) = Replay().take(stored_table([batch], 0).to_batches()).groups().values()
    assert stored.metadata is None
    assert isinstance(decode_key(group_key("g")), GroupKey)
