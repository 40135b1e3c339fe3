"""The append of one batch of a sink: what may happen to it between its check and its mark (R-5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sluice.api import sinks_append
from sluice.api.sinks_append import SinkBatch
from sluice.ingest.hooks import HookLoader
from sluice.ingest.limits import IngestLimits
from sluice.log_store import staging, steps
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import CorruptData, NotLeader, RecordListTooLarge, StorageError
from sluice.log_store.staging import Part
from tests.support.logs import NOW_MS, Cluster, batch, eventually, memory_cluster, values
from tests.support.sinks import rows_of, staged

HOOKS = HookLoader(())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as found:
        yield found


@pytest.fixture
def log(cluster: Cluster) -> LogStore:
    log = cluster.open()
    log.create_topic("t", partitions=2)
    return log


def work(log: LogStore, batch: int = 0, limits: IngestLimits | None = None, **more: Any) -> SinkBatch:
    return SinkBatch(log, HOOKS, limits or IngestLimits(), "q", batch, **more)


def parts_of(log: LogStore, *texts: str, topic: str = "t", batch: int = 0) -> list[Part]:
    """One row each."""
    store = log.runtime.store
    return [staged(store, "q", batch, topic, rows_of([text]), f"{topic}-{n:05d}") for n, text in enumerate(texts)]


def everything(log: LogStore, topic: str = "t", partitions: int = 2) -> list[bytes | None]:
    return sorted(value for number in range(partitions) for value in values(log, topic, number))  # type: ignore[type-var]


def cut_at(name: str, times: int) -> None:
    """The work ends at a step; the process lives on."""
    left = iter(range(times - 1, -1, -1))

    def hook(step: str) -> None:
        if step == name and next(left, None) == 0:
            raise StorageError("cut")

    steps.set_hook(hook)


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    steps.set_hook(None)


def test_records_without_a_time_get_that_of_the_first_try(log: LogStore, cluster: Cluster) -> None:
    parts = parts_of(log, "a", "b", "c")
    cut_at("sink-piece", 1)
    with pytest.raises(StorageError):
        work(log).commit(parts)
    cluster.tick(60)
    work(log).commit([])
    rows = [found for number in range(2) for found in log.reads("t", number).scan(0, readahead=0)]
    stamps = {stamp for found in rows for stamp in found.column("timestamp").cast(pa.int64()).to_pylist()}
    assert stamps == {NOW_MS * 1000}


def test_a_repeat_needs_no_parts_of_its_own(log: LogStore) -> None:
    """What the first commit named is enough."""
    cut_at("sink-pinned", 1)
    with pytest.raises(StorageError):
        work(log).commit(parts_of(log, "a", "b"))
    assert everything(log) == []
    assert work(log).commit([]).count == 2
    assert everything(log) == [b"a", b"b"]


def test_a_stop_comes_between_two_pieces_and_the_repeat_goes_on(log: LogStore) -> None:
    stopping = threading.Event()
    steps.set_hook(lambda step: stopping.set() if step == "sink-piece" else None)
    with pytest.raises(NotLeader, match="repeat the commit"):
        work(log, stopping=stopping).commit(parts_of(log, "a", "b", "c"))
    assert work(log).commit([]).count >= 2
    assert everything(log) == [b"a", b"b", b"c"]


def test_a_topic_that_was_deleted_takes_its_rows_with_it(log: LogStore) -> None:
    """Also if there is a new one of that name: its rows are not those of this batch."""
    log.create_topic("u", partitions=1)
    cut_at("sink-pinned", 1)
    with pytest.raises(StorageError):
        work(log).commit([*parts_of(log, "a", topic="u"), *parts_of(log, "b")])
    log.delete_topic("u")
    log.create_topic("u", partitions=1)
    assert work(log).commit([]).count == 1
    assert (everything(log, "u", 1), everything(log)) == ([], [b"b"])


def test_parts_that_are_gone_or_changed_are_reported_once_a_batch_is_pinned(log: LogStore) -> None:
    parts = parts_of(log, "a", "b")
    cut_at("sink-pinned", 1)
    with pytest.raises(StorageError):
        work(log).commit(parts)
    store = log.runtime.store
    path = staging.part_path("q", 0, parts[1].name)
    body = store.get(path)
    store.replace(path, body[:-1] + b"\1")
    with pytest.raises(CorruptData, match="checksum"):
        work(log).commit([])
    store.delete(path)
    with pytest.raises(CorruptData, match="is gone, and a part of its batch is in the log"):
        work(log).commit([])
    store.replace(path, body)
    work(log).commit([])
    assert everything(log) == [b"a", b"b"]


def test_a_partition_that_is_full_is_waited_for(
    log: LogStore, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others produce as well: a sink that meets their backlog does not fail for it."""
    monkeypatch.setattr(sinks_append, "FULL_LOOK_S", 0.001)
    limit = log.settings.log.partition_pending_max_bytes
    for number in range(2):
        log.partition("t", number).prepare()
    with cluster.store.gate("put_if_absent", "topics/t/*/_delta_log/*", times=None) as gate:
        others = [log.append("t", number, batch("x"), size=limit) for number in range(2)]
        gate.wait()
        doing = threading.Thread(target=lambda: work(log).commit(parts_of(log, "a", "b")))
        doing.start()
        eventually(lambda: staging.read_manifest(log.runtime.store, "q", 0))
    doing.join(60)
    assert [future.result(60).count for future in others] == [1, 1]
    assert everything(log) == [b"a", b"b", b"x", b"x"]


def test_rows_on_their_way_are_bounded(log: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may be larger than memory: what is not committed yet holds up what comes."""
    monkeypatch.setattr(sinks_append, "IN_FLIGHT_BYTES", 300)
    monkeypatch.setattr(sinks_append, "KEPT_BYTES", 0)
    doing, most = work(log), 0

    def look(step: str) -> None:
        nonlocal most
        if step == "sink-piece":
            most = max(most, doing._in_flight)

    steps.set_hook(look)
    assert doing.commit(parts_of(log, *(f"{n:0100d}" for n in range(30)))).count == 30
    assert 0 < most <= 300
    assert len(everything(log)) == 30


def test_a_part_larger_than_a_request_may_be_is_not_read(log: LogStore) -> None:
    with pytest.raises(RecordListTooLarge, match="must not be larger than 100 bytes"):
        work(log, limits=IngestLimits(max_body_bytes=100)).commit(parts_of(log, "a"))
