"""Lag in records and seconds, over a log with a clock that stands still."""

from __future__ import annotations

import pytest

from sluice.log_store.values import TopicPartition
from sluice.streaming.coordinator.lag import LagReader, PartitionLag, summary
from sluice.streaming.coordinator.status import Status
from tests.support.logs import NOW_MS, append, timed
from tests.unit.streaming.coordinator.conftest import Office


@pytest.fixture
def reader(office: Office) -> LagReader:
    return LagReader(office.log, office.coordinator, 60_000)


def lag_of(office: Office, reader: LagReader, group: str = "g") -> PartitionLag:
    (found,) = reader.lags(office.coordinator.get(group))
    return found


def test_an_idle_topic_has_no_lag_however_old_its_records(office: Office, reader: LagReader) -> None:
    append(office.log, "t", 0, timed(NOW_MS - 5_000))
    office.commit("g", 1)
    office.cluster.clock.advance(1_000)
    found = lag_of(office, reader)
    assert (found.lag, found.lag_seconds, found.status) == (0, 0.0, Status.OK)


def test_it_is_the_age_of_the_oldest_record_not_read_and_goes_on_counting(office: Office, reader: LagReader) -> None:
    append(office.log, "t", 0, timed(NOW_MS - 9_000, NOW_MS - 5_000, NOW_MS - 1_000))
    office.commit("g", 1)
    found = lag_of(office, reader)
    assert (found.current_offset, found.log_end_offset, found.lag, found.lag_seconds) == (1, 3, 2, 5.0)
    office.cluster.clock.advance(70)
    later = lag_of(office, reader)
    assert later.lag_seconds == 75.0
    assert later.status is Status.STOP
    office.commit("g", 3)
    assert lag_of(office, reader).lag_seconds == 0.0


def test_what_retention_took_away_is_counted_from_where_the_log_starts(office: Office, reader: LagReader) -> None:
    for ms in (NOW_MS - 9_000, NOW_MS - 5_000):
        append(office.log, "t", 0, timed(ms))
    office.commit("g", 0)
    office.log.delete_records("t", 0, 1)
    found = lag_of(office, reader)
    assert (found.lag, found.lag_seconds) == (2, 5.0)


def test_a_record_is_looked_up_once(office: Office, reader: LagReader) -> None:
    append(office.log, "t", 0, timed(NOW_MS - 9_000, NOW_MS))
    office.commit("g", 0)
    lag_of(office, reader)
    office.log.runtime.tails.drop(office.log.partition("t", 0).ref.folder)
    before = len(office.cluster.store.calls)
    assert lag_of(office, reader).lag_seconds == 9.0
    assert len(office.cluster.store.calls) == before


def test_who_reads_it_is_named(office: Office, reader: LagReader) -> None:
    joined = office.member("g", client_id="me")
    office.commit("g", 0, member_id=joined.member_id, generation=joined.generation)
    found = lag_of(office, reader)
    assert found.member is not None
    assert (found.member.member_id, found.member.client_id) == (joined.member_id, "me")


def test_a_topic_that_is_gone_has_no_lag(office: Office, reader: LagReader) -> None:
    office.commit("g", 0)
    view = office.coordinator.get("g")
    office.log.delete_topic("t")
    assert reader.lags(view) == []


def test_the_summary_names_the_worst() -> None:
    def one(partition: int, lag: int, seconds: float, status: Status) -> PartitionLag:
        where = TopicPartition("t", partition)
        return PartitionLag(
            where=where,
            current_offset=0,
            log_end_offset=lag,
            lag=lag,
            lag_seconds=seconds,
            status=status,
            member=None,
        )

    found = summary([one(0, 3, 9.0, Status.OK), one(1, 7, 2.0, Status.WARN), one(2, 7, 1.0, Status.OK)])
    assert (found.total, found.seconds, found.status) == (17, 9.0, Status.WARN)
    assert found.worst is not None
    assert found.worst.where.partition == 1
    assert summary([]).worst is None
