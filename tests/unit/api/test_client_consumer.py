"""The consumer against a service that does what the test says: what is handed out, committed, and told to whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluice.api.client import (
    Consumer,
    ConsumerClosed,
    ConsumerOptions,
    FetchedRecord,
    NoOffsetForPartition,
    SluiceClient,
    TopicPartition,
)
from sluice.log_store.errors import (
    CoordinatorLoadInProgress,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InvalidRequest,
    MemberIdRequired,
    OffsetOutOfRange,
    RebalanceInProgress,
    SluiceError,
    UnknownMemberId,
)
from tests.support.scripted_service import ScriptedService

PATIENCE_S = 60.0
FAST = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 20,
    "session_timeout_ms": 20_000,
    "fetch_max_wait_ms": 50,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 40,
    "default_api_timeout_ms": 60_000,
}
P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService(t=2, other=1)


@pytest.fixture
def consumer(service: ScriptedService) -> Iterator[Callable[..., Consumer]]:
    opened: list[Consumer] = []
    with SluiceClient("http://sluice", transport=service) as client:

        def make(**changes: Any) -> Consumer:
            opened.append(client.consumer(**(FAST | changes)))
            return opened[-1]

        yield make
        service.down = False
        for one in opened:
            one.close()


class Heard:
    """What the callbacks were told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def listeners(self) -> dict[str, Any]:
        return {f"on_{name}": self._on(name) for name in ("assigned", "revoked", "lost")}

    def _on(self, name: str) -> Callable[[tuple[TopicPartition, ...]], None]:
        return lambda partitions: self.calls.append((name, tuple(one.partition for one in partitions)))


