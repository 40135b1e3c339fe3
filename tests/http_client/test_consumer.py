"""Consumers of the client as members of real groups."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sluice.api.client import CommittedOffset, Consumer, FetchedRecord, Record, SluiceClient, TopicPartition
from sluice.log_store.errors import FencedInstanceId, IllegalGeneration, NonEmptyGroup, SluiceError
from tests.http_client.conftest import GROUPS
from tests.http_client.transports import Follows
from tests.support.server import running

PATIENCE_S = 60.0
FAST = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 50,
    "session_timeout_ms": 20_000,
    "fetch_max_wait_ms": 200,
    "retry_backoff_max_ms": 200,
}
Make = Callable[..., Consumer]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def member(client: SluiceClient, group: str) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(**changes: Any) -> Consumer:
            return stack.enter_context(client.consumer(**(FAST | {"group": group} | changes)))

        yield make


def fill(client: SluiceClient, topic: str, count: int, partitions: int = 3) -> None:
    client.produce(topic, [Record(value=b"%d" % n, partition=n % partitions) for n in range(count)])


def poll_all(members: list[Consumer], done: Callable[[], bool]) -> list[FetchedRecord]:
    found: list[FetchedRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, [one.assignment for one in members]
        for one in members:
            found += one.poll(0.02)
    return found


def shared_out(members: list[Consumer], partitions: int) -> Callable[[], bool]:
    """Everything has one owner, and everybody has something."""

    def done() -> bool:
        owned = [where for one in members for where in one.assignment]
        settled = not any(one.rebalancing for one in members)
        return settled and len(owned) == len(set(owned)) == partitions and all(one.assignment for one in members)

    return done


def test_a_member_reads_commits_and_a_successor_goes_on(client: SluiceClient, topic: str, member: Make):
    fill(client, topic, 30)
    first = member()
    first.subscribe([topic])
    seen = poll_all([first], lambda: len(first.assignment) == 3)
    while len(seen) < 30:
        seen += first.poll(1.0)
    first.close()
    fill(client, topic, 3)
    second = member()
    second.subscribe([topic])
    fresh: list[FetchedRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(fresh) < 3 and time.monotonic() < deadline:
        fresh += second.poll(0.5)
    assert sorted((one.partition, one.offset) for one in fresh) == [(0, 10), (1, 10), (2, 10)]


@pytest.mark.parametrize("strategy", [("range", "cooperative-sticky"), ("cooperative-sticky",), ("sticky",)])
def test_members_share_out_and_take_over(client: SluiceClient, topic: str, member: Make, strategy):
    members = [member(partition_assignment_strategy=strategy) for _ in range(3)]
    told: list[tuple[str, int]] = []
    for number, one in enumerate(members):
        one.subscribe(
            [topic],
            on_assigned=lambda parts, n=number: told.extend((f"+{n}", p.partition) for p in parts),
            on_revoked=lambda parts, n=number: told.extend((f"-{n}", p.partition) for p in parts),
        )
        poll_all(members[: number + 1], shared_out(members[: number + 1], 3))
    kept = members[1].assignment
    members[0].close()
    poll_all(members[1:], shared_out(members[1:], 3))
    if strategy == ("cooperative-sticky",):
        assert set(kept) <= set(members[1].assignment)
    for partition in range(3):
        moves = [what for what, number in told if number == partition]
        assert all(mine != theirs for mine, theirs in pairwise(moves)), moves
        assert [what[0] for what in moves] == ["+", "-"] * (len(moves) // 2) + ["+"] * (len(moves) % 2)


def test_what_a_member_got_before_is_refused_after_it_lost_it(client: SluiceClient, topic: str, member: Make, group):
    fill(client, topic, 9)
    slow, other = member(enable_auto_commit=False, max_poll_interval_ms=700), member(enable_auto_commit=False)
    slow.subscribe([topic])
    poll_all([slow], lambda: len(slow.assignment) == 3)
    other.subscribe([topic])
    poll_all([other], lambda: len(other.assignment) == 3 and not other.rebalancing)
    with pytest.raises(SluiceError) as refused:
        slow.commit()
    assert refused.value.error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
    assert client.groups.offsets(group) == {}


def test_a_static_member_restarts_without_a_rebalance(topic: str, member: Make, client: SluiceClient, group: str):
    first = member(group_instance_id="host-1")
    first.subscribe([topic])
    poll_all([first], lambda: len(first.assignment) == 3)
    generation = first.identity.generation
    first.close()
    again = member(group_instance_id="host-1")
    again.subscribe([topic])
    poll_all([again], lambda: len(again.assignment) == 3)
    assert again.identity.generation == generation
    twin = member(group_instance_id="host-1")
    twin.subscribe([topic])
    poll_all([twin], lambda: len(twin.assignment) == 3)
    with pytest.raises(FencedInstanceId):
        poll_all([again], lambda: False)


def test_new_partitions_and_topics_are_picked_up(client: SluiceClient, topic: str, member: Make):
    one = member(metadata_max_age_ms=100)
    one.subscribe(pattern=f"{topic}.*")
    poll_all([one], lambda: len(one.assignment) == 3)
    client.topics.grow(topic, 4)
    poll_all([one], lambda: len(one.assignment) == 4)
    client.topics.create(f"{topic}.more", partitions=1)
    poll_all([one], lambda: TopicPartition(f"{topic}.more", 0) in one.assignment)


def test_commits_by_hand(client: SluiceClient, topic: str, member: Make, group: str):
    fill(client, topic, 9)
    one = member(enable_auto_commit=False)
    mine = TopicPartition(topic, 1)
    one.assign([mine])
    assert one.position(mine) == 0
    one.commit({mine: CommittedOffset(offset=2, metadata="half way")})
    found = client.groups.offsets(group, topic)
    assert (found[mine].offset, found[mine].metadata) == (2, "half way")
    with pytest.raises(SluiceError, match="99") as refused:
        one.commit({TopicPartition(topic, 99): 1})
    assert refused.value.error == "UNKNOWN_TOPIC_OR_PARTITION"
    other = member(enable_auto_commit=False)
    other.assign([mine])
    assert [record.offset for record in other.poll(5.0)] == [2]


def test_looking_at_groups_and_moving_them(client: SluiceClient, topic: str, member: Make, group: str):
    fill(client, topic, 9)
    one = member()
    one.subscribe([topic])
    poll_all([one], lambda: len(one.assignment) == 3 and sum(one.position(p) for p in one.assignment) == 9)
    one.commit()
    assert group in {info.group for info in client.groups.list()}
    assert client.groups.describe(group).state.lower() == "stable"
    (seen,) = client.groups.members(group)
    assert seen.member_id == one.identity.member_id
    assert {(lag.partition, lag.current_offset, lag.lag) for lag in client.groups.lags(group)} == {
        (0, 3, 0),
        (1, 3, 0),
        (2, 3, 0),
    }
    assert client.groups.lag_summary(group)["total_lag"] == 0
    with pytest.raises(NonEmptyGroup):
        client.groups.delete(group)
    one.close()
    plan = client.groups.reset(group, {"shift_by": -1}, topics=[f"{topic}:0,2"])
    assert [(row.partition, row.current_offset, row.new_offset) for row in plan] == [(0, 3, 2), (2, 3, 2)]
    assert client.groups.offsets(group)[TopicPartition(topic, 0)].offset == 3
    client.groups.reset(group, {"to_earliest": True}, topics=[topic], execute=True)
    assert {found.offset for found in client.groups.offsets(group).values()} == {0}
    client.groups.delete_offsets(group, [TopicPartition(topic, 0)])
    assert TopicPartition(topic, 0) not in client.groups.offsets(group)
    client.groups.delete(group)
    assert group not in {info.group for info in client.groups.list()}


def test_a_restart_of_the_service_costs_no_record_and_no_rebalance(tmp_path: Path):
    with (
        running(tmp_path / "root", **GROUPS) as server,
        SluiceClient(server.url, transport=Follows(server)) as client,
        client.consumer(**FAST, group="g") as one,
    ):
        client.topics.create("t", partitions=3)
        fill(client, "t", 30)
        one.subscribe(["t"])
        seen = poll_all([one], lambda: len(one.assignment) == 3)
        generation = one.identity.generation
        while len(seen) < 30:
            seen += one.poll(1.0)
        server.kill()
        restarting = threading.Thread(target=server.start)
        restarting.start()
        one.commit()
        restarting.join()
        fill(client, "t", 30)
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 60 and time.monotonic() < deadline:
            seen += one.poll(0.5)
        assert sorted((record.partition, record.offset) for record in seen) == [
            (p, n) for p in range(3) for n in range(20)
        ]
        assert one.identity.generation == generation


def test_stale_generations_do_not_commit(client: SluiceClient, topic: str, member: Make, group: str):
    one = member(enable_auto_commit=False)
    one.subscribe([topic])
    poll_all([one], lambda: len(one.assignment) == 3)
    before = one.identity
    two = member(enable_auto_commit=False)
    two.subscribe([topic])
    poll_all([one, two], shared_out([one, two], 3))
    with pytest.raises(IllegalGeneration):
        one._calls.commit(before, {one.assignment[0]: CommittedOffset(offset=1)})
