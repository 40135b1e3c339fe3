"""Storage that fails, lies about it, or is away for long: nothing twice, nothing lost, no false answers (R-4)."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures import wait as wait_for_futures
from pathlib import Path
from typing import Any

import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import StorageError, TransientError
from sluice.log_store.object_store import MemoryStore
from sluice.log_store.pending import Acks
from sluice.log_store.records import make_batch
from sluice.log_store.store import Buffers, Store, open_store
from sluice.log_store.values import ProducerStamp
from tests.support.faulty_store import FaultyStore
from tests.support.harness import (
    NEVER_SYNCED,
    SMALL,
    TOPIC,
    Process,
    check,
    delta_rows,
    our_rows,
    settings_of,
    versions,
    wait_until,
)
from tests.support.history import History

Start = Callable[..., Process]

COMMITS = "*/orders/0/_delta_log/*.json"


class Recording(FaultyStore):
    """Remembers what was put where, whether or not it got there."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.puts: list[tuple[str, bytes]] = []

    def put_if_absent(self, path: str, data: Buffers, *, sync: bool = False) -> None:
        assert isinstance(data, bytes)
        if "/orders/0/" in path:
            self.puts.append((path, data))
        super().put_if_absent(path, data, sync=sync)


def _batch(value: bytes) -> Any:
    return make_batch([{"value": value}], default_ms=1)


@pytest.fixture
def store() -> Recording:
    return Recording(MemoryStore())


@pytest.fixture
def log(store: Recording) -> Iterator[LogStore]:
    with LogStore.open(settings_of("memory://", commit_interval_ms=0), store=store) as log:
        log.create_topic(TOPIC, partitions=2)
        log.append(TOPIC, 0, _batch(b"first")).result(60)
        store.puts.clear()
        yield log


def _values(log: LogStore) -> list[bytes]:
    return [value for _, value in our_rows(log)]


