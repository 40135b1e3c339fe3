from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.api.client_consumer_buffer import Buffer, Piece
from sluice.api.client_consumer_positions import Question
from sluice.log_store.values import TopicPartition
from tests.counts import HYPOTHESIS_EXAMPLES
from tests.support.scripted_service import stored


def piece(number: int, first: int, count: int, following: int | None = None) -> Piece:
    table = pa.Table.from_batches([stored([b"x"] * count, first)])
    question = Question(TopicPartition("t", number), first, 1)
    return Piece(question, table, first + count if following is None else following)


def take(buffer: Buffer, most: int, **rules) -> list[Piece]:
    wanted, held = rules.get("wanted", lambda _: True), rules.get("held", lambda _: False)
    return buffer.take(most, wanted, held)


@settings(max_examples=HYPOTHESIS_EXAMPLES, deadline=None)
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=4), takes=st.lists(st.integers(1, 20), max_size=60))
def test_rows_come_out_once_in_order_and_in_turns(counts: list[int], takes: list[int]):
    buffer = Buffer()
    for number, count in enumerate(counts):
        buffer.put(piece(number, 100, count, following=500))
    got: dict[int, list[int]] = {number: [] for number in range(len(counts))}
    following = {}
    for most in [*takes, 10_000]:
        found = take(buffer, most)
        assert sum(one.table.num_rows for one in found) <= most
        for one in found:
            offsets = one.table.column("offset").to_pylist()
            got[one.partition.partition] += offsets
            following[one.partition.partition] = one.next_offset
            assert one.next_offset in (offsets[-1] + 1, 500)
    assert got == {number: list(range(100, 100 + count)) for number, count in enumerate(counts)}
    assert set(following.values()) == {500}
    assert buffer.bytes == 0


def test_partitions_take_turns():
    buffer = Buffer()
    buffer.put(piece(0, 0, 4))
    buffer.put(piece(1, 0, 4))
    assert [one.partition.partition for _ in range(4) for one in take(buffer, 2)] == [0, 1, 0, 1]


def test_what_is_held_back_stays_and_what_is_not_wanted_goes():
    buffer = Buffer()
    buffer.put(piece(0, 0, 2))
    buffer.put(piece(1, 0, 2))
    assert take(buffer, 9, held=lambda one: one.partition == 0, wanted=lambda q: q.partition.partition == 0) == []
    assert TopicPartition("t", 0) in buffer
    assert TopicPartition("t", 1) not in buffer
    assert len(take(buffer, 9)) == 1
