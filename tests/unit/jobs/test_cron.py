"""Cron expressions against a slow search, and every way to write a wrong one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.jobs.cron import parse_cron

START = datetime(2026, 1, 31, 23, 58, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2026-01-31T23:59"),
        ("*/5 * * * *", "2026-02-01T00:00"),
        ("0 3 * * *", "2026-02-01T03:00"),
        ("30 2 1 * *", "2026-02-01T02:30"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 * * mon", "2026-02-02T00:00"),
        ("0 0 * * 7", "2026-02-01T00:00"),
        ("0 0 13 * fri", "2026-02-06T00:00"),  # either day is enough
        ("0 0 31 * *", "2026-03-31T00:00"),
        ("15,45 8-10/2 * dec *", "2026-12-01T08:15"),
        ("5/20 * * * *", "2026-02-01T00:05"),
        ("@hourly", "2026-02-01T00:00"),
        ("@weekly", "2026-02-01T00:00"),
        ("@monthly", "2026-02-01T00:00"),
    ],
)
def test_the_next_time(text: str, expected: str) -> None:
    assert f"{parse_cron(text).next_after(START):%Y-%m-%dT%H:%M}" == expected


def test_a_time_is_not_its_own_successor() -> None:
    cron = parse_cron("0 * * * *")
    first = cron.next_after(START)
    assert cron.next_after(first) == first + timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("* * * *", "five fields, not 4"),
        ("60 * * * *", "minute '60': must be between 0 and 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day of month '0'"),
        ("* * * foo *", "month 'foo'"),
        ("* * * * 8", "day of week '8'"),
        ("*/0 * * * *", "the step must be a number above 0"),
        ("9-5 * * * *", "the range goes backward"),
        (", * * * *", "minute ''"),
        ("-1 * * * *", "minute '-1'"),
        ("0 0 31 6 *", "there is no such day"),
        ("٣ * * * *", "minute"),
        ("@yearly", "must be @hourly"),
    ],
)
def test_what_is_no_schedule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        parse_cron(text)


fields = st.tuples(
    st.sampled_from(["*", "0", "*/7", "1-10/3", "59", "5,50"]),
    st.sampled_from(["*", "0", "23", "*/6", "8-10"]),
    st.sampled_from(["*", "1", "15", "28-31", "*/10"]),
    st.sampled_from(["*", "2", "1-6", "dec"]),
    st.sampled_from(["*", "0", "1-5", "sat,sun", "7"]),
)


@given(fields, st.integers(0, 6 * 365 * 86_400))
def test_it_is_the_first_minute_that_fits(parts: tuple[str, ...], seconds: int) -> None:
    cron, moment = parse_cron(" ".join(parts)), START + timedelta(seconds=seconds)
    found = cron.next_after(moment)

    def fits(at: datetime) -> bool:
        by_month, by_week = at.day in cron.days, at.isoweekday() % 7 in cron.weekdays
        either = not parts[2].startswith("*") and not parts[4].startswith("*")
        day = (by_month or by_week) if either else (by_month and by_week)
        return day and at.month in cron.months and at.hour in cron.hours and at.minute in cron.minutes

    assert found > moment
    assert fits(found)
    # The last two days before it, minute by minute, and one minute of each hour before that.
    at = max(moment.replace(second=0, microsecond=0) + timedelta(minutes=1), found - timedelta(days=1))
    while at < found:
        assert not fits(at)
        at += timedelta(minutes=1)
