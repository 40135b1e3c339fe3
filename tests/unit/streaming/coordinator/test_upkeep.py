"""What goes by itself: expired offsets, those of deleted topics, groups with nothing left; and any order of it all."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.log_store.errors import CoordinatorNotAvailable, GroupIdNotFound
from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator import Waiter
from sluice.streaming.groups import events
from sluice.streaming.groups.effects import Alive, Joined
from tests import counts
from tests.support.logs import WAIT_S, Cluster, commits_done, eventually, memory_cluster
from tests.unit.streaming.coordinator.conftest import Office


def heartbeat(office: Office, group: str, joined: Joined) -> object:
    beat = events.Heartbeat(member_id=joined.member_id, generation=joined.generation)
    return office.coordinator.say(group, beat)


# --- the end of offsets ------------------------------------------------------------------------

DAYS_7 = 7 * 86_400


def test_offsets_expire_by_the_rules(office: Office) -> None:
    """Simple group: since the commit. Group with members: never while it is stable, then since it became empty."""
    joined = office.member("team", session_timeout_ms=1_800_000)
    office.commit("team", 4, member_id=joined.member_id, generation=joined.generation)
    office.commit("simple", 4)
    office.cluster.clock.advance(DAYS_7 - 1)
    office.coordinator.sweep()
    assert (office.offset("simple"), office.offset("team")) == (4, 4)
    assert isinstance(heartbeat(office, "team", joined), Alive)
    office.cluster.clock.advance(1)
    office.coordinator.sweep()
    office.eventually_phase("simple", None)
    assert office.offset("team") == 4
    office.coordinator.say("team", events.Leave((events.Leaving(member_id=joined.member_id),)))
    office.cluster.clock.advance(DAYS_7 - 1)
    office.coordinator.sweep()
    assert office.offset("team") == 4
    office.cluster.clock.advance(1)
    office.coordinator.sweep()
    office.eventually_phase("team", None)
    office.restart()
    assert office.phase("team") is None
    assert office.offset("simple") is None


def test_nothing_expires_by_a_clock_that_jumped(office: Office) -> None:
    """R-13."""
    office.commit("g", 4)
    office.cluster.clock.jump(DAYS_7 * 2)
    office.coordinator.sweep()
    assert office.offset("g") == 4
    office.log.runtime.wall.confirm()
    office.coordinator.sweep()
    office.eventually_phase("g", None)


def test_a_sweep_comes_by_itself(cluster: Cluster) -> None:
    office = Office(cluster, offsets_retention_minutes=1, offsets_retention_check_interval_ms=30_000)
    office.log.create_topic("t")
    office.commit("g", 4)
    cluster.until(lambda: office.phase("g") is None, step=10)
    office.close()


def test_a_deleted_topic_takes_its_offsets_along(office: Office) -> None:
    office.log.create_topic("other")
    office.commit("g", 4)
    office.commit("g", 6, "other")
    office.commit("h", 4)
    office.log.delete_topic("t")
    eventually(lambda: office.coordinator.find("h") is None)
    view = office.coordinator.get("g")
    eventually(lambda: set(office.coordinator.get("g").offsets) == {TopicPartition("other", 0)})
    assert office.offset("g", "other") == 6
    assert view.group.group_id == "g"


def test_a_topic_created_again_has_no_commit(office: Office) -> None:
    """R-8: also when the service was killed before it could delete the offsets."""
    office.commit("g", 4)
    office.coordinator.close()  # deaf to what follows
    office.log.delete_topic("t")
    office.log.create_topic("t", partitions=3)
    office.restart(crash=True)
    assert office.offset("g") is None
    office.commit("g", 1)
    office.coordinator.sweep()
    assert office.offset("g") == 1


def test_a_deleted_group_is_gone_with_all_it_had(office: Office) -> None:
    office.commit("g", 4)
    answers: list = []
    office.coordinator.delete("g", Waiter(answers.append))
    eventually(lambda: answers)
    assert office.phase("g") is None
    office.restart()
    assert office.phase("g") is None
    assert office.offset("g") is None


def test_offsets_on_their_way_are_deleted_with_the_group(office: Office) -> None:
    office.commit("g", 4)
    answers: list = []
    with office.cluster.store.gate("put_if_absent", "*__consumer_offsets*_delta_log/*") as gate:
        late = office.begin_commit("g", 5, "t")
        gate.wait()
        office.coordinator.delete("g", Waiter(answers.append))
    assert late.result(timeout=WAIT_S) is None
    eventually(lambda: answers)
    commits_done(office.log)
    assert office.offset("g") is None
    office.restart()
    assert office.offset("g") is None


# --- anything, in any order --------------------------------------------------------------------

GROUP_NAMES = st.sampled_from(["g", "h", "i"])
ACTIONS = st.one_of(
    st.tuples(st.just("commit"), GROUP_NAMES, st.integers(0, 99)),
    st.tuples(st.just("delete"), GROUP_NAMES),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("recreate")),
)


def _commit(office: Office, group: str, offset: int) -> None:
    """A group whose last topic was deleted is just being removed, perhaps: then once more."""

    def committed() -> bool:
        try:
            office.commit(group, offset)
        except CoordinatorNotAvailable:
            return False
        return True

    eventually(committed)


def _delete(office: Office, group: str) -> None:
    deleted: Future[Any] = Future()
    office.opened(group)
    with suppress(GroupIdNotFound):
        office.coordinator.delete(group, Waiter(deleted.set_result))
        deleted.result(timeout=WAIT_S)


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES // 2, deadline=None)
@given(st.lists(ACTIONS, max_size=12))
def test_what_was_answered_is_what_is_seen_also_after_any_restart(actions: list[tuple[Any, ...]]) -> None:
    with memory_cluster() as cluster:
        office = Office(cluster)
        office.log.create_topic("t")
        expected: dict[str, int] = {}
        for name, *details in actions:
            if name == "commit":
                _commit(office, *details)
                expected[details[0]] = details[1]
            elif name == "restart":
                office.restart(crash=details[0])
            elif name == "recreate":
                office.log.delete_topic("t")
                office.log.create_topic("t")
                expected.clear()
            else:
                _delete(office, *details)
                expected.pop(details[0], None)
            assert {group: office.offset(group) for group in "ghi"} == {group: expected.get(group) for group in "ghi"}
        office.close()
