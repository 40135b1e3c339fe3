"""Groups and offsets over a log: what was answered is durable, and a restart changes nothing that members notice."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from sluice.conf.settings import GroupSettings
from sluice.log_store.errors import (
    IllegalGeneration,
    NotCoordinator,
    NotLeader,
    RequestTimedOut,
    SluiceError,
    UnknownMemberId,
)
from sluice.log_store.store import StoreError
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import Coordinator, Waiter
from sluice.streaming.coordinator.records import decode_key
from sluice.streaming.groups import Refusal, events
from sluice.streaming.groups.effects import Alive, Joined, Synced
from sluice.streaming.groups.subscription import decode_assignment
from tests.support.logs import WAIT_S, eventually, folder_cluster, memory_cluster, values
from tests.unit.streaming.coordinator.conftest import SESSION_MS, Office

OFFSETS = "__consumer_offsets"


def heartbeat(office: Office, group: str, joined: Joined) -> object:
    beat = events.Heartbeat(member_id=joined.member_id, generation=joined.generation)
    return office.coordinator.say(group, beat)


# --- the topic ---------------------------------------------------------------------------------


def test_the_offsets_topic_comes_with_the_first_group_and_not_before(office: Office) -> None:
    assert office.coordinator.opening("g") is None
    assert office.coordinator.find("g") is None
    assert office.coordinator.views() == []
    assert office.log.catalog.state.find(OFFSETS) is None
    office.commit("g", 1)
    meta = office.log.topic(OFFSETS)
    assert meta.internal
    assert meta.partitions == 2
    assert meta.config().compact


def test_records_are_json_that_people_can_read(office: Office) -> None:
    office.member("g")
    office.commit("simple", 7)
    keys = [decode_key(key) for p in range(2) for key in _keys(office, p)]
    assert {type(key).__name__ for key in keys} == {"OffsetKey", "GroupKey"}
    texts = [value.decode() for p in range(2) for value in values(office.log, OFFSETS, p) if value]
    assert any('"offset":7,"metadata":""' in text for text in texts)
    assert any('"partitions":[["t",0],["t",1],["t",2]]' in text for text in texts)


def _keys(office: Office, partition: int) -> list[bytes]:
    return [key for batch in office.log.reads(OFFSETS, partition).scan() for key in batch.column("key").to_pylist()]


# --- members -----------------------------------------------------------------------------------


def test_the_service_computes_the_assignment_from_the_partitions_that_there_are(office: Office) -> None:
    joined = office.joined("g")
    synced = office.sync("g", joined).result(timeout=WAIT_S)
    assert isinstance(synced, Synced)
    assert decode_assignment(synced.assignment).partitions == tuple(TopicPartition("t", p) for p in range(3))
    assert isinstance(heartbeat(office, "g", joined), Alive)


def test_a_session_ends_by_uptime_alone(office: Office) -> None:
    """R-13: a jump of the wall clock expires nobody."""
    joined = office.member("g")
    office.cluster.clock.jump(10 * SESSION_MS)
    office.cluster.tick(SESSION_MS / 1000 - 1)
    assert isinstance(heartbeat(office, "g", joined), Alive)
    office.cluster.tick(SESSION_MS / 1000 - 1)
    assert office.phase("g") == "Stable"
    office.cluster.tick(2)
    office.eventually_phase("g", "Empty")
    refusal = heartbeat(office, "g", joined)
    assert isinstance(refusal, Refusal)
    assert refusal.error is UnknownMemberId


def test_a_join_that_is_given_up_leaves_nothing_behind(office: Office) -> None:
    refusal = office.join("g").result(timeout=WAIT_S)
    assert isinstance(refusal, Refusal)
    assert office.phase("g") == "Empty"
    office.cluster.tick(SESSION_MS / 1000 + 1)
    office.eventually_phase("g", None)
    assert values(office.log, OFFSETS, 0) == values(office.log, OFFSETS, 1) == []


def test_questions_about_a_group_that_is_not_there_do_not_make_it(office: Office) -> None:
    office.opened("g")
    beat = events.Heartbeat(member_id="nobody", generation=1)
    assert isinstance(office.coordinator.say("g", beat), Refusal)
    assert office.coordinator.views() == []


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_resumes_a_group_without_a_rebalance(office: Office, crash: bool) -> None:
    joined = office.member("g")
    office.commit("g", 5, member_id=joined.member_id, generation=joined.generation)
    office.cluster.tick(SESSION_MS / 1000 - 1)
    office.restart(crash=crash)
    office.opened("g")
    office.cluster.tick(SESSION_MS / 1000 - 1)  # a full session from the restart on
    assert isinstance(heartbeat(office, "g", joined), Alive)
    assert office.offset("g") == 5
    synced = office.sync("g", joined).result(timeout=WAIT_S)
    assert isinstance(synced, Synced)
    assert len(decode_assignment(synced.assignment).partitions) == 3


def test_sessions_of_a_group_that_nobody_asks_for_end_after_a_restart(office: Office) -> None:
    office.member("g")
    office.restart()
    eventually(lambda: len(office.coordinator.views()) == 1)
    office.cluster.until(lambda: str(office.coordinator.views()[0].group.phase) == "Empty", step=SESSION_MS / 1000 + 1)


def test_a_stop_tells_whoever_waits(office: Office) -> None:
    refusal = office.join("g").result(timeout=WAIT_S)
    assert isinstance(refusal, Refusal)
    waiting = office.join("g", refusal.member_id)
    office.coordinator.stop()
    told = waiting.result(timeout=WAIT_S)
    assert isinstance(told, Refusal)
    assert told.error is NotCoordinator
    with pytest.raises(NotCoordinator):
        office.coordinator.find("g")


def test_who_hangs_up_has_not_joined(office: Office) -> None:
    refusal = office.join("g").result(timeout=WAIT_S)
    assert isinstance(refusal, Refusal)
    waiter = Waiter(lambda _: pytest.fail("nobody listens"))
    office.join("g", refusal.member_id, token=waiter)
    office.coordinator.client_gone("g", waiter)
    view = office.coordinator.get("g")
    assert not view.group.join_waiters


def test_a_group_too_large_to_be_stored_is_told(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.streaming.coordinator.table.MAX_GROUP_BYTES", 100)
    told = office.sync("g", office.joined("g")).result(timeout=WAIT_S)
    assert isinstance(told, Refusal)
    assert "could not be stored" in told.message
    assert office.phase("g") == "PreparingRebalance"


def test_a_process_that_was_replaced_without_knowing_it_says_nothing(tmp_path: Path) -> None:
    with folder_cluster(tmp_path / "root") as cluster:
        office = Office(cluster)
        office.log.create_topic("t")
        joined = office.member("g")
        cluster.open(force=True)
        assert not office.log.fenced
        with pytest.raises(NotLeader):
            office.coordinator.offsets("g")
        with pytest.raises(NotLeader):
            heartbeat(office, "g", joined)
        office.close()


def test_a_commit_that_a_predecessor_answered_for_after_the_take_over_is_known() -> None:
    """On an object store a replaced leader trusts a look at the claims for a second: it may still accept a commit when
    its successor has read the groups, though only for somebody who reads. Whoever asks that one must not go back."""
    with memory_cluster() as cluster:
        office = Office(cluster)
        office.log.create_topic("t")
        office.commit("g", 1)
        successor = Coordinator(cluster.open(force=True), GroupSettings(offsets_topic_num_partitions=2))
        successor.start()
        while (opening := successor.opening("g")) is not None:
            opening.result(timeout=WAIT_S)
        accepted = 1
        with suppress(SluiceError):
            office.commit("g", 2)
            accepted = 2
        assert {one.offset for one in successor.offsets("g").values()} == {accepted}
        successor.close()
        office.close()


# --- commits -----------------------------------------------------------------------------------


def test_a_commit_is_seen_when_it_is_durable_and_not_before(office: Office) -> None:
    office.commit("g", 1)
    with office.cluster.store.gate("put_if_absent", "*__consumer_offsets*_delta_log/*") as gate:
        second = office.begin_commit("g", 2)
        gate.wait()
        assert office.offset("g") == 1
        assert not second.done()
    assert second.result(timeout=WAIT_S) is None
    assert office.offset("g") == 2
    office.restart(crash=True)
    assert office.offset("g") == 2


def test_the_last_commit_wins_also_when_it_is_lower(office: Office) -> None:
    pending = [office.begin_commit("g", offset) for offset in (5, 9, 3)]
    assert [one.result(timeout=WAIT_S) for one in pending] == [None, None, None]
    assert office.offset("g") == 3
    office.restart()
    assert office.offset("g") == 3


def test_commits_that_come_together_are_one_append(office: Office) -> None:
    office.commit("g", 0)
    partition = next(p for p in range(2) if values(office.log, OFFSETS, p))
    version = office.log.partition(OFFSETS, partition).state.version
    flushes: list = []
    answers = []
    for offset in range(1, 6):
        rows = {TopicPartition("t", 0): office.committed("t", offset)}
        office.coordinator.commit("g", events.Commit(), rows, answers.append, flushes.append)
    assert len(flushes) == 1, "one promise to write is enough"
    assert office.offset("g") == 0, "who looks does not end the gathering"
    assert answers == []
    flushes[0]()
    eventually(lambda: len(answers) == 5)
    assert answers == [None] * 5
    assert office.log.partition(OFFSETS, partition).state.version == version + 1
    assert office.offset("g") == 5


def test_a_stale_generation_cannot_commit(office: Office) -> None:
    joined = office.member("g")
    office.commit("g", 1, member_id=joined.member_id, generation=joined.generation)
    with pytest.raises(IllegalGeneration):
        office.commit("g", 2, member_id=joined.member_id, generation=joined.generation - 1)
    with pytest.raises(UnknownMemberId):
        office.commit("g", 2)
    assert office.offset("g") == 1


def test_a_commit_whose_outcome_was_not_known_is_what_the_log_says(office: Office) -> None:
    """The disk is full: nobody is kept waiting. The record is committed all the same, once there is room."""
    office.commit("g", 1)
    full = StoreError("no room", errno=errno.ENOSPC)
    outage = office.cluster.store.fail_before("*", "*__consumer_offsets*", times=None, error=full)
    second = office.begin_commit("g", 2)
    assert isinstance(second.result(timeout=WAIT_S), RequestTimedOut)
    assert office.offset("g") == 1
    outage.cancel()
    office.cluster.until(lambda: office.offset("g") == 2, step=1)
