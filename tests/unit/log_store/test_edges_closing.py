"""Edges of closing and of answering: everything accepted is answered once, nothing is accepted too late."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sluice.log_store import partition_appends as partition_module
from sluice.log_store.errors import NotLeader
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import AppendResult, settle
from sluice.log_store.wal_values import WalStalled
from tests.support.logs import LEADER, WAIT_S, append, batch, eventually, folder_cluster, memory_cluster, values


def test_nothing_is_accepted_once_closing_has_begun(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the drain and the release of the claim nobody would commit it, and the next leader does not wait."""
    with memory_cluster(wal={"dir": str(tmp_root)}) as cluster:
        log = cluster.open()
        for topic in "tu":
            log.create_topic(topic)
        append(log, "t", 0, batch("a"))
        drain, refused = log.background.drain, []

        def late(partitions: Iterable[PartitionLog], timeout_s: float) -> bool:
            done = drain(partitions, timeout_s)
            # One that is on the list of those to be closed, and one that is first used now.
            for topic in "tu":
                with pytest.raises(NotLeader):
                    log.append(topic, 0, batch("late"), acks=LEADER)
                refused.append(topic)
            return done

        monkeypatch.setattr(log.background, "drain", late)
        log.close()

        assert refused == ["t", "u"]
        assert log.partition("u", 0)._closed
        with pytest.raises(NotLeader):
            log.append("u", 0, batch("late"))
        assert values(cluster.open(), "t") == [b"a"]


def test_a_topic_is_deleted_although_the_wal_cannot_be_written(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every partition is closed and the files go when they are due, whatever the WAL's disk says."""
    with folder_cluster(tmp_root, fsync=True) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=3)
        partitions = [log.partition("t", number) for number in range(3)]
        for number in range(3):
            append(log, "t", number, batch("a"))

        def stalled(*_: object, **__: object) -> None:
            raise WalStalled("a test")

        with monkeypatch.context() as patch:
            patch.setattr(log.runtime.wal, "release", stalled)
            log.delete_topic("t")

        for partition in partitions:
            with pytest.raises(NotLeader):
                partition.append(batch("ghost"))
        cluster.tick(86_400)
        eventually(lambda: not (tmp_root / "topics" / "t").exists())


class Counted(Future[AppendResult]):
    """Knows how often somebody tried to answer it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def set_result(self, result: AppendResult) -> None:
        self.answers += 1
        super().set_result(result)


def test_a_waiter_is_answered_by_the_commit_or_by_the_wal(tmp_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both come at the same time, one of them has taken the waiter."""
    monkeypatch.setattr(partition_module, "Future", Counted)
    with memory_cluster(wal={"dir": str(tmp_root)}) as cluster:
        log = cluster.open()
        log.create_topic("t")
        append(log, "t", 0, batch("a"))
        partition, answer_now, told = log.partition("t", 0), threading.Event(), threading.Event()
        refusal, logged = partition._refusal_of_logged, partition._on_logged

        def slow(error: BaseException | None) -> Any:
            answer_now.wait(WAIT_S)
            return refusal(error)

        def then_tell(*args: Any) -> None:
            logged(*args)
            told.set()

        monkeypatch.setattr(partition, "_refusal_of_logged", slow)
        monkeypatch.setattr(partition, "_on_logged", then_tell)
        waiter = log.append("t", 0, batch("b"), acks=LEADER)
        assert waiter.result(WAIT_S).base_offset == 1

        answer_now.set()
        assert told.wait(WAIT_S)

        assert isinstance(waiter, Counted)
        assert waiter.answers == 1


def test_who_answers_second_does_no_harm() -> None:
    """Another thread may answer between a look and the answer: whoever comes later goes on to the next waiter."""

    class Unseen(Future[AppendResult]):
        def done(self) -> bool:
            return False

    future = Unseen()
    first = AppendResult(base_offset=0, count=1, append_ms=0, log_start=0)
    settle(future, first)
    settle(future, NotLeader("a test"))

    assert future.result(0) is first
