"""A coordinator over a log in memory, with time in the test's hands."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest

from sluice.conf.settings import GroupSettings
from sluice.log_store.errors import SluiceError
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import Committed, Coordinator, Waiter
from sluice.streaming.groups import Refusal, Response, events
from sluice.streaming.groups.effects import Joined, Synced
from tests.support.groups import offers
from tests.support.logs import WAIT_S, Cluster, eventually, memory_cluster

SESSION_MS, DELAY_MS = 10_000, 1_000
SETTINGS: dict[str, Any] = {"offsets_topic_num_partitions": 2, "initial_rebalance_delay_ms": DELAY_MS}


class Office:
    """One life of the coordinator after the other, on the same log."""

    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        self.cluster = cluster
        self._settings = GroupSettings(**{**SETTINGS, **settings})
        self._names = count()
        self._begin(cluster.open())

    def _begin(self, log: Any) -> None:
        self.log = log
        self.coordinator = Coordinator(log, self._settings)
        self.coordinator.start()

    def restart(self, *, crash: bool = False) -> None:
        self.coordinator.close()
        self._begin(self.cluster.crash() if crash else self.cluster.reopen())

    def close(self) -> None:
        self.coordinator.close()

    def opened(self, group: str) -> None:
        while (opening := self.coordinator.opening(group, write=True)) is not None:
            opening.result(timeout=WAIT_S)

    # --- members -------------------------------------------------------------------------------

    def join(self, group: str, member_id: str = "", **changes: Any) -> Future[Response]:
        self.opened(group)
        answer: Future[Response] = Future()
        fields = {
            "token": Waiter(answer.set_result),
            "member_id": member_id,
            "new_member_id": f"m-{next(self._names)}",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": offers("range"),
        }
        self.coordinator.join(group, events.Join(**{**fields, **changes}))
        return answer

    def joined(self, group: str, **changes: Any) -> Joined:
        """A member of its own, alone in the group."""
        refusal = self.join(group, **changes).result(timeout=WAIT_S)
        assert isinstance(refusal, Refusal)
        answer = self.join(group, refusal.member_id, **changes)
        self.cluster.tick(DELAY_MS / 1000)
        found = answer.result(timeout=WAIT_S)
        assert isinstance(found, Joined), found
        return found

    def sync(self, group: str, joined: Joined, **changes: Any) -> Future[Response]:
        self.opened(group)
        answer: Future[Response] = Future()
        waiter = Waiter(answer.set_result)
        asked = {"member_id": joined.member_id, "generation": joined.generation, "strategy": "range", **changes}
        self.coordinator.sync(group, events.Sync(token=waiter, **asked))
        return answer

    def member(self, group: str, **changes: Any) -> Joined:
        """A member with its assignment: the group is stable."""
        joined = self.joined(group, **changes)
        assert isinstance(self.sync(group, joined).result(timeout=WAIT_S), Synced)
        return joined

    # --- offsets -------------------------------------------------------------------------------

    def committed(self, topic: str, offset: int, **more: Any) -> Committed:
        topic_id = self.log.topic(topic).topic_id
        return Committed(offset=offset, metadata="", commit_ms=self.cluster.clock.wall_ms(), topic_id=topic_id, **more)

    def begin_commit(self, group: str, offset: int, topic: str = "t", **who: Any) -> Future[SluiceError | None]:
        self.opened(group)
        answer: Future[SluiceError | None] = Future()
        rows = {TopicPartition(topic, 0): self.committed(topic, offset)}
        self.coordinator.commit(group, events.Commit(**who), rows, answer.set_result)
        return answer

    def commit(self, group: str, offset: int, topic: str = "t", **who: Any) -> None:
        error = self.begin_commit(group, offset, topic, **who).result(timeout=WAIT_S)
        if error is not None:
            raise error

    def offset(self, group: str, topic: str = "t") -> int | None:
        self.opened(group)
        found = self.coordinator.offsets(group).get(TopicPartition(topic, 0))
        return None if found is None else found.offset

    def phase(self, group: str) -> str | None:
        self.opened(group)
        view = self.coordinator.find(group)
        return None if view is None else str(view.group.phase)

    def eventually_phase(self, group: str, phase: str | None) -> None:
        eventually(lambda: self.phase(group) == phase)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as found:
        yield found


@pytest.fixture
def office(cluster: Cluster) -> Iterator[Office]:
    found = Office(cluster)
    found.log.create_topic("t", partitions=3)
    yield found
    found.close()
