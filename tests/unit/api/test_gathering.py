"""Small requests that go together: each is told what it would have been told alone."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.api import gathering
from sluice.api.appending import Outcome, Target
from sluice.api.gathering import BINARY, JSON, Destination, Gathering, Many, Single
from sluice.api.service import Service
from sluice.log_store.errors import RequestTimedOut, StorageError
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.topic import ConfigChange
from tests import counts
from tests.support.logs import NOW_MS, Cluster, memory_cluster

Told = Single | Many | Outcome | None
PARTITIONS = 3


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster() as found:
        yield found


@pytest.fixture
def service(cluster: Cluster) -> Iterator[Service]:
    made = a_service(cluster)
    yield made
    made.close()


def a_service(cluster: Cluster) -> Service:
    log = cluster.open()
    log.create_topic("t", partitions=PARTITIONS)
    for number in range(PARTITIONS):
        log.partition("t", number).prepare()
    return Service(log, cluster.settings)


def body(*values: object, **more: object) -> bytes:
    return json.dumps({"records": [{"value": value, **more} for value in values]}).encode()


def to(topic: str = "t", partition: int | None = None, acks: Acks | None = None, timeout_s: float = 20.0) -> Target:
    return Target(topic, partition, acks, timeout_s)


def send(
    service: Service,
    bodies: Sequence[bytes],
    target: Target | None = None,
    form: str = JSON,
    after: Callable[[], None] = lambda: None,
) -> list[Told]:
    """All at the same moment; what each is told."""

    async def run() -> list[Told]:
        together, loop = Gathering(service), asyncio.get_running_loop()
        told: list[asyncio.Future[Told]] = [loop.create_future() for _ in bodies]
        destination = Destination(target or to(), form)
        for one, future in zip(bodies, told, strict=True):
            together.add(destination, one, future.set_result)  # twice would raise
        after()
        return list(await asyncio.wait_for(asyncio.gather(*told), 30))

    return asyncio.run(run())


def stored(service: Service) -> dict[tuple[int, int], bytes]:
    found = {}
    for number in range(PARTITIONS):
        for batch in service.log.reads("t", number).scan():
            rows = zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
            found.update({(number, offset): value for offset, value in rows})
    return found


def places(outcome: Told) -> list[tuple[int, int]]:
    """Where each record of a request is said to be, in its order."""
    if isinstance(outcome, Single):
        return [outcome]
    if isinstance(outcome, Many):
        return list(zip(outcome.partitions.tolist(), outcome.offsets.tolist(), strict=True))
    assert outcome is not None
    found = [(-1, -1)] * outcome.count
    for number, part in outcome.parts.items():
        assert isinstance(part.result, AppendResult)
        for rank, index in enumerate(part.indices.tolist()):
            found[index] = (number, part.result.base_offset + rank)
    return found


def test_each_is_told_where_its_own_records_are(service: Service) -> None:
    bodies = [body(*range(n, n + 1 + n % 4)) for n in range(60)]
    told = send(service, bodies)
    rows = stored(service)
    for one, outcome in zip(bodies, told, strict=True):
        values = [json.dumps(record["value"]).encode() for record in json.loads(one)["records"]]
        assert [rows.pop(place) for place in places(outcome)] == values
    assert not rows


def test_they_share_their_versions(service: Service) -> None:
    before = [service.log.partition("t", number).state.version for number in range(PARTITIONS)]
    send(service, [body(n, n) for n in range(90)])
    after = [service.log.partition("t", number).state.version for number in range(PARTITIONS)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [1] * PARTITIONS
    sizes = [service.log.partition("t", number).high_watermark for number in range(PARTITIONS)]
    assert sizes == [60] * PARTITIONS  # in turn


def test_who_sends_a_little_does_not_wait_for_a_flood_to_another_topic(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "GATHER_S", 1000.0)
    monkeypatch.setattr(gathering, "GATHER_MOST_S", 1000.0)
    monkeypatch.setattr(gathering, "REMEMBERED", 2)

    async def run() -> None:
        together, loop = Gathering(service), asyncio.get_running_loop()

        def send_one(destination: Destination) -> asyncio.Future[Told]:
            told = loop.create_future()
            together.add(destination, body(1), told.set_result)
            return told

        flood, *others = [Destination(to(acks=Acks.NONE), JSON) for _ in range(4)]
        await asyncio.wait_for(send_one(flood), 30)
        waits = send_one(flood)
        for other in others:
            await asyncio.wait_for(send_one(other), 30)
        assert not waits.done()

    asyncio.run(run())


@pytest.mark.parametrize(("together", "least_s"), [(1, 1000), (2, 2000), (3, 3000), (9, 3000)])
def test_what_comes_behind_several_waits_longer_than_what_comes_behind_one(
    service: Service, monkeypatch: pytest.MonkeyPatch, together: int, least_s: float
) -> None:
    monkeypatch.setattr(gathering, "GATHER_S", 1000.0)
    monkeypatch.setattr(gathering, "GATHER_MOST_S", 5000.0)
    waits: list[float] = []

    async def run() -> None:
        loop, made = asyncio.get_running_loop(), Gathering(service)
        destination = Destination(to(acks=Acks.NONE), JSON)
        told = [loop.create_future() for _ in range(together)]
        for future in told:
            made.add(destination, body(1), future.set_result)
        await asyncio.wait_for(asyncio.gather(*told), 30)
        monkeypatch.setattr(loop, "call_at", lambda when, *_: waits.append(when - loop.time()), raising=False)
        made.add(destination, body(1), lambda _: None)

    asyncio.run(run())
    assert waits == [pytest.approx(least_s, abs=100)]


def test_single_records_that_may_go_anywhere_go_together(service: Service) -> None:
    """Each group to one partition, and to another one soon after."""
    used: set[int] = set()
    sent, deadline = 0, time.monotonic() + 60
    while len(used) < PARTITIONS and time.monotonic() < deadline:
        told = send(service, [body(n) for n in range(5)])
        (partition,) = {place[0] for outcome in told for place in places(outcome)}
        used.add(partition)
        sent += 5
    assert used == set(range(PARTITIONS))
    assert len(stored(service)) == sent


def test_a_single_record_alone_goes_where_chance_has_it(service: Service) -> None:
    places_of = [places(send(service, [body(n)])[0])[0][0] for n in range(40)]
    assert set(places_of) == set(range(PARTITIONS))


def test_keys_and_base64(service: Service) -> None:
    told = send(service, [body("dg==", key="aw==") for _ in range(10)], form=BINARY)
    assert len({place[0] for outcome in told for place in places(outcome)}) == 1
    assert set(stored(service).values()) == {b"v"}


@pytest.mark.parametrize(
    "bad", [b"", b"{", b"[]", b'{"records":[]}', b'{"records":[{"value":1}]},{"records":[{"value":2}]}']
)
def test_a_bad_body_goes_alone_and_the_others_go_on(service: Service, bad: bytes) -> None:
    first, alone, last = send(service, [body(1), bad, body(2)])
    assert alone is None
    rows = stored(service)
    assert [rows[places(outcome)[0]] for outcome in (first, last)] == [b"1", b"2"]
    assert len(rows) == 2


def test_a_body_cannot_swallow_its_neighbour(service: Service) -> None:
    """Each is parsed by itself: what would be one JSON text together is not."""
    pieces = [b'{"records":[{"value":[1', b'{"records":[{"value":2}]}', b"3]}]}"]
    assert [outcome is None for outcome in send(service, pieces)] == [True, False, True]
    assert list(stored(service).values()) == [b"2"]


@pytest.mark.parametrize(
    "bodies",
    [
        [body(1), body("x" * 2000)],
        [body(1), body(1, partition=PARTITIONS)],
        [body(1), body(1, timestamp=1)],
        [body(1), json.dumps({"records": [{"value": 1, "headers": [{"name": "n"}] * 2000}]}).encode()],
    ],
)
def test_a_record_that_breaks_a_rule_sends_all_their_own_ways(service: Service, bodies: list[bytes]) -> None:
    service.log.alter_topic(
        "t", [ConfigChange("max.message.bytes", "1000"), ConfigChange("message.timestamp.before.max.ms", "100000")]
    )
    assert send(service, bodies) == [None, None]
    assert not stored(service)


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_records_with_and_without_further_members_go_together(service: Service, form: str) -> None:
    """Long bodies of plain records are parsed into a class of their own: all are one batch in the end."""
    many = [base64.b64encode(b"%05d" % n).decode() for n in range(400)]
    bodies = [
        body(*many[:150]),
        body(many[150]),
        body(*many[151:301], partition=2, timestamp=NOW_MS),
        body(*many[301:]),
    ]
    told = send(service, bodies, form=form)
    rows = stored(service)
    for one, outcome in zip(bodies, told, strict=True):
        sent = [record["value"] for record in json.loads(one)["records"]]
        kept = [rows.pop(place) for place in places(outcome)]
        assert kept == [base64.b64decode(text) if form == BINARY else json.dumps(text).encode() for text in sent]
    assert not rows
    assert {partition for partition, _ in places(told[2])} == {2}
    assert all(isinstance(one, Many) for one in told)
    assert service.log.partition("t", 2).state.version == 1  # the claim, and one version for all of them


def test_what_is_not_open_or_not_there_goes_alone(cluster: Cluster, service: Service) -> None:
    service.log.create_topic("closed")
    assert send(service, [body(1)], to("closed")) == [None]
    assert send(service, [body(1)], to("missing")) == [None]
    assert send(service, [body(1)], to("__cluster_metadata")) == [None]
    assert send(service, [body(1)], to(partition=PARTITIONS)) == [None]
    assert send(service, [body(1, partition=1)], to(partition=0)) == [None]


def test_one_partition_that_refuses_is_the_trouble_of_those_who_go_there(service: Service) -> None:
    service.log.partition("t", 1)._stall.refuses = True
    told = send(service, [body(0, partition=0), body(1, partition=1), body(2, partition=2)])
    assert isinstance(told[0], Single)
    assert isinstance(told[2], Single)
    assert isinstance(told[1], Outcome)
    assert isinstance(told[1].first_error, StorageError)
    assert told[1].all_failed


def test_a_request_over_two_partitions_waits_for_both(service: Service) -> None:
    service.log.partition("t", 1)._stall.refuses = True
    mixed = json.dumps({"records": [{"value": n, "partition": n} for n in (0, 1)]}).encode()
    (outcome,) = send(service, [mixed])
    assert isinstance(outcome, Outcome)
    assert not outcome.all_failed
    assert isinstance(outcome.parts[0].result, AppendResult)
    assert isinstance(outcome.parts[1].result, StorageError)


def test_an_acknowledgement_that_does_not_come(cluster: Cluster, service: Service) -> None:
    cluster.store.fail_before("put", "*/t/0/*.parquet", times=None)
    told = send(service, [body(n, partition=0) for n in range(3)] + [body(9, partition=1)], to(timeout_s=2.0))
    for outcome in told[:3]:
        assert isinstance(outcome, Outcome)
        assert isinstance(outcome.first_error, RequestTimedOut)
    assert isinstance(told[3], Single)
    cluster.store.clear()


def test_many_records_of_which_a_part_is_not_acknowledged_in_time(cluster: Cluster, service: Service) -> None:
    cluster.store.fail_before("put", "*/t/0/*.parquet", times=None)
    mixed = json.dumps({"records": [{"value": n, "partition": n % 2} for n in range(4)]}).encode()
    partly, whole = send(service, [mixed, body(9, 9, partition=1)], to(timeout_s=1.5))
    assert isinstance(partly, Outcome)
    assert isinstance(partly.parts[0].result, RequestTimedOut)
    assert partly.parts[1].result == AppendResult(0, 2, partly.parts[1].result.append_ms, 0)
    assert places(whole) == [(1, 2), (1, 3)]
    cluster.store.clear()


def test_acks_0_of_many_records_promises_nothing(service: Service) -> None:
    (outcome,) = send(service, [body(1, 2)], to(acks=Acks.NONE))
    assert isinstance(outcome, Outcome)
    assert outcome.acks is Acks.NONE


def test_acks_0_promises_nothing(service: Service) -> None:
    (outcome,) = send(service, [body(1)], to(acks=Acks.NONE))
    assert isinstance(outcome, Outcome)
    assert outcome.acks is Acks.NONE


texts = st.lists(
    st.one_of(
        st.builds(lambda values: body(*values), st.lists(st.integers(0, 99), min_size=1, max_size=5)),
        st.builds(lambda value, p: body(value, partition=p), st.integers(0, 99), st.integers(0, PARTITIONS - 1)),
        st.builds(lambda value, key: body(value, key=key), st.integers(0, 99), st.text(max_size=3)),
        st.sampled_from([b"", b"{}", b'{"records":[{"value":1}', b"]}", body(1) + body(2)]),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=counts.HYPOTHESIS_EXAMPLES // 5 + 5)
@given(bodies=texts)
def test_nothing_is_lost_doubled_or_told_wrong(bodies: list[bytes]) -> None:
    with memory_cluster() as cluster:
        service = a_service(cluster)
        rows = {}
        for one, outcome in zip(bodies, send(service, bodies), strict=True):
            try:
                records = json.loads(one)["records"]
            except (ValueError, KeyError):
                assert outcome is None
                continue
            for record, place in zip(records, places(outcome), strict=True):
                assert record.get("partition", place[0]) == place[0]
                rows[place] = json.dumps(record["value"]).encode()
        assert stored(service) == rows
        service.close()
