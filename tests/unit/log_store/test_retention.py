"""Retention in a running log: by time, by size, the active segment, and when it pauses."""

from __future__ import annotations

import pytest

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import OffsetOutOfRange, PlanRefused
from sluice.log_store.retention import decide_retention
from sluice.log_store.topic import ConfigChange
from tests.support.logs import (
    NOW_MS,
    append,
    batch,
    commits,
    eventually,
    folder_of,
    memory_cluster,
    rows,
    timed,
    values,
)

HOUR = 3_600_000


def hourly(log: LogStore, hours: int) -> None:
    """One segment an hour, each of one record, the newest stamped now."""
    log.create_topic("t", configs={"segment.ms": HOUR - 1, "retention.ms": 3 * HOUR})
    for hour in range(hours):
        append(log, "t", 0, timed(NOW_MS - (hours - 1 - hour) * HOUR))


def starts(log: LogStore) -> int:
    return log.partition("t", 0).log_start


def checked(log: LogStore) -> None:
    log.retention.check()


def test_segments_go_once_they_are_older_than_retention_ms_and_not_a_millisecond_sooner() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        hourly(log, 6)  # ages 5 h, 4 h, 3 h, …

        checked(log)
        assert starts(log) == 2  # exactly 3 h is not over 3 h

        cluster.clock.advance(0.001)
        checked(log)
        assert starts(log) == 3
        assert [offset for offset, _ in rows(log, "t")] == [3, 4, 5]
        with pytest.raises(OffsetOutOfRange):
            log.reads("t", 0).fetch(2)


def test_the_commit_says_why() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        hourly(log, 6)
        checked(log)

        last = commits(cluster.store, folder_of(log, "t"))[-1]

        assert last.details["plan"]["kind"] == "retention"
        assert last.details["plan"]["reason"] == "2 segments by retention.ms"
        assert last.details["start"] == 2
        assert len(last.removes) == 2


def test_a_record_from_the_future_keeps_its_segment_and_all_behind_it() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"segment.bytes": 14, "retention.ms": 1})
        for stamp in (NOW_MS - HOUR, NOW_MS + HOUR // 2, NOW_MS - HOUR):
            append(log, "t", 0, timed(stamp))

        checked(log)

        assert starts(log) == 1


def test_size_keeps_at_least_retention_bytes() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"segment.bytes": 14, "retention.ms": -1})
        for text in "abcd":
            append(log, "t", 0, batch(text))
        sizes = [file.size for file in log.partition("t", 0).state.files]

        log.alter_topic("t", [ConfigChange("retention.bytes", sum(sizes[1:]) + 1)])
        checked(log)
        assert starts(log) == 0
        log.alter_topic("t", [ConfigChange("retention.bytes", sum(sizes[2:]))])
        checked(log)
        assert starts(log) == 2


def test_the_active_segment_goes_too_and_a_new_one_begins_at_the_end() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"retention.ms": HOUR})
        append(log, "t", 0, batch("a", "b"))
        cluster.clock.advance(2 * HOUR / 1000)
        log.runtime.wall.confirm()

        checked(log)

        led = log.partition("t", 0)
        assert (led.log_start, led.high_watermark, led.state.files) == (2, 2, [])
        assert (led.state.rolls, led.state.active and led.state.active.base_offset) == ([2], 2)
        version = led.state.version
        checked(log)
        assert led.state.version == version  # an empty log stays as it is
        assert append(log, "t", 0, batch("c", ms=cluster.clock.wall_ms())).base_offset == 2
        log = cluster.reopen()
        assert rows(log, "t") == [(2, b"c")]


def test_the_active_segment_stays_when_a_record_came_meanwhile() -> None:
    """R-7: the plan was made before the append, and would have split a segment."""
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"retention.ms": HOUR})
        append(log, "t", 0, batch("old", ms=NOW_MS - 2 * HOUR))
        led = log.partition("t", 0)
        decided = decide_retention(led.shape(), led.config, NOW_MS)
        assert decided is not None
        assert decided.empties_log
        plan = decided.to_plan(led.state.version)
        append(log, "t", 0, batch("new"))

        with pytest.raises(PlanRefused, match="which now ends at 2"):
            led.apply_plan(plan)

        assert values(log, "t") == [b"old", b"new"]


def test_without_delete_in_the_policy_nothing_goes() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"cleanup.policy": "compact", "retention.ms": 1, "retention.bytes": 0})
        append(log, "t", 0, batch("a", ms=NOW_MS - HOUR, key=b"k"))
        checked(log)
        assert starts(log) == 0


def test_the_service_checks_by_itself_also_what_nobody_has_opened() -> None:
    with memory_cluster(retention_check_interval_ms=300_000) as cluster:
        log = cluster.open()
        hourly(log, 6)
        log = cluster.reopen()
        assert all(led.ref.topic != "t" for led in log.opened_partitions())

        cluster.tick(cluster.settings.log.retention_check_interval_ms / 1000)

        eventually(lambda: log.retention.counters.segments == 3)
        assert starts(log) == 3


def test_a_partition_that_is_not_due_is_looked_at_once_and_stays_closed() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        hourly(log, 2)
        log = cluster.reopen()
        folder = log.topic("t").folder

        checked(log)
        assert any(path.startswith(folder) for _, path in cluster.store.calls)
        cluster.store.calls.clear()
        checked(log)

        assert not any(path.startswith(folder) for _, path in cluster.store.calls)
        assert all(led.ref.topic != "t" for led in log.opened_partitions())


def test_nothing_goes_by_age_while_wall_time_is_not_trusted() -> None:
    """R-13: the clock jumped ahead by a year; size still counts, age does not."""
    with memory_cluster() as cluster:
        log = cluster.open()
        hourly(log, 3)
        cluster.clock.jump(365 * 86_400)

        checked(log)
        assert starts(log) == 0

        log.alter_topic("t", [ConfigChange("retention.bytes", 1)])
        checked(log)
        assert starts(log) == 2

        log.runtime.wall.confirm()
        checked(log)
        assert starts(log) == 3


def test_switched_off() -> None:
    with memory_cluster(retention_check_interval_ms=0) as cluster:
        log = cluster.open()
        hourly(log, 6)
        cluster.tick(3_000.0)
        assert starts(log) == 0