def until(consumer: Consumer, done: Callable[[], bool]) -> list[FetchedRecord]:
    """Poll until it holds; what was handed out on the way."""
    found: list[FetchedRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        found += consumer.poll(0.05)
    return found


def read(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of at least so many records."""
    found: list[FetchedRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
        found += consumer.poll(0.2)
    return sorted((record.partition, record.offset) for record in found)


# --- reading -----------------------------------------------------------------------------------


def test_a_member_reads_everything_in_order(service, consumer):
    service.fill("t", 0, 1_200)
    service.fill("t", 1, 3)
    one = consumer()
    one.subscribe(["t"])
    seen: list[FetchedRecord] = []
    while len(seen) < 1_203:
        batch = one.poll(1.0)
        assert len(batch) <= one.options.max_poll_records
        seen += batch
    assert [record.offset for record in seen if record.partition == 0] == list(range(1_200))
    assert seen[0].value == b"t-%d-0" % seen[0].partition
    assert one.assignment == (P0, P1)
    assert (one.position(P0), one.position(P1)) == (1_200, 3)


def test_arrow_gives_the_same_rows_as_tables(service, consumer):
    service.fill("t", 1, 700)
    one = consumer()
    one.assign([P1])
    rows: list[int] = []
    while len(rows) < 700:
        for table in one.poll_arrow(1.0):
            rows += table.table.column("offset").to_pylist()
            assert (table.topic, table.partition) == ("t", 1)
    assert rows == list(range(700))
    assert one.position(P1) == 700


def test_reading_begins_at_the_commit_or_where_the_reset_rule_says(service, consumer):
    service.fill("t", 0, 10)
    service.fill("t", 1, 10)
    service.committed["t", 0] = 8
    one = consumer()
    one.subscribe(["t"])
    assert read(one, 12) == [(0, 8), (0, 9), *((1, n) for n in range(10))]


def test_latest_begins_at_the_end_and_keeps_that_place(service, consumer):
    service.fill("t", 0, 10)
    one = consumer(auto_offset_reset="latest", auto_commit_interval_ms=1)
    one.assign([P0])
    until(one, lambda: service.committed.get(("t", 0)) == 10)
    service.fill("t", 0, 1)
    assert read(one, 1) == [(0, 10)]


def test_without_a_reset_rule_a_missing_commit_is_an_error(service, consumer):
    one = consumer(auto_offset_reset="none")
    one.assign([P0])
    with pytest.raises(NoOffsetForPartition, match="t-0"):
        one.poll(1.0)
    one.seek(P0, 0)
    service.fill("t", 0, 1)
    assert read(one, 1) == [(0, 0)]


def test_a_position_that_is_gone_follows_the_reset_rule(service, consumer):
    service.fill("t", 0, 10)
    service.starts["t", 0] = 6
    service.committed["t", 0] = 2
    one = consumer()
    one.assign([P0])
    assert read(one, 4) == [(0, n) for n in range(6, 10)]
    strict = consumer(auto_offset_reset="none")
    strict.assign([P0])
    strict.seek(P0, 1)
    with pytest.raises(OffsetOutOfRange):
        until(strict, lambda: False)


def test_seeking_drops_what_was_fetched_ahead(service, consumer):
    service.fill("t", 0, 10)
    one = consumer()
    one.assign([P0])
    assert [record.offset for record in one.poll(2.0, max_records=2)] == [0, 1]
    one.seek(P0, 7)
    assert read(one, 3) == [(0, 7), (0, 8), (0, 9)]
    one.seek_to_beginning()
    assert one.position(P0) == 0
    one.seek_to_end([P0])
    assert one.position(P0) == 10


def test_paused_partitions_give_nothing_until_they_are_resumed(service, consumer):
    one = consumer()
    one.assign([P0, P1])
    one.pause([P0])
    service.fill("t", 0, 1)
    service.fill("t", 1, 1)
    assert read(one, 1) == [(1, 0)]
    assert one.poll(0.1) == []
    assert one.paused == (P0,)
    one.resume([P0])
    assert read(one, 1) == [(0, 0)]


def test_what_is_fetched_ahead_is_bounded(service, consumer):
    for number in (0, 1):
        service.fill("t", number, 1_000)
    one = consumer(fetch_max_bytes=1_000, max_partition_fetch_bytes=1_000)
    one.assign([P0, P1])
    until(one, lambda: len(one.assignment) == 2)
    assert len(read(one, 2_000)) == 2_000


def test_more_partitions_than_threads_take_turns(service, consumer):
    service.grow("t", 40)
    for number in range(40):
        service.fill("t", number, 3)
    one = consumer(fetch_threads=3)
    one.subscribe(["t"])
    assert read(one, 120) == [(number, n) for number in range(40) for n in range(3)]
    assert one._fetcher._threads == 3


def test_a_loop_that_is_left_goes_on_where_it_was(service, consumer):
    service.fill("t", 0, 10)
    one = consumer()
    one.assign([P0])
    for record in one:
        if record.offset == 3:
            one.commit()
            break
    assert service.committed["t", 0] == 4
    assert read(one, 6) == [(0, n) for n in range(4, 10)]


# --- commits -----------------------------------------------------------------------------------


def test_commit_stores_what_was_handed_out_and_not_what_was_fetched(service, consumer):
    service.fill("t", 0, 10)
    one = consumer(enable_auto_commit=False)
    one.subscribe(["t"])
    got = until(one, lambda: len(one.assignment) == 2) or one.poll(2.0, max_records=3)
    one.commit()
    assert service.committed["t", 0] == len(got)
    assert service.commits[-1]["member_id"] == one.identity.member_id
    assert service.commits[-1]["generation_id"] == 1
    found = one.committed([P0, TopicPartition("other", 0)])
    assert found[P0] is not None
    assert found[P0].offset == len(got)
    assert found[TopicPartition("other", 0)] is None


def test_auto_commit_covers_earlier_polls_only(service, consumer):
    service.fill("t", 0, 4)
    one = consumer(auto_commit_interval_ms=1)
    one.assign([P0])
    service.committed["t", 0] = 0
    assert len(one.poll(2.0, max_records=2)) == 2
    assert service.committed["t", 0] == 0
    begun = time.monotonic()
    while time.monotonic() < begun + 0.005:
        assert service.committed["t", 0] == 0
    assert len(one.poll(2.0, max_records=2)) == 2
    assert service.committed["t", 0] == 2


def test_closing_commits_and_leaves(service, consumer):
    service.fill("t", 0, 4)
    one = consumer(auto_commit_interval_ms=60_000)
    one.subscribe(["t"])
    read(one, 4)
    one.close()
    assert service.committed["t", 0] == 4
    assert service.leaves == ["member-1"]
    with pytest.raises(ConsumerClosed):
        one.poll()


def test_after_an_error_the_last_records_are_not_committed(service, consumer):
    service.fill("t", 0, 4)
    one = consumer(auto_commit_interval_ms=60_000)

    def work() -> None:
        with one:
            one.assign([P0])
            assert len(one.poll(2.0, max_records=1)) == 1
            assert len(one.poll(2.0, max_records=3)) == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert service.committed["t", 0] == 1


def test_a_static_member_does_not_leave(service, consumer):
    one = consumer(group_instance_id="host-1")
    one.subscribe(["t"])
    until(one, lambda: bool(one.assignment))
    one.close()
    assert service.leaves == []
    assert service.joins[0]["group_instance_id"] == "host-1"


def test_a_refused_commit_is_raised(service, consumer):
    service.fill("t", 0, 1)
    one = consumer(enable_auto_commit=False)
    one.subscribe(["t"])
    read(one, 1)
    service.refuse("offsets", IllegalGeneration("an older generation"))
    with pytest.raises(IllegalGeneration):
        one.commit()
    with pytest.raises(IllegalGeneration, match="other-0 is not assigned"):
        one.commit({TopicPartition("other", 0): 1})
    assert service.commits == []


def test_a_commit_lasts_through_a_restart(service, consumer):
    service.fill("t", 0, 1)
    one = consumer(enable_auto_commit=False)
    one.assign([P0])
    read(one, 1)
    service.refuse("offsets", CoordinatorLoadInProgress("loading"))
    service.down = True
    threading.Timer(0.2, lambda: setattr(service, "down", False)).start()
    one.commit()
    assert service.committed["t", 0] == 1


# --- membership --------------------------------------------------------------------------------


def test_the_id_that_the_group_gives_is_used(service, consumer):
    service.refuse("join", MemberIdRequired("come again", member_id="given"))
    one = consumer(client_id="app")
    one.subscribe(["t"])
    until(one, lambda: bool(one.assignment))
    assert [(join["member_id"], join["client_id"]) for join in service.joins] == [("given", "app")]


def test_eager_members_give_everything_up_before_they_join_again(service, consumer):
    heard = Heard()
    one = consumer()
    one.subscribe(["t"], **heard.listeners())
    until(one, lambda: bool(one.assignment))
    service.assignment = [("t", 1)]
    service.refuse("heartbeat", RebalanceInProgress("join"))
    until(one, lambda: one.assignment == (P1,))
    assert heard.calls == [("assigned", (0, 1)), ("revoked", (0, 1)), ("assigned", (1,))]
    assert service.joins[1]["member_id"] == "member-1"
    assert service.joins[1]["protocols"][0]["metadata"]["owned_partitions"] == []


def test_sticky_members_say_what_they_had(service, consumer):
    one = consumer(partition_assignment_strategy=("sticky",))
    one.subscribe(["t"])
    until(one, lambda: bool(one.assignment))
    service.refuse("heartbeat", RebalanceInProgress("join"))
    until(one, lambda: len(service.joins) == 2 and bool(one.assignment))
    metadata = service.joins[1]["protocols"][0]["metadata"]
    assert metadata["owned_partitions"] == [["t", 0], ["t", 1]]
    assert metadata["generation"] == 1


def test_cooperative_members_keep_reading_and_give_up_only_what_moves(service, consumer):
    service.fill("t", 1, 1)
    heard = Heard()
    one = consumer(partition_assignment_strategy=("cooperative-sticky",), auto_commit_interval_ms=60_000)
    one.subscribe(["t"], **heard.listeners())
    read(one, 1)
    service.assignment = [("t", 1)]
    service.hold_joins.clear()
    service.refuse("heartbeat", RebalanceInProgress("join"))
    until(one, lambda: bool(one._membership and one._membership.busy))
    assert one.assignment == (P0, P1)
    with service.changed:
        service.hold_joins.set()
        service.changed.notify_all()
    until(one, lambda: len(service.joins) >= 3)
    assert heard.calls[:3] == [("assigned", (0, 1)), ("revoked", (0,)), ("assigned", ())]
    assert service.joins[1]["protocols"][0]["metadata"]["owned_partitions"] == [["t", 0], ["t", 1]]
    assert service.joins[2]["protocols"][0]["metadata"]["owned_partitions"] == [["t", 1]]
    assert one.position(P1) == 1


@pytest.mark.parametrize("error", [UnknownMemberId("who?"), IllegalGeneration("old")])
def test_a_member_that_the_group_forgot_has_lost_its_partitions(service, consumer, error):
    heard = Heard()
    one = consumer()
    one.subscribe(["t"], **heard.listeners())
    until(one, lambda: bool(one.assignment))
    service.refuse("heartbeat", error)
    until(one, lambda: len(service.joins) == 2 and bool(one.assignment))
    assert heard.calls == [("assigned", (0, 1)), ("lost", (0, 1)), ("assigned", (0, 1))]
    assert service.joins[1]["member_id"] == ("" if isinstance(error, UnknownMemberId) else "member-1")


@pytest.mark.parametrize("error", [FencedInstanceId("another one runs"), GroupMaxSizeReached("full")])
def test_what_will_not_pass_by_itself_is_raised(service, consumer, error):
    heard = Heard()
    one = consumer(group_instance_id="host-1")
    one.subscribe(["t"], **heard.listeners())
    until(one, lambda: bool(one.assignment))
    service.refuse("heartbeat", error)
    with pytest.raises(type(error)):
        until(one, lambda: False)
    assert heard.calls == [("assigned", (0, 1)), ("lost", (0, 1))]
    assert one.assignment == ()


def test_whoever_is_fenced_does_not_fence_back(service, consumer):
    one = consumer(group_instance_id="host-1")
    one.subscribe(["t"])
    until(one, lambda: bool(one.assignment))
    service.refuse("heartbeat", FencedInstanceId("another one runs"))
    for _ in range(3):
        with pytest.raises(FencedInstanceId):
            until(one, lambda: False)
    assert len(service.joins) == 1


def test_an_answer_that_makes_no_sense_is_raised(service, consumer):
    service.topics["t"] = 1
    service.assignment = ["nonsense"]
    one = consumer()
    one.subscribe(["t"])
    with pytest.raises(SluiceError, match="no answer of a group"):
        until(one, lambda: False)


def test_whoever_does_not_poll_is_out(service, consumer):
    heard = Heard()
    one = consumer(max_poll_interval_ms=300)
    one.subscribe(["t"], **heard.listeners())
    until(one, lambda: bool(one.assignment))
    deadline = time.monotonic() + PATIENCE_S
    while not service.leaves and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert service.leaves == ["member-1"]
    assert heard.calls == [("assigned", (0, 1))]
    until(one, lambda: len(service.joins) >= 2 and bool(one.assignment))
    assert heard.calls[1:3] == [("lost", (0, 1)), ("assigned", (0, 1))]


def test_a_long_poll_is_not_silence(service, consumer):
    one = consumer(max_poll_interval_ms=1_000)
    one.subscribe(["t"])
    until(one, lambda: bool(one.assignment))
    one.poll(1.5)
    assert service.leaves == []


def test_an_outage_costs_no_position(service, consumer):
    service.fill("t", 0, 5)
    heard = Heard()
    one = consumer(enable_auto_commit=False)
    one.subscribe(["t"], **heard.listeners())
    read(one, 5)
    service.down = True
    assert one.poll(0.3) == []
    service.down = False
    service.fill("t", 0, 5)
    assert read(one, 5) == [(0, n) for n in range(5, 10)]
    assert heard.calls == [("assigned", (0, 1))]


def test_new_partitions_and_new_topics_of_a_pattern_are_noticed(service, consumer):
    one = consumer(metadata_max_age_ms=50)
    one.subscribe(pattern="t.*")
    until(one, lambda: one.assignment == (P0, P1))
    service.grow("t", 3)
    until(one, lambda: one.assignment == (P0, P1, P2))
    service.grow("t2", 1)
    until(one, lambda: TopicPartition("t2", 0) in one.assignment)
    assert len(service.joins) == 3


# --- use ---------------------------------------------------------------------------------------


def test_wakeup_and_close_end_a_poll_that_waits(service, consumer):
    one = consumer()
    one.subscribe(["t"])
    until(one, lambda: bool(one.assignment))
    for end in (one.wakeup, one.close):
        threading.Timer(0.1, end).start()
        assert one.poll(200) == []
    deadline = time.monotonic() + PATIENCE_S
    while not service.leaves and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert service.leaves == ["member-1"]


def test_closing_ends_a_loop(service, consumer):
    one = consumer()
    one.assign([P0])
    threading.Timer(0.1, one.close).start()
    assert list(one) == []


def test_a_consumer_can_subscribe_again(service, consumer):
    one = consumer()
    one.subscribe(["t"])
    until(one, lambda: one.assignment == (P0, P1))
    one.subscribe(["other"])
    until(one, lambda: one.assignment == (TopicPartition("other", 0),))
    one.unsubscribe()
    assert service.leaves == ["member-1"]
    one.assign([P0])
    assert one.assignment == (P0,)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda one: one.poll(), "subscribe to topics or assign"),
        (lambda one: one.subscribe(["t"], pattern="t"), "not both"),
        (lambda one: one.subscribe("t"), "a list of names"),
        (lambda one: one.subscribe(pattern="("), "pattern"),
        (lambda one: (one.assign([P0]), one.subscribe(["t"])), "by hand"),
        (lambda one: (one.subscribe(["t"]), one.assign([P0])), "is subscribed"),
        (lambda one: (one.assign([P0]), one.seek(P1, 1)), "t-1 is not assigned"),
    ],
)
def test_wrong_use_is_named(consumer, use, message):
    with pytest.raises(InvalidRequest, match=message):
        use(consumer())


@pytest.mark.parametrize(
    "changes",
    [
        {"partition_assignment_strategy": ()},
        {"partition_assignment_strategy": ("best",)},
        {"auto_offset_reset": "begin"},
        {"group": None, "group_instance_id": "x"},
        {"max_poll_records": 0},
        {"heartbeat_interval_ms": 2_000, "session_timeout_ms": 2_000},
    ],
)
def test_wrong_options_are_named(changes):
    with pytest.raises(InvalidRequest):
        ConsumerOptions(**(FAST | changes))


def test_without_a_group_there_is_nothing_to_subscribe_or_commit(service, consumer):
    one = consumer(group=None)
    with pytest.raises(InvalidRequest, match="no group"):
        one.subscribe(["t"])
    service.fill("t", 0, 1)
    one.assign([P0])
    assert read(one, 1) == [(0, 0)]
    with pytest.raises(InvalidRequest, match="no group"):
        one.commit()
