"""A real faulty proxy in front of a real S3 server: nothing twice, nothing lost, no false answers (R-4)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from typing import Any

import pytest

from sluice.log_store.claims import CLAIMS as CLAIMS_FOLDER
from sluice.log_store.claims import renewal_of
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import Overloaded, RequestTimedOut, StorageError, TopicAlreadyExists, TransientError
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.records import make_batch
from sluice.log_store.store import StoreError, open_store
from sluice.log_store.values import ProducerStamp
from tests import counts
from tests.s3.bucket import Bucket
from tests.support.faulty_proxy import FaultyProxy, Rule
from tests.support.harness import TOPIC, boottime, our_rows, wait_until

COMMITS = f"*/topics/{TOPIC}/*/_delta_log/*.json"
FILES = f"*/topics/{TOPIC}/*.parquet"
SOON_MS = 600
"""How long a request may hang here, instead of 5 s or 30 s."""
APPENDS = 1_000 if counts.FULL else 80
"""Of each of four producers."""
OUTAGE_S = counts.OUTAGE_S

Inject = Callable[[FaultyProxy, str], Rule]
FAULTS: dict[str, Inject] = {
    "dropped": lambda proxy, path: proxy.drop("PUT", path),
    "dropped for long": lambda proxy, path: proxy.drop("PUT", path, times=6),
    "applied, answer lost": lambda proxy, path: proxy.lose("PUT", path),
    "applied, 500": lambda proxy, path: proxy.answer(500, "PUT", path, after=True),
    "applied, 409": lambda proxy, path: proxy.answer(409, "PUT", path, after=True),
    "applied, 412": lambda proxy, path: proxy.answer(412, "PUT", path, after=True),
    "applied, hangs": lambda proxy, path: proxy.hang("PUT", path, after=True),
    "hangs": lambda proxy, path: proxy.hang("PUT", path),
    "503 for long": lambda proxy, path: proxy.answer(503, "PUT", path, times=6),
    "429": lambda proxy, path: proxy.answer(429, "PUT", path, times=2),
    "409 storm": lambda proxy, path: proxy.answer(409, "PUT", path, times=5),
    "412 storm": lambda proxy, path: proxy.answer(412, "PUT", path, times=5),
    "slow": lambda proxy, path: proxy.delay(0.5, "PUT", path),
}


def _batch(value: bytes) -> Any:
    return make_batch([{"value": value}], default_ms=1)


@pytest.fixture
def faulty(bucket: Bucket, proxy: FaultyProxy) -> Bucket:
    # The first request of a server that has just begun may take longer than requests may here.
    bucket.store.put("warm-up", b"")
    return bucket.through(proxy.endpoint)


@pytest.fixture
def log(faulty: Bucket, proxy: FaultyProxy) -> Iterator[LogStore]:
    with faulty.lead(request_timeout_ms=SOON_MS) as log:
        log.create_topic(TOPIC, partitions=2)
        for partition in (0, 1):
            log.append(TOPIC, partition, _batch(b"first")).result(60)
        yield log
        proxy.clear()


def _dense(bucket: Bucket, partition: int = 0) -> None:
    versions = bucket.versions(partition)
    assert versions == list(range(versions[0], versions[-1] + 1))


def _same_bytes(proxy: FaultyProxy) -> int:
    """R-4: every put of a version carried the same bytes; how many puts were repeats."""
    bodies: dict[str, list[str]] = defaultdict(list)
    for request in proxy.requests:
        if request.method == "PUT" and "/_delta_log/" in request.path and request.path.endswith(".json"):
            bodies[request.path].append(request.digest)
    assert all(len(set(digests)) == 1 for digests in bodies.values())
    return sum(len(digests) - 1 for digests in bodies.values())


@pytest.mark.parametrize("path", [COMMITS, FILES], ids=["commit", "file"])
def test_each_fault_once(
    log: LogStore, bucket: Bucket, proxy: FaultyProxy, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R-4, I-2: one append under each fault; the read-back decides, the answer comes late but it is right."""
    for number, (name, inject) in enumerate(FAULTS.items(), start=1):
        rule = inject(proxy, path)
        assert log.append(TOPIC, 0, _batch(name.encode())).result(60).base_offset == number, name
        assert rule.hits > 0, name
        proxy.clear()
    expected = [(0, b"first"), *enumerate((name.encode() for name in FAULTS), start=1)]
    assert our_rows(log) == expected
    assert bucket.delta_rows() == expected
    assert _same_bytes(proxy) > 0 or path == FILES
    _dense(bucket)
    assert log.troubles() == []
    # None of this is unexpected: the name of a data file that our own lost put has taken is no conflict either.
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_conflict_that_nobody_made_is_doubt(log: LogStore, proxy: FaultyProxy) -> None:
    """R-4: while 412 and nothing there contradict each other nobody is answered and nothing else is put above."""
    storm = proxy.answer(412, "PUT", COMMITS, times=None)
    futures = [log.append(TOPIC, 0, _batch(b"%d" % number)) for number in range(3)]
    wait_until(lambda: storm.hits >= 4, "several tries")
    assert not any(future.done() for future in futures)
    tried = {request.path for request in proxy.requests if request.fault == "answer"}
    assert len(tried) == 1
    storm.cancel()
    assert [future.result(60).base_offset for future in futures] == [1, 2, 3]
    assert _same_bytes(proxy) >= 4