def test_put_that_was_applied_but_failed(store: Recording, log: LogStore) -> None:
    """R-4, I-2: the lost answer is found by read-back: acknowledged once, there once."""
    for number in range(5):
        store.fail_after("put_if_absent", COMMITS)
        assert log.append(TOPIC, 0, _batch(b"%d" % number)).result(60).base_offset == 1 + number
    assert _values(log) == [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_applied_but_failed_and_not_readable_for_a_while(store: Recording, log: LogStore) -> None:
    """R-4: while nobody can tell, nobody is answered, and the same bytes are put again at the same version."""
    store.fail_after("put_if_absent", COMMITS, times=1)
    blind = store.fail_before("get", COMMITS, times=None)
    future = log.append(TOPIC, 0, _batch(b"doubt"))
    later = log.append(TOPIC, 0, _batch(b"later"))
    wait_until(lambda: blind.hits >= 3, "several looks")
    assert not future.done()
    assert not later.done()
    blind.cancel()
    assert (future.result(60).base_offset, later.result(60).base_offset) == (1, 2)
    _same_bytes_while_in_doubt(store)
    assert _values(log) == [b"first", b"doubt", b"later"]


@pytest.mark.parametrize("kind", ["fail_before", "conflict"])
def test_put_that_fails_several_times(store: Recording, log: LogStore, kind: str) -> None:
    """R-4: failures before the put, and conflicts with nobody, are doubt: retried with identical bytes, in order."""
    fault = getattr(store, kind)("put_if_absent", COMMITS, times=4)
    futures = [log.append(TOPIC, 0, _batch(b"%d" % number)) for number in range(3)]
    with pytest.raises(FutureTimeout):
        futures[0].result(0.01)
    assert [future.result(60).base_offset for future in futures] == [1, 2, 3]
    assert fault.hits == 4
    _same_bytes_while_in_doubt(store)
    assert _values(log) == [b"first", b"0", b"1", b"2"]


def _same_bytes_while_in_doubt(store: Recording) -> None:
    by_path: dict[str, set[bytes]] = {}
    order = []
    for path, data in store.puts:
        by_path.setdefault(path, set()).add(data)
        if not order or order[-1] != path:
            order.append(path)
    assert len(store.puts) > len(by_path), "nothing was put twice: the test does not test what it says"
    assert all(len(contents) == 1 for contents in by_path.values())
    assert order == sorted(by_path), "a version was put while one before it was in doubt"


def test_storm_of_failures(store: Recording, log: LogStore) -> None:
    """R-4: every kind of failure at random under idempotent producers that repeat: all there, once, in order."""
    dice = random.Random(13)
    lock = threading.Lock()

    def strike(path: str) -> None:
        with lock:
            hit = dice.random() < 0.15
        if hit:
            raise StorageError(f"storm over {path}")

    storms = [
        store.on(operation, strike, f"*/{TOPIC}/*", when=when, times=None)
        for operation in ("put", "put_if_absent", "get")
        for when in ("before", "after")
    ]
    answers = {name: _produce(log, name) for name in (b"p", b"q")}
    for storm in storms:
        storm.cancel()
    rows = dict(our_rows(log))
    for name, offsets in answers.items():
        assert [rows[offset] for offset in offsets] == [b"%s%d" % (name, number) for number in range(len(offsets))]
        assert offsets == sorted(offsets)
    assert len(rows) == 1 + sum(map(len, answers.values()))


def _produce(log: LogStore, name: bytes, count: int = 15) -> list[int]:
    identity = log.new_producer("partition")
    offsets = []
    while len(offsets) < count:
        number = len(offsets)
        try:
            future = log.append(TOPIC, 0, _batch(b"%s%d" % (name, number)), stamp=ProducerStamp(*identity, number))
            offsets.append(future.result(60).base_offset)
        except TransientError:  # anything else would be a definite failure while in doubt
            continue
    return offsets


def test_no_commit_is_visible_before_its_wal_entry_is_synced(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 2: on a local root the WAL is the durable copy, so it comes first, whatever acks the client asked for."""
    fdatasync, slow, entered, go = os.fdatasync, threading.Event(), threading.Event(), threading.Event()

    def held(fd: int) -> None:
        if slow.is_set():
            entered.set()
            assert go.wait(60)
        fdatasync(fd)

    monkeypatch.setattr("sluice.log_store.wal_active.os.fdatasync", held)
    with LogStore.open(settings_of(str(tmp_root), **SMALL | {"commit_interval_ms": 0})) as log:
        log.append(TOPIC, 0, _batch(b"before")).result(60)
        before = versions(tmp_root)
        slow.set()
        futures = [log.append(TOPIC, 0, _batch(b"held"), acks=acks) for acks in (Acks.ALL, Acks.LEADER)]
        try:
            assert entered.wait(60)
            assert wait_for_futures(futures, timeout=0.3).done == set()
            assert versions(tmp_root) == before
        finally:
            go.set()
        assert [future.result(60).base_offset for future in futures] == [1, 2]


# --- parked --------------------------------------------------------------------------------------------------


def test_parked_partition_comes_back(tmp_root: Path) -> None:
    """Section 2: a partition that cannot commit refuses produce, is shown, holds up nobody, and needs no restart."""
    store = FaultyStore(open_store(str(tmp_root)))
    settings = settings_of(str(tmp_root), **SMALL | {"partition_park_ms": 200})
    with LogStore.open(settings, store=store) as log:
        log.create_topic(TOPIC, partitions=2)
        log.append(TOPIC, 0, _batch(b"before")).result(60)
        outage = store.fail_before("put_if_absent", COMMITS, times=None)
        for number in range(3):
            log.append(TOPIC, 0, _batch(b"%d" % number), acks=Acks.LEADER).result(60)
        waiting = log.append(TOPIC, 0, _batch(b"3"))
        wait_until(lambda: list((tmp_root / "_sluice/wal/parked").glob("*.wal")), "parked")
        with pytest.raises(StorageError, match="parked"):
            log.append(TOPIC, 0, _batch(b"refused"))
        assert any("parked" in trouble for trouble in log.troubles())
        assert not waiting.done()
        _fill_the_wal(log, tmp_root)
        outage.cancel()
        assert waiting.result(60).base_offset == 4
        wait_until(lambda: not log.troubles(), "well again")
        assert not list((tmp_root / "_sluice/wal/parked").glob("*.wal"))
        log.append(TOPIC, 0, _batch(b"after")).result(60)
        assert [v for _, v in our_rows(log)] == [b"before", b"0", b"1", b"2", b"3", b"after"]
    assert [v for _, v in delta_rows(tmp_root)] == [b"before", b"0", b"1", b"2", b"3", b"after"]


def _fill_the_wal(log: LogStore, root: Path) -> None:
    """Several files' worth goes through the other partition, and the files go: nothing holds them."""
    for _ in range(8):
        log.append(TOPIC, 1, _batch(bytes(50_000)), acks=Acks.LEADER).result(60)
    wal = log.runtime.wal
    assert wal is not None
    log.append(TOPIC, 1, _batch(b"end")).result(60)
    wait_until(lambda: wal.size_bytes < 4 * SMALL["wal_file_bytes"], "the WAL was cut")


def test_killed_while_parked(start: Start, tmp_root: Path, history: Path) -> None:
    """Section 2, R-2: what was parked is replayed by the next leader; its copy goes only when the rows are synced."""
    settings = NEVER_SYNCED | {"partition_park_ms": 200}
    process = start(producers=[["bare", "plain", "1", 0]], settings=settings, outage=COMMITS, limit=30)
    process.wait_for("ack", count=30)
    parked = tmp_root / "_sluice" / "wal" / "parked"
    wait_until(lambda: list(parked.glob("*.wal")), "parked")
    process.kill()
    # A leader that cannot sync what it replayed keeps the parked copy.
    store = FaultyStore(open_store(str(tmp_root)))
    store.fail_before("sync", f"*/{TOPIC}/*", times=None)
    with pytest.raises(StorageError):
        LogStore.open(settings_of(str(tmp_root), **NEVER_SYNCED), store=store)
    assert list(parked.glob("*.wal"))
    last = start(producers=[["bare", "plain", "1", 0]], settings=NEVER_SYNCED)
    last.wait_for("ack")
    assert not list(parked.glob("*.wal"))
    last.stop()
    assert check(tmp_root, history).acked >= len(History.load(history).acks)
