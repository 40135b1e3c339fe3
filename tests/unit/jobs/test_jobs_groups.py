"""Offset expiry and assignments from what `__consumer_offsets` holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.jobs.assignment_plan import propose
from sluice.jobs.cluster import open_cluster
from sluice.jobs.stored_groups import stored_groups
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.errors import GroupIdNotFound, InvalidRequest
from sluice.log_store.values import TopicPartition
from sluice.streaming.assignors import Strategy
from sluice.streaming.coordinator.records import Committed
from tests.support.jobs import planned, ran
from tests.support.logs import Cluster, folder_cluster
from tests.support.stored_groups import member, metadata, store_group

DAY = 86_400_000
T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_path / "root") as made:
        yield made


def committed(ms: int, topic_id: str) -> Committed:
    return Committed(offset=7, metadata="", commit_ms=ms, topic_id=topic_id)


def grouped(cluster: Cluster) -> None:
    """Groups of every kind: simple and old, simple and new, with members, of a topic that is no more."""
    log, now = cluster.open(), cluster.clock.wall_ms()
    topic_id = log.create_topic("t", partitions=4).topic_id
    old, new = committed(now - 8 * DAY, topic_id), committed(now - DAY, topic_id)
    store_group(log, "old", offsets={T0: old})
    store_group(log, "new", offsets={T0: new})
    store_group(log, "empty", metadata(since_ms=now - 8 * DAY), {T0: new})
    store_group(log, "just-empty", metadata(since_ms=now - DAY), {T0: old})
    both = {T0: old, TopicPartition("gone", 0): committed(now, "another")}
    store_group(log, "live", metadata(member("m1", ["t"], [("t", 0)]), since_ms=now - 8 * DAY), both)
    log.close()


def test_offsets_expire_by_the_rule_of_the_coordinator(cluster: Cluster, tmp_path: Path) -> None:
    grouped(cluster)
    root, options = tmp_path / "root", {"settings": cluster.settings, "clock": cluster.clock}
    lines = planned("offset-expiry", root, **options)
    assert {(line["subject"], line["action"], line["reason"]) for line in lines} == {
        ("group empty", "forget offset 7", "offsets.retention.minutes is over"),
        ("group empty", "forget the group", "nothing of it is left"),
        ("group old", "forget offset 7", "offsets.retention.minutes is over"),
        ("group old", "forget the group", "nothing of it is left"),
        ("group live", "forget offset 7", "the topic is no more"),
    }

    report = ran("offset-expiry", root, **options).report

    assert (report.outcome, report.mode) == (DONE, "offline")
    assert report.facts == {"offsets": 3, "groups": 2}
    with open_cluster(str(root), read_only=True) as opened:
        left = {name: set(group.offsets) for name, group in stored_groups(opened).items()}
    assert left == {"new": {T0}, "just-empty": {T0}, "live": {T0}}
    assert ran("offset-expiry", root, **options).report.outcome == NOTHING


def test_an_assignment_is_planned_and_compared(cluster: Cluster, tmp_path: Path) -> None:
    log = cluster.open()
    log.create_topic("t", partitions=4)
    members = [member("m1", ["t"], [("t", n) for n in range(4)]), member("m2", ["t"], [])]
    store_group(log, "g", metadata(*members))
    log.close()

    shown = ran("assignment", tmp_path / "root", "--group", "g", "--dry-run", "--json").json

    assert [(line["partition"], line["subject"], line["reason"]) for line in shown["plan"]] == [
        (0, "m1", "stays"),
        (1, "m1", "stays"),
        (2, "m2", "taken from m1"),
        (3, "m2", "taken from m1"),
    ]
    assert shown["notes"] == [
        "range: 2 partitions move, imbalance 0, 0 withheld",
        "roundrobin: 2 partitions move, imbalance 0, 0 withheld",
        "sticky: 2 partitions move, imbalance 0, 0 withheld",
        "cooperative-sticky: 2 partitions move, imbalance 2, 2 withheld",
    ]


def test_a_group_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    cluster.open().close()
    with pytest.raises(GroupIdNotFound, match="there is no group 'g'"):
        planned("assignment", tmp_path / "root", "--group", "g")


def test_the_strategy_is_the_groups_own_unless_told() -> None:
    stored = metadata(member("m1", ["t"], [], "sticky"), protocol="sticky")
    assert propose("g", stored, {"t": 2}, None).strategy is Strategy.STICKY
    assert propose("g", stored, {"t": 2}, "roundrobin").strategy is Strategy.ROUND_ROBIN
    own = metadata(member("m1", ["t"], [], "custom"), protocol="custom")
    assert propose("g", own, {"t": 2}, None).strategy is Strategy.RANGE
    assert propose("g", own, {"t": 2}, None).assignment == {"m1": [TopicPartition("t", 0), TopicPartition("t", 1)]}


def test_a_group_without_members_has_nothing_to_assign() -> None:
    with pytest.raises(InvalidRequest, match="has no members"):
        propose("g", metadata(), {"t": 2}, None)
    with pytest.raises(InvalidRequest, match="has no members"):
        propose("g", None, {"t": 2}, None)
