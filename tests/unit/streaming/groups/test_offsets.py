"""Who may commit, which offsets may be deleted, which expire."""

from __future__ import annotations

import pytest

from sluice.log_store.values import TopicPartition
from sluice.streaming.groups import Group, Phase
from sluice.streaming.groups.effects import OffsetDeleteAllowed
from sluice.streaming.groups.events import OffsetDelete, Unload
from sluice.streaming.groups.offsets import (
    CommittedAt,
    commit_refusal,
    expired,
    is_disposable,
    metadata_refusal,
    offset_delete_refusal,
)
from tests.support.groups import START, GroupDriver, error_of, offers

DAY = 86_400_000
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def group_in(phase: Phase, **changes: object) -> Group:
    driver = GroupDriver()
    driver.completing("a", "b", **changes)
    if phase in (Phase.STABLE, Phase.PREPARING):
        driver.stable()
    if phase is Phase.PREPARING:
        driver.join("a")
    if phase is Phase.EMPTY:
        driver.leave("a", "b")
    if phase is Phase.DEAD:
        driver.send(Unload())
    assert driver.group.phase is phase
    return driver.group


# --- committing --------------------------------------------------------------------------------


def test_a_group_that_does_not_exist():
    assert commit_refusal(None) is None, "a simple group comes to be"
    assert commit_refusal(None, "m", -1) is None
    assert error_of(commit_refusal(None, "m", 0)) == "ILLEGAL_GENERATION"


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.COMPLETING, Phase.STABLE])
def test_the_member_is_judged_before_the_generation(phase: Phase):
    group = group_in(phase)
    assert error_of(commit_refusal(group, "x", 99)) == "UNKNOWN_MEMBER_ID"
    assert error_of(commit_refusal(group, "a", 1, "no instance")) == "UNKNOWN_MEMBER_ID"
    assert error_of(commit_refusal(group, "a", 99)) == "ILLEGAL_GENERATION"
    assert error_of(commit_refusal(group, "a", -1)) == "ILLEGAL_GENERATION"
    assert error_of(commit_refusal(group, "", 1)) == "UNKNOWN_MEMBER_ID"
    assert error_of(commit_refusal(group)) == "UNKNOWN_MEMBER_ID"


def test_a_member_commits_unless_its_assignment_is_not_decided():
    assert commit_refusal(group_in(Phase.STABLE), "b", 1) is None
    assert commit_refusal(group_in(Phase.PREPARING), "b", 1) is None, "before it gives its partitions away"
    assert error_of(commit_refusal(group_in(Phase.COMPLETING), "b", 1)) == "REBALANCE_IN_PROGRESS"
    assert error_of(commit_refusal(group_in(Phase.DEAD), "b", 1)) == "COORDINATOR_NOT_AVAILABLE"
    assert error_of(commit_refusal(group_in(Phase.DEAD))) == "COORDINATOR_NOT_AVAILABLE"


def test_an_empty_group_takes_commits_without_a_generation():
    group = group_in(Phase.EMPTY)
    assert commit_refusal(group) is None
    assert commit_refusal(group, "whoever", -1) is None
    assert error_of(commit_refusal(group, "a", 2)) == "UNKNOWN_MEMBER_ID"


def test_the_metadata_of_one_partition_is_limited_in_bytes():
    assert metadata_refusal("x" * 4096) is None
    assert error_of(metadata_refusal("x" * 4097)) == "OFFSET_METADATA_TOO_LARGE"
    assert error_of(metadata_refusal("ü" * 2049)) == "OFFSET_METADATA_TOO_LARGE"


# --- deleting ----------------------------------------------------------------------------------


def test_only_what_nobody_reads_is_deleted():
    driver = GroupDriver()
    driver.stable("a")
    answer = driver.send(OffsetDelete(frozenset({"t", "u"})))
    assert isinstance(answer, OffsetDeleteAllowed)
    assert {topic: error_of(refusal) for topic, refusal in answer.refused.items()} == {"t": "GROUP_SUBSCRIBED_TO_TOPIC"}


def test_as_long_as_topics_are_not_known_none_is_deleted():
    driver = GroupDriver()
    driver.stable("a", protocols=tuple(offer._replace(metadata=b"?") for offer in offers("range")))
    answer = driver.send(OffsetDelete(frozenset({"u"})))
    assert isinstance(answer, OffsetDeleteAllowed)
    assert answer.refused.keys() == {"u"}


def test_groups_of_another_kind_must_be_empty():
    assert error_of(offset_delete_refusal(group_in(Phase.STABLE, protocol_type="connect"))) == "NON_EMPTY_GROUP"
    assert offset_delete_refusal(group_in(Phase.EMPTY, protocol_type="connect")) is None
    assert error_of(offset_delete_refusal(None)) == "GROUP_ID_NOT_FOUND"


# --- expiring ----------------------------------------------------------------------------------


def test_offsets_of_an_empty_group_count_from_when_it_became_empty():
    group = group_in(Phase.EMPTY)
    offsets = {T0: CommittedAt(0), U0: CommittedAt(group.changed_wall_ms + 5)}
    assert expired(group, offsets, group.changed_wall_ms + DAY - 1, DAY) == frozenset()
    assert expired(group, offsets, group.changed_wall_ms + DAY, DAY) == {T0, U0}


def test_offsets_of_a_stable_group_expire_only_where_nobody_reads():
    group = group_in(Phase.STABLE)
    offsets = {T0: CommittedAt(1_000), U0: CommittedAt(1_000)}
    assert expired(group, offsets, 1_000 + DAY - 1, DAY) == frozenset()
    assert expired(group, offsets, 1_000 + DAY, DAY) == {U0}
    assert expired(group._replace(subscribed_topics=None), offsets, 10 * DAY, DAY) == frozenset()


def test_offsets_of_a_simple_group_count_from_the_commit():
    group = GroupDriver().group
    offsets = {T0: CommittedAt(1_000), U0: CommittedAt(2_000)}
    assert expired(group, offsets, 1_000 + DAY, DAY) == {T0}


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.COMPLETING, Phase.DEAD])
def test_otherwise_nothing_expires(phase: Phase):
    assert expired(group_in(phase), {U0: CommittedAt(0)}, START.wall_ms + 100 * DAY, DAY) == frozenset()


def test_members_of_another_kind_keep_all_their_offsets():
    group = group_in(Phase.STABLE, protocol_type="connect")
    assert expired(group, {U0: CommittedAt(0)}, START.wall_ms + 100 * DAY, DAY) == frozenset()


@pytest.mark.parametrize("phase", [Phase.EMPTY, Phase.STABLE])
def test_what_a_transaction_would_replace_stays(phase: Phase):
    group = group_in(phase)
    assert expired(group, {U0: CommittedAt(0, pending=True)}, START.wall_ms + 100 * DAY, DAY) == frozenset()


def test_an_empty_group_without_offsets_is_disposable():
    assert is_disposable(group_in(Phase.EMPTY), 0)
    assert not is_disposable(group_in(Phase.EMPTY), 1)
    assert not is_disposable(group_in(Phase.STABLE), 0)
    driver = GroupDriver()
    driver.join(new_member_id="p")
    assert not is_disposable(driver.group, 0), "somebody is about to join"
