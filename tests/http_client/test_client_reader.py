from __future__ import annotations

import threading
from itertools import islice

import pytest

from sluice.api.client import At, Last, Record, SluiceClient
from sluice.log_store.errors import OffsetOutOfRange, UnknownTopicOrPartition
from sluice.streaming.http_errors import ClientClosed


@pytest.fixture
def filled(client: SluiceClient, topic: str) -> str:
    """Ten records in partition 1 with timestamps 1000, 2000 … and one in partition 0."""
    client.produce(topic, [Record(value=b"%d" % n, partition=1, timestamp_ms=(n + 1) * 1000) for n in range(10)])
    client.produce(topic, [Record(value=b"other", partition=0, timestamp_ms=1)])
    return topic


def read(client: SluiceClient, topic: str, **options) -> list[int]:
    return [record.offset for record in client.reader(topic, partitions=(1,), stop_at_end=True, **options)]


@pytest.mark.parametrize("response_format", ["arrow", "json"])
def test_both_formats_give_the_same(client: SluiceClient, filled: str, response_format):
    fetched = client.fetch(filled, 1, 3, max_records=2, response_format=response_format)
    assert [(one.offset, one.value, one.timestamp_ms) for one in fetched.records] == [(3, b"3", 4000), (4, b"4", 5000)]
    assert (fetched.high_watermark, fetched.log_start_offset, fetched.next_offset) == (10, 0, 5)
    assert read(client, filled, response_format=response_format) == list(range(10))


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        ("earliest", range(10)),
        ("latest", []),
        (7, [7, 8, 9]),
        (Last(count=2), [8, 9]),
        (Last(count=99), range(10)),
        (At(timestamp_ms=8_500), [8, 9]),
        (At(timestamp_ms=99_000), []),
        ({1: 9}, [9]),
    ],
)
def test_a_reader_starts_where_it_is_told(client: SluiceClient, filled: str, start, offsets):
    assert read(client, filled, start=start) == list(offsets)


def test_small_fetches_join_up(client: SluiceClient, filled: str):
    assert read(client, filled, max_records=3) == list(range(10))


def test_a_whole_topic_is_read_and_positions_say_where_to_go_on(client: SluiceClient, filled: str):
    reader = client.reader(filled, stop_at_end=True)
    assert len(list(reader)) == 11
    assert reader.positions == {0: 1, 1: 10, 2: 0}
    assert list(client.reader(filled, start=reader.positions, stop_at_end=True)) == []


def test_tables_hold_what_the_records_are(client: SluiceClient, filled: str):
    wanted = sorted((one.partition, one.offset, one.value) for one in client.reader(filled, stop_at_end=True))
    reader = client.reader(filled, stop_at_end=True, max_records=4, response_format="json")
    tables = [(partition, found.table.to_pylist()) for partition, found in reader.tables()]
    assert sorted((p, row["offset"], row["value"]) for p, rows in tables for row in rows) == wanted
    assert max(len(rows) for _, rows in tables) == 4
    assert reader.positions == {0: 1, 1: 10, 2: 0}
    whole = client.reader(filled, partitions=(1,), stop_at_end=True)
    assert [found.table.num_rows for _, found in whole.tables()] == [10]


def test_a_record_comes_back_as_it_was_sent(client: SluiceClient, topic: str):
    sent = [
        Record(value=b"a", partition=0, timestamp_ms=1, headers=[("h", b"1"), ("h", None)]),
        Record(value=None, key=b"k", partition=0, timestamp_ms=2),
        Record(value=b"", key=b"", partition=0, timestamp_ms=3),
    ]
    client.produce(topic, sent)
    for response_format in ("arrow", "json"):
        found = client.fetch(topic, 0, 0, response_format=response_format).records  # type: ignore[arg-type]
        assert [(one.topic, one.partition, one.offset) for one in found] == [(topic, 0, number) for number in range(3)]
        assert [(one.key, one.value, one.timestamp_ms, list(one.headers)) for one in found] == [
            (one.key, one.value, one.timestamp_ms, list(one.headers)) for one in sent
        ]


def test_stopping_at_the_end_means_the_end_at_the_start(client: SluiceClient, filled: str):
    reader = client.reader(filled, partitions=(1,), stop_at_end=True)
    client.produce(filled, [Record(value=b"late", partition=1)])
    assert len(list(reader)) == 10


def test_a_waiting_reader_is_woken(client: SluiceClient, filled: str):
    with client.reader(filled, start="latest", max_wait_ms=20_000) as reader:
        timer = threading.Timer(0.2, lambda: client.produce(filled, [Record(value=b"new", partition=2)]))
        timer.start()
        (record,) = islice(reader, 1)
        timer.join()
    assert (record.partition, record.value) == (2, b"new")


def test_closing_the_client_under_waiting_readers_ends_them(client: SluiceClient, server, topic: str):
    with SluiceClient(server.url) as own:
        reader = iter(own.reader(topic, max_wait_ms=300))
        client.produce(topic, [Record(value=b"a", partition=0)])
        assert next(reader).value == b"a"
    with pytest.raises(ClientClosed):
        next(reader)


def test_an_offset_outside_the_log_is_an_error_or_a_reset(client: SluiceClient, filled: str):
    client.delete_records(filled, {1: 5})
    with pytest.raises(OffsetOutOfRange):
        read(client, filled, start=2)
    assert read(client, filled, start=2, out_of_range="earliest") == [5, 6, 7, 8, 9]


def test_offsets_and_deletion(client: SluiceClient, filled: str):
    client.delete_records(filled, {0: 1, 1: 4})
    assert [(one.earliest, one.latest) for one in client.offsets(filled)] == [(1, 1), (4, 10), (0, 0)]
    assert client.offset_at(filled, 1, 6_000) == 5
    with pytest.raises(OffsetOutOfRange):
        client.delete_records(filled, {1: 99})


def test_columns_come_as_columns(client: SluiceClient, filled: str):
    found = client.fetch_arrow(filled, 1, 0)
    assert found.table.column("offset").to_pylist() == list(range(10))
    assert found.next_offset == 10


def test_what_is_not_there(client: SluiceClient, filled: str):
    with pytest.raises(UnknownTopicOrPartition):
        client.reader("none-such")
    with pytest.raises(UnknownTopicOrPartition):
        client.reader(filled, partitions=(7,))


def test_an_error_in_one_partition_ends_the_whole_reader(client: SluiceClient, filled: str):
    reader = client.reader(filled, start={0: 0, 1: 99, 2: 0})
    with pytest.raises(OffsetOutOfRange):
        list(reader)
