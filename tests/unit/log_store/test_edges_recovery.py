"""Edges of recovery and of the catalog: what was acknowledged comes back, what is not known is found out."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from sluice.log_store.errors import RequestTimedOut, TopicAlreadyExists
from sluice.log_store.pending import AppendResult, Logged
from sluice.log_store.producers import ProducerWindows
from sluice.log_store.wal_values import WalStalled
from tests.support.logs import (
    LEADER,
    WAIT_S,
    append,
    append_one_by_one,
    batch,
    commit_path,
    eventually,
    folder_cluster,
    folder_of,
    memory_cluster,
    settled,
    stamp,
    values,
)


@pytest.mark.parametrize("more", [False, True])
def test_damage_below_the_sync_point_is_refused_at_every_start(tmp_root: Path, more: bool) -> None:
    """I-10: it is no torn write. Nothing is removed, and no start forgets how far the log was synced."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append_one_by_one(log, "t", "abcd")
        log.background.sync_all()
        if more:
            append(log, "t", 0, batch("e"))
        folder = folder_of(log, "t")
        log.close(drain=False)
        (tmp_root / commit_path(folder, 2)).write_bytes(b"")
        there = sorted((tmp_root / folder / "_delta_log").glob("*.json"))

        for _ in range(3):
            log = cluster.open(force=True)
            assert log.partition("t", 0).state.version == 1
            assert log.partition("t", 0).problem is not None
            log.close(drain=False)
            assert sorted((tmp_root / folder / "_delta_log").glob("*.json")) == there


def test_a_partition_that_was_parked_twice_loses_nothing(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-2: parking that failed half-way is tried again; the files of both tries are replayed."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"))
        log.background.sync_all()
        cluster.store.fail_before("put", "*/t/0/*.parquet", times=None)
        for text in "bc":
            append(log, "t", 0, batch(text), acks=LEADER)
        partition, wal = log.partition("t", 0), log.runtime.wal
        assert wal is not None
        last, release = partition._queue._batches[1], wal.release

        def stalled(*args: object) -> None:
            release(*args)  # type: ignore[arg-type]
            raise WalStalled("a test")

        last.logged = Logged.QUEUED
        with monkeypatch.context() as patch:
            patch.setattr(wal, "release", stalled)
            partition._stall._park()
        last.logged = Logged.YES
        partition._stall._park()
        log.close(drain=False)
        cluster.store.clear()
        # Names are random: the shorter copy is read last.
        parked = sorted(tmp_root.glob("_sluice/wal/parked/*.wal"), key=lambda path: path.stat().st_size)
        assert len(parked) == 2
        parked[0].rename(parked[1].with_name(f"{parked[1].stem}~.wal"))

        log = cluster.open(force=True)

        assert values(log, "t") == [b"a", b"b", b"c"]
        assert not list(tmp_root.glob("_sluice/wal/parked/*.wal"))


def test_a_look_at_the_claim_that_fails_does_not_answer_acks_all(
    tmp_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-3: what the WAL cannot say, the commit will: a topic that is in the log was created."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("other")
        partition = log._partitions["cluster-metadata", 0]
        gate, real = cluster.store.gate("put", "*__cluster_metadata*"), partition._on_logged

        def logged_first(*args: object) -> None:
            real(*args)  # type: ignore[arg-type]
            gate.release()

        monkeypatch.setattr(partition, "_on_logged", logged_first)
        look = cluster.store.fail_before("stat", "*claims*")

        created = log.create_topic("t")

        assert look.hits == 1
        assert cluster.reopen().topic("t").topic_id == created.topic_id


def test_the_catalog_reads_its_log_after_a_change_of_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-4: the change may hold: nothing is decided before that is known."""
    with memory_cluster() as cluster:
        log = cluster.open()
        partition = log._partitions["cluster-metadata", 0]
        real = partition.append

        def unknown(*args: object, **options: object) -> Future[AppendResult]:
            real(*args, **options)  # type: ignore[arg-type]
            answer: Future[AppendResult] = Future()
            answer.set_exception(RequestTimedOut("a test"))
            return answer

        with monkeypatch.context() as patch:
            patch.setattr(partition, "append", unknown)
            with pytest.raises(RequestTimedOut):
                log.create_topic("t")
        eventually(lambda: partition.idle)

        with pytest.raises(TopicAlreadyExists):
            log.create_topic("t")
        append(log, "t", 0, batch("a"))
        assert values(cluster.reopen(), "t") == [b"a"]


def test_a_checkpoint_that_ends_in_a_bug_is_not_the_last_one(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stopped one, the next is due after the usual number of versions."""
    with folder_cluster(tmp_root, checkpoint_interval_versions=10) as cluster:
        log = cluster.open()
        log.create_topic("t")
        partition, failed = log.partition("t", 0), threading.Event()

        def bug() -> int:
            failed.set()
            raise RuntimeError("a test")

        with monkeypatch.context() as patch:
            patch.setattr(partition, "checkpoint", bug)
            append_one_by_one(log, "t", "abcdefghijkl")
            assert failed.wait(WAIT_S)
            eventually(lambda: not partition.durability._checkpointing)
        append_one_by_one(log, "t", "abcdefghijkl")

        eventually(lambda: partition.durability.checkpointed > 0)


def test_a_checkpoint_looks_through_the_producers_while_none_can_come(
    tmp_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary that grows under a loop ends it with an error."""
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"), stamp=stamp(2, 0))
        partition, held = log.partition("t", 0), []
        real = ProducerWindows.__iter__

        def look(windows: ProducerWindows) -> object:
            held.append(partition._lock.locked())
            return real(windows)

        monkeypatch.setattr(ProducerWindows, "__iter__", look)
        partition.checkpoint()

        assert held
        assert all(held)


def test_topic_mode_producers_expire_in_all_partitions() -> None:
    """R-9: a request to the topic forgets those that have been idle for too long, and only those."""
    with memory_cluster(producer_id_expiration_ms=3_600_000) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=2)
        made = [log.new_producer("topic")[0] for _ in range(4)]

        def send(producer: int, sequence: int = 0) -> None:
            request = stamp(producer, sequence, crc=1, body_count=2)
            settled(log.append_topic("t", lambda n: {p: batch("x") for p in range(n)}, stamp=request).parts.values())

        def known() -> list[set[int]]:
            return [set(log.partition("t", number).windows_now()) for number in range(2)]

        for producer in made[:3]:
            send(producer)
        cluster.clock.advance(3_000)
        send(made[0], 1)
        assert known() == [set(made[:3])] * 2

        cluster.clock.advance(1_200)
        send(made[3])

        assert known() == [{made[0], made[3]}] * 2
