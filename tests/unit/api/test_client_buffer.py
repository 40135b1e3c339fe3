from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from sluice.api.client_buffer import Buffer, BufferLimits
from sluice.api.client_values import Record
from sluice.log_store.clock import ManualClock
from sluice.streaming.http_errors import BufferFull, ProducerClosed

NOTHING = Record(value=None).size


def buffer(**limits: int) -> tuple[Buffer, ManualClock]:
    clock = ManualClock()
    return Buffer(BufferLimits(**{"linger_ms": 1_000, "max_block_ms": 0, **limits}), clock), clock


def record(text: str = "") -> Record:
    return Record(value=text.encode())


def test_a_full_batch_does_not_linger():
    gathered, _ = buffer(batch_records=2)
    for text in "abc":
        gathered.add("t", record(text))
    batch = gathered.take()
    assert [one.value for one in batch.records] == [b"a", b"b"]


def test_a_batch_never_grows_beyond_its_bytes():
    gathered, _ = buffer(batch_bytes=2 * NOTHING + 3)
    for text in ("aa", "b", "c"):
        gathered.add("t", record(text))
    assert [one.value for one in gathered.take().records] == [b"aa", b"b"]


def test_a_batch_leaves_when_it_has_lingered():
    gathered, clock = buffer()
    gathered.add("t", record("a"))
    clock.advance(1.0)
    assert len(gathered.take().records) == 1


def test_topics_are_gathered_apart_and_leave_oldest_first():
    gathered, clock = buffer()
    for topic, text in (("x", "1"), ("y", "2"), ("x", "3")):
        gathered.add(topic, record(text))
    clock.advance(2.0)
    batches = [gathered.take(), gathered.take()]
    assert [(batch.topic, len(batch.records)) for batch in batches] == [("x", 2), ("y", 1)]


def test_a_table_keeps_its_place_behind_earlier_records_of_its_topic():
    gathered, clock = buffer()
    gathered.add("t", record("a"))
    gathered.add_table("t", pa.table({"value": [b"b"]}))
    gathered.add("t", record("c"))
    clock.advance(2.0)
    kinds = [batch.table is not None for batch in (gathered.take(), gathered.take(), gathered.take())]
    assert kinds == [False, True, False]


def test_a_full_buffer_refuses_after_its_patience_and_takes_again_when_there_is_room():
    gathered, _ = buffer(buffer_bytes=NOTHING + 1, batch_records=1)
    gathered.add("t", record("a"))
    with pytest.raises(BufferFull):
        gathered.add("t", record("b"))
    gathered.done(gathered.take())
    gathered.add("t", record("b"))


def test_a_record_larger_than_the_buffer_passes_when_nothing_else_is_there():
    gathered, _ = buffer(buffer_bytes=10)
    gathered.add("t", record("a" * 100))


def test_flush_sends_without_lingering_and_waits_for_the_answer():
    gathered, _ = buffer()
    gathered.add("t", record("a"))
    flushed = []
    thread = threading.Thread(target=lambda: flushed.append(gathered.flush(10)))
    thread.start()
    batch = gathered.take()
    assert not flushed
    gathered.done(batch)
    thread.join(60)
    assert flushed == [True]


def test_flush_says_when_time_ran_out():
    gathered, _ = buffer()
    gathered.add("t", record("a"))
    assert not gathered.flush(0.001)


def test_what_is_there_leaves_after_close_and_nothing_comes_in():
    gathered, _ = buffer()
    gathered.add("t", record("a"))
    gathered.close()
    with pytest.raises(ProducerClosed):
        gathered.add("t", record("b"))
    assert gathered.take() is not None
    assert gathered.take() is None


def test_abandoned_records_are_told():
    gathered, _ = buffer()
    future = gathered.add("t", record("a"))
    gathered.abandon(ProducerClosed("closed"))
    assert isinstance(future.exception(0), ProducerClosed)
    assert gathered.flush(0)