def _storm(proxy: FaultyProxy) -> None:
    """About 15 % of all requests go wrong, in every way there is; delta-rs' own and the renewals too."""
    for after in (False, True):
        proxy.drop(times=None, chance=0.02, after=after)
        for status in (503, 500, 429):
            proxy.answer(status, times=None, chance=0.01, after=after)
        for status in (409, 412):
            proxy.answer(status, times=None, chance=0.015, after=after)
        proxy.hang("PUT", times=None, chance=0.002, after=after)
    proxy.delay(0.05, times=None, chance=0.03)


def _produce(log: LogStore, name: str, partition: int) -> list[int]:
    """Two in flight at a time, repeated with the same sequences until answered."""
    identity = log.new_producer("partition")
    offsets: list[int] = []
    while len(offsets) < APPENDS:
        sent: list[Future[AppendResult]] = []
        try:
            for number in range(len(offsets), min(APPENDS, len(offsets) + 2)):
                acks = Acks.LEADER if number % 2 else Acks.ALL
                stamp = ProducerStamp(*identity, number)
                batch = _batch(f"{name}:{number}:0".encode())
                sent.append(log.append(TOPIC, partition, batch, acks=acks, stamp=stamp))
        except TransientError:  # anything else would be a definite failure while in doubt
            pass
        offsets += [future.result(60).base_offset for future in sent]
    return offsets


def test_storm_over_idempotent_producers(log: LogStore, bucket: Bucket, proxy: FaultyProxy) -> None:
    """R-4: random faults under checkpoints, merges and renewals; afterwards all is as if there had been none."""
    names = {f"p{number}": number % 2 for number in range(4)}
    _storm(proxy)
    with ThreadPoolExecutor(len(names)) as pool:
        answers = dict(zip(names, pool.map(lambda name: _produce(log, name, names[name]), names), strict=True))
    faults = sum(request.fault is not None for request in proxy.requests)
    print(f"{faults} of {len(proxy.requests)} requests went wrong, {_same_bytes(proxy)} versions put again")
    assert faults / len(proxy.requests) > 0.05
    proxy.clear()
    for partition in (0, 1):
        rows = our_rows(log, partition)
        assert [offset for offset, _ in rows] == list(range(1 + 2 * APPENDS))
        by_offset = dict(rows)
        for name in (name for name, home in names.items() if home == partition):
            expected = [f"{name}:{number}:0".encode() for number in range(APPENDS)]
            assert [by_offset[offset] for offset in answers[name]] == expected
            assert answers[name] == sorted(answers[name])
        wait_until(lambda p=partition: log.partition(TOPIC, p).idle, "everything committed")
        assert bucket.delta_rows(partition) == rows
        _dense(bucket, partition)
    assert _same_bytes(proxy) > 0
    # Back to normal without a restart.
    assert log.append(TOPIC, 0, _batch(b"after")).result(60).base_offset == 1 + 2 * APPENDS
    assert not log.fenced
    wait_until(lambda: log.troubles() == [], "well again")


