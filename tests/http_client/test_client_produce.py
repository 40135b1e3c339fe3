from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from sluice.api.client import BufferFull, BufferLimits, Delivery, FetchedRecord, ProducerClosed, Record, SluiceClient
from sluice.log_store.errors import InvalidRequest, SluiceError
from tests.http_client.transports import Follows, LosesAnswers
from tests.support.server import running

MANY = 2_000


def everything(client: SluiceClient, topic: str) -> list[FetchedRecord]:
    return list(client.reader(topic, stop_at_end=True))


def values(client: SluiceClient, topic: str) -> list[bytes | None]:
    return [record.value for record in everything(client, topic)]


def test_one_request_carries_everything_a_record_has(client: SluiceClient, topic: str):
    full = Record(
        value=b"\xff\0", key=b"k", partition=2, timestamp_ms=1_700_000_000_001, headers=[("h", b"x"), ("n", None)]
    )
    told = client.produce(topic, [full, Record(value=None, partition=2)])
    assert told == [Delivery(topic=topic, partition=2, offset=0), Delivery(topic=topic, partition=2, offset=1)]
    first, second = everything(client, topic)
    assert (first.key, first.value, first.timestamp_ms, first.partition) == (b"k", b"\xff\0", 1_700_000_000_001, 2)
    assert list(first.headers) == [("h", b"x"), ("n", None)]
    assert (second.key, second.value, second.headers) == (None, None, [])


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_compressed_requests_arrive(client: SluiceClient, topic: str, compression):
    client.produce(topic, [Record(value=b"one")], compression=compression, partition=0)
    client.produce_arrow(topic, pa.table({"value": [b"two"]}), compression=compression, partition=0)
    assert values(client, topic) == [b"one", b"two"]


def test_acks_are_passed_on(client: SluiceClient, topic: str):
    assert client.produce(topic, [Record(value=b"v", partition=1)], acks="1")[0].offset == 0
    assert client.produce(topic, [Record(value=b"v", partition=1)], acks="0")[0].offset == -1


def test_arrow_tells_ranges(client: SluiceClient, topic: str):
    table = pa.table({"value": [b"a", b"b", b"c"], "partition": [1, 1, 0]})
    told = {part.partition: (part.base_offset, part.count) for part in client.produce_arrow(topic, table)}
    assert told == {0: (0, 1), 1: (0, 2)}


def test_a_refused_request_raises(client: SluiceClient, topic: str):
    with pytest.raises(SluiceError, match="partition"):
        client.produce(topic, [Record(value=b"v", partition=99)])
    with pytest.raises(InvalidRequest):
        client.produce_arrow(topic, pa.table({"wrong": [1]}))


def test_the_producer_batches_and_keeps_the_order_of_each_key(client: SluiceClient, topic: str):
    with client.producer(compression="zstd") as producer:
        futures = [producer.send(topic, b"%d" % n, b"k%d" % (n % 7), headers=[("n", b"1")]) for n in range(MANY)]
    deliveries = [future.result(0) for future in futures]
    by_place = {(record.partition, record.offset): record.value for record in everything(client, topic)}
    assert [by_place[told.partition, told.offset] for told in deliveries] == [b"%d" % n for n in range(MANY)]
    keys: dict[bytes | None, list[int]] = {}
    for record in everything(client, topic):
        keys.setdefault(record.key, []).append(int(record.value or b""))
    assert len(keys) == 7
    assert all(numbers == sorted(numbers) for numbers in keys.values())


def test_answers_that_are_lost_add_nothing_twice(server, topic: str):
    network = LosesAnswers()
    with SluiceClient(server.url, transport=network) as client:
        limits = BufferLimits(batch_records=50, linger_ms=0)
        with client.producer(limits=limits) as producer:
            futures = [producer.send(topic, b"%d" % n) for n in range(300)]
            table = producer.send_arrow(topic, pa.table({"value": [b"300", b"301"]}))
        assert sum(part.count for part in table.result(0)) == 2
        assert len({(told.partition, told.offset) for told in (future.result(0) for future in futures)}) == 300
        assert sorted(int(value or b"") for value in values(client, topic)) == list(range(302))
    assert network.lost >= 7


def test_a_kill_and_a_restart_lose_and_repeat_nothing(tmp_path):
    with running(tmp_path / "root") as server, SluiceClient("http://127.0.0.1:1", transport=Follows(server)) as client:
        client.topics.create("t", partitions=2)
        limits = BufferLimits(batch_records=20, linger_ms=0)
        with client.producer(limits=limits) as producer:
            first = [producer.send("t", b"%d" % n) for n in range(200)]
            first[50].result(60)
            server.kill()
            later = [producer.send("t", b"%d" % n) for n in range(200, 400)]
            server.start()
        for future in (*first, *later):
            future.result(0)
        assert sorted(int(value or b"") for value in values(client, "t")) == list(range(400))


def test_a_named_producer_fences_its_predecessor(client: SluiceClient, topic: str):
    with client.producer(name=f"p-{topic}") as old, client.producer(name=f"p-{topic}") as new:
        old.send(topic, b"a").result(60)
        new.send(topic, b"b").result(60)
        error = old.send(topic, b"c").exception(60)
        assert isinstance(error, SluiceError)
        assert error.error in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
        with pytest.raises(type(error)):
            old.send(topic, b"d")
    assert values(client, topic).count(b"c") == 0


def test_callbacks_hear_of_success_and_failure(client: SluiceClient, topic: str):
    heard = []
    with client.producer() as producer:
        producer.send(topic, b"v", partition=1, on_delivery=lambda told, error: heard.append((told, error)))
        producer.flush(60)
        producer.send(topic, b"v", partition=99, on_delivery=lambda told, error: heard.append((told, error)))
    (good, none), (nothing, error) = heard
    assert (good.partition, none, nothing) == (1, None, None)
    assert isinstance(error, SluiceError)


def test_json_must_be_json(client: SluiceClient, topic: str):
    with client.producer(format="json") as producer:
        good = producer.send(topic, b'{"a": 1}', b'"k"')
        producer.flush(60)
        bad = producer.send(topic, b'{"a": ')
    assert good.exception(0) is None
    assert isinstance(bad.exception(0), InvalidRequest)
    assert values(client, topic) == [b'{"a": 1}']


def test_a_full_buffer_blocks_and_then_raises(client: SluiceClient, topic: str, monkeypatch):
    gate = threading.Event()
    real = client.connection.once
    monkeypatch.setattr(client.connection, "once", lambda *a, **k: (gate.wait(60), real(*a, **k))[1])
    limits = BufferLimits(buffer_bytes=1_000, max_block_ms=10, linger_ms=0)
    with client.producer(limits=limits) as producer:
        producer.send(topic, b"x" * 900)
        with pytest.raises(BufferFull):
            producer.send(topic, b"y" * 900)
        gate.set()
        producer.flush(60)
        producer.send(topic, b"z" * 900)
    assert [value[:1] for value in values(client, topic) if value] in ([b"x", b"z"], [b"z", b"x"])


def test_a_closed_producer_takes_nothing(client: SluiceClient, topic: str):
    producer = client.producer()
    producer.close()
    with pytest.raises(ProducerClosed):
        producer.send(topic, b"v")
