"""Requests to a whole topic, idempotent as one thing (R-9)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future

import pyarrow as pa
import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    OutOfOrderSequence,
    Overloaded,
    StorageError,
)
from sluice.log_store.pending import AppendResult
from sluice.log_store.topic_log import TopicAppend
from sluice.log_store.values import ProducerStamp
from tests.support.logs import WAIT_S, Cluster, append, batch, eventually, memory_cluster, rows, settled, stamp

BIG = "v" * 3_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster(partition_pending_max_bytes=4_000) as made:
        yield made


def opened(cluster: Cluster, partitions: int = 2) -> tuple[LogStore, int]:
    log = cluster.open()
    log.create_topic("t", partitions=partitions)
    return log, log.new_producer("topic")[0]


def over_all(text: str) -> Callable[[int], Mapping[int, pa.RecordBatch]]:
    """One record for every partition; its value says for how many the request was split."""
    return lambda count: {p: batch(f"{text}/{count}") for p in range(count)}


def request(producer: int, sequence: int, text: str, epoch: int = 0) -> ProducerStamp:
    return stamp(producer, sequence, epoch, crc=zlib.crc32(text.encode()), body_count=2)


def send(log: LogStore, producer: int, sequence: int, text: str, epoch: int = 0) -> TopicAppend:
    return log.append_topic("t", over_all(text), stamp=request(producer, sequence, text, epoch))


def offsets(answer: TopicAppend) -> dict[int, int]:
    return {p: future.result(WAIT_S).base_offset for p, future in answer.parts.items()}


def repeats(answer: TopicAppend) -> set[bool]:
    return {future.result(WAIT_S).duplicate for future in answer.parts.values()}


def held(log: LogStore, partitions: int = 2) -> list[list[bytes | None]]:
    return [[value for _, value in rows(log, "t", p)] for p in range(partitions)]


def failure(future: Future[AppendResult]) -> BaseException | None:
    return future.exception(WAIT_S)


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeat_answers_the_original_offsets(cluster: Cluster, restart: bool) -> None:
    """R-9: nothing is appended, also after a restart."""
    log, producer = opened(cluster)
    append(log, "t", 1, batch("before"))
    first = offsets(send(log, producer, 0, "a"))
    second = offsets(send(log, producer, 1, "b"))
    if restart:
        log = cluster.reopen()

    for sequence, text, expected in ((0, "a", first), (1, "b", second)):
        again = send(log, producer, sequence, text)
        assert offsets(again) == expected
        assert repeats(again) == {True}
    assert held(log) == [[b"a/2", b"b/2"], [b"before", b"a/2", b"b/2"]]


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeat_goes_where_the_first_try_went(cluster: Cluster, restart: bool) -> None:
    """R-9: the topic grew in between; the stored n counts."""
    log, producer = opened(cluster)
    first = offsets(send(log, producer, 0, "a"))
    log.grow_topic("t", 4)
    if restart:
        log = cluster.reopen()
    again = send(log, producer, 0, "a")
    assert (offsets(again), again.partitions) == (first, 2)
    fresh = send(log, producer, 1, "b")
    assert (set(offsets(fresh)), fresh.partitions) == ({0, 1, 2, 3}, 4)
    assert held(log, 4) == [[b"a/2", b"b/4"], [b"a/2", b"b/4"], [b"b/4"], [b"b/4"]]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("grown", [False, True])
def test_a_partial_failure_is_completed_by_the_repeat(cluster: Cluster, restart: bool, grown: bool) -> None:
    """R-9: only where it is missing."""
    log, producer = opened(cluster)
    with cluster.store.gate("put", "topics/t/1/*") as gate:
        busy = log.append("t", 1, batch(BIG))
        gate.wait()
        first = log.append_topic(
            "t", lambda n: {p: batch(f"a/{n}" if p == 0 else BIG) for p in range(n)}, stamp=request(producer, 0, "a")
        )
        assert isinstance(failure(first.parts[1]), Overloaded)
        assert first.parts[0].result(WAIT_S).base_offset == 0
    settled([busy])
    if grown:
        log.grow_topic("t", 3)
    if restart:
        log = cluster.reopen()

    again = send(log, producer, 0, "a")
    assert offsets(again) == {0: 0, 1: 1}
    assert {p: future.result().duplicate for p, future in again.parts.items()} == {0: True, 1: False}
    assert held(log) == [[b"a/2"], [BIG.encode(), b"a/2"]]
    assert repeats(send(log, producer, 0, "a")) == {True}


def test_a_later_request_does_not_hide_the_missing_part(cluster: Cluster) -> None:
    """R-9: the repeat of an earlier request completes it behind a later one."""
    log, producer = opened(cluster)
    with cluster.store.gate("put", "topics/t/1/*") as gate:
        busy = log.append("t", 1, batch(BIG))
        gate.wait()
        send_big = lambda n: {p: batch("a" if p == 0 else BIG) for p in range(n)}  # noqa: E731
        log.append_topic("t", send_big, stamp=request(producer, 0, "a"))
    settled([busy])
    send(log, producer, 1, "b")
    again = send(log, producer, 0, "a")
    assert offsets(again) == {0: 0, 1: 2}
    assert held(log)[1] == [BIG.encode(), b"b/2", b"a/2"]


def test_a_repeat_in_flight_waits(cluster: Cluster) -> None:
    """R-9."""
    log, producer = opened(cluster)
    log.partition("t", 1).prepare()
    with cluster.store.gate("put", "topics/t/1/*") as gate:
        first = send(log, producer, 0, "a")
        gate.wait()
        again = send(log, producer, 0, "a")
        assert again.parts[0].result(WAIT_S).duplicate
        assert not again.parts[1].done()
    assert offsets(first) == offsets(again)
    assert held(log) == [[b"a/2"], [b"a/2"]]


def test_storage_that_fails_is_in_flight(cluster: Cluster) -> None:
    """R-9, R-4: the first try is not known to have failed, so the repeat waits with it."""
    log, producer = opened(cluster)
    log.partition("t", 1).prepare()
    outage = cluster.store.fail_before("put", "topics/t/1/*", times=None)
    first, again = send(log, producer, 0, "a"), send(log, producer, 0, "a")
    eventually(lambda: outage.hits)
    outage.cancel()
    cluster.settled(*first.parts.values(), *again.parts.values())
    assert offsets(first) == offsets(again) == {0: 0, 1: 0}


def test_a_crash_that_leaves_only_a_later_request_stops_nobody(cluster: Cluster) -> None:
    """R-9: the very first one was lost, its successor, in flight on another partition, was not. Found by kills."""
    log, producer = opened(cluster)
    log.partition("t", 0).prepare()
    outage = cluster.store.fail_before("put", "topics/t/0/*", times=None)
    for sequence in (0, 1):
        only = {sequence: batch(str(sequence))}
        sent = log.append_topic("t", lambda _n, only=only: only, stamp=request(producer, sequence, str(sequence)))
    assert sent.parts[1].result(WAIT_S).base_offset == 0
    eventually(lambda: outage.hits)
    outage.cancel()
    log = cluster.crash()
    assert held(log) == [[], [b"1"]]

    first = log.append_topic("t", lambda _n: {0: batch("0")}, stamp=request(producer, 0, "0"))
    assert (offsets(first), repeats(first)) == ({0: 0}, {False})
    again = log.append_topic("t", lambda _n: {1: batch("1")}, stamp=request(producer, 1, "1"))
    assert (offsets(again), repeats(again)) == ({1: 0}, {True})
    assert held(log) == [[b"0"], [b"1"]]


@pytest.mark.parametrize("restart", [False, True])
def test_below_the_window_it_is_done(cluster: Cluster, restart: bool) -> None:
    """R-9: the last five are known; older ones are answered without offsets."""
    log, producer = opened(cluster)
    for sequence in range(6):
        offsets(send(log, producer, sequence, str(sequence)))
    if restart:
        log = cluster.reopen()
    answer = send(log, producer, 0, "0")
    assert answer.below_window
    assert answer.parts == {}
    assert not send(log, producer, 1, "1").below_window
    assert all(len(part) == 6 for part in held(log))


@pytest.mark.parametrize("restart", [False, True])
def test_sequences_are_dense(cluster: Cluster, restart: bool) -> None:
    """R-9: per producer and topic."""
    log, producer = opened(cluster)
    offsets(send(log, producer, 0, "a"))
    if restart:
        log = cluster.reopen()
    with pytest.raises(OutOfOrderSequence):
        send(log, producer, 2, "c")
    offsets(send(log, producer, 1, "b"))


@pytest.mark.parametrize("restart", [False, True])
def test_another_body_under_the_same_sequence_is_refused(cluster: Cluster, restart: bool) -> None:
    """R-9: INVALID_REQUEST by the CRC."""
    log, producer = opened(cluster)
    offsets(send(log, producer, 0, "a"))
    if restart:
        log = cluster.reopen()
    with pytest.raises(InvalidRequest, match="another request body"):
        send(log, producer, 0, "other")
    assert held(log) == [[b"a/2"], [b"a/2"]]


@pytest.mark.parametrize("restart", [False, True])
def test_a_named_producer_fences_its_predecessor(cluster: Cluster, restart: bool) -> None:
    """R-9: the same id, epoch + 1."""
    log, _ = opened(cluster)
    producer, epoch = log.new_producer("topic", "loader")
    offsets(send(log, producer, 0, "a", epoch))
    again, next_epoch = log.new_producer("topic", "loader")
    assert (again, next_epoch) == (producer, epoch + 1)
    if restart:
        log = cluster.reopen()
    with pytest.raises(InvalidProducerEpoch):
        send(log, producer, 1, "b", epoch)
    with pytest.raises(InvalidProducerEpoch):
        send(log, producer, 0, "b", next_epoch + 1)
    assert offsets(send(log, producer, 0, "b", next_epoch)) == {0: 1, 1: 1}
    with pytest.raises(InvalidRequest, match="mode topic"):
        log.new_producer("partition", "loader")


def test_a_producer_has_one_mode(cluster: Cluster) -> None:
    """R-9: an id tells its mode; the other way of addressing is refused and appends nothing."""
    log, topic_mode = opened(cluster)
    partition_mode = log.new_producer("partition")[0]
    with pytest.raises(InvalidRequest, match="partition mode"):
        send(log, partition_mode, 0, "a")
    with pytest.raises(InvalidRequest):
        log.append("t", 0, batch("a"), stamp=stamp(topic_mode, 0))
    with pytest.raises(InvalidRequest):
        log.new_producer("both")
    assert held(log) == [[], []]


def test_ids_are_never_given_twice(cluster: Cluster) -> None:
    """R-9: over modes and restarts."""
    log, first = opened(cluster)
    seen = [first, *(log.new_producer(mode)[0] for mode in ("topic", "partition", "topic"))]
    log = cluster.crash()
    seen += [log.new_producer(mode)[0] for mode in ("topic", "partition")]
    assert len(set(seen)) == len(seen)
    assert [i % 2 for i in seen] == [1, 1, 0, 1, 1, 0]


def test_without_a_stamp_nothing_is_remembered(cluster: Cluster) -> None:
    log, _ = opened(cluster)
    for _ in range(2):
        assert set(offsets(log.append_topic("t", over_all("a")))) == {0, 1}
    assert held(log) == [[b"a/2", b"a/2"], [b"a/2", b"a/2"]]


def test_one_partition_may_fail_and_the_other_succeed(cluster: Cluster) -> None:
    """Kafka's rule: errors are per partition."""
    log, _ = opened(cluster)
    log.partition("t", 1).prepare()
    log.partition("t", 1)._stall.refuses = True
    answer = log.append_topic("t", over_all("a"))
    assert isinstance(failure(answer.parts[1]), StorageError)
    assert answer.parts[0].result(WAIT_S).base_offset == 0


def test_topic_mode_producers_expire_in_all_partitions_or_in_none() -> None:
    """R-9, R-13: a partition that forgot alone would append a repeat's part a second time."""
    with memory_cluster(producer_id_expiration_ms=1_800_000) as cluster:
        log, producer = opened(cluster)
        offsets(send(log, producer, 0, "a"))
        cluster.clock.advance(1_700)
        only_0 = lambda _: {0: batch("b")}  # noqa: E731
        log.append_topic("t", only_0, stamp=request(producer, 1, "b")).parts[0].result(WAIT_S)
        cluster.clock.advance(1_700)
        for p in (0, 1):
            log.partition("t", p).checkpoint()
        again = send(log, producer, 0, "a")
        assert repeats(again) == {True}
        log = cluster.reopen()
        assert repeats(send(log, producer, 0, "a")) == {True}