def test_outage(faulty: Bucket, bucket: Bucket, proxy: FaultyProxy) -> None:
    """R-4, section 2: producers wait and are told nothing false; memory is bounded; it goes on without a restart."""
    value = bytes(10_000)
    settings = {"request_timeout_ms": SOON_MS, "partition_pending_max_bytes": 50 * len(value)}
    with faulty.lead(**settings) as log, ThreadPoolExecutor(1) as pool:
        log.append(TOPIC, 0, _batch(b"before")).result(60)
        with proxy.outage():
            ends = boottime() + OUTAGE_S
            logged = [log.append(TOPIC, 0, _batch(b"logged"), acks=Acks.LEADER).result(60) for _ in range(5)]
            waiting = [log.append(TOPIC, 0, _batch(b"all")) for _ in range(5)]
            waiting += _until_overloaded(lambda: log.append(TOPIC, 0, _batch(value)))
            creating = pool.submit(log.create_topic, "another")
            finished = wait_for_futures([*waiting, creating], timeout=max(0.0, ends - boottime())).done
            assert finished <= {creating}, "an answer while nothing can be known"
            # Whoever changes the catalog is told so after half a minute.
            assert all(isinstance(one.exception(), RequestTimedOut) for one in finished)
        assert [future.result(60).base_offset for future in waiting] == list(range(6, 6 + len(waiting)))
        assert [result.base_offset for result in logged] == list(range(1, 6))
        with suppress(RequestTimedOut):
            assert creating.result(60).name == "another"
        if creating.exception() is not None:
            with suppress(TopicAlreadyExists):  # the change was in doubt, and may hold
                log.create_topic("another")
        assert log.topic("another").name == "another"
        assert not log.fenced
        wait_until(lambda: log.troubles() == [], "well again")
        rows = our_rows(log)
    assert [offset for offset, _ in rows] == list(range(6 + len(waiting)))
    assert bucket.delta_rows() == rows
    _dense(bucket)
    _same_bytes(proxy)


def _until_overloaded(append: Callable[[], Future[AppendResult]]) -> list[Future[AppendResult]]:
    accepted: list[Future[AppendResult]] = []
    while True:
        assert len(accepted) < 60, "memory is not bounded"
        try:
            accepted += [append()]
        except Overloaded:
            return accepted


# --- claims ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["applied, answer lost", "applied, 409", "applied, 412"])
def test_a_claim_whose_answer_was_lost_is_known_as_ones_own(faulty: Bucket, proxy: FaultyProxy, fault: str) -> None:
    """R-1: the read-back decides, as for a version; else a process would wait itself out."""
    rule = FAULTS[fault](proxy, f"*/{CLAIMS_FOLDER}/*.json")
    begun = boottime()
    with faulty.lead(claim_timeout_ms=60_000) as log:
        assert log.runtime.leadership.epoch == 1
    assert rule.hits == 1
    assert boottime() - begun < 60


def test_renewals_go_on_after_every_kind_of_failure(log: LogStore, faulty: Bucket, proxy: FaultyProxy) -> None:
    """R-1: no answer of the server ends the renewals of a leader that is alive."""
    renewals = f"*/{CLAIMS_FOLDER}/*.renewal"
    for rule in (
        proxy.answer(409, "PUT", renewals, times=2),
        proxy.answer(412, "PUT", renewals, times=2),
        proxy.answer(404, "PUT", renewals, times=2),
        proxy.answer(503, "PUT", renewals, times=8),
        proxy.drop("PUT", renewals, times=8),
    ):
        wait_until(lambda rule=rule: rule.times == 0, "the fault is used up")
    epoch = log.runtime.leadership.epoch
    seen = renewal_of(faulty.store, epoch)
    wait_until(lambda: renewal_of(faulty.store, epoch).count > seen.count, "renewed")
    assert not log.fenced


def test_a_missing_bucket_is_named(bucket: Bucket) -> None:
    """I-10 in spirit: a clear error, not a missing file."""
    store = open_store("s3://nobody-made-this/root", storage_options=bucket.options)
    with pytest.raises(StoreError, match="put_if_absent"):
        store.put_if_absent("a", b"x")
    with pytest.raises(StorageError):
        Bucket(bucket.server, "s3://nobody-made-this/root", bucket.folder, bucket.endpoint).lead()


def test_a_process_without_a_wal_folder_is_told_so(bucket: Bucket) -> None:
    with pytest.raises(StorageError, match=r"wal\.dir"):
        bucket.lead(wal_dir="")
