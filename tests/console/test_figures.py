"""What happened between two samples, as a watcher with some grants is told it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api.console.figures import (
    GroupCounts,
    Sample,
    ServiceCounts,
    Sight,
    TopicCounts,
    TopicLag,
    quantile,
    told,
    topic_told,
)
from sluice.log_store.figures import BOUNDS_S, Histogram
from sluice.streaming.coordinator.status import Status

EMPTY = tuple(Histogram().buckets)


def sample(at: float, **topics: TopicCounts) -> Sample:
    service = ServiceCounts(requests=int(at * 10), errors=int(at), acks=EMPTY, wal_bytes=1, wal_fill=0.5)
    lags = {"orders": TopicLag(7, 3.0, Status.OK), "secret": TopicLag(100, 90.0, Status.ERR)}
    groups = {"billing": GroupCounts("EMPTY", 0, lags), "hidden": GroupCounts("STABLE", 2, lags)}
    return Sample(int(at), at, int(at * 1000), service, topics, groups)


def sight(*topics: str, groups: tuple[str, ...] = ("billing",), **asked: Any) -> Sight:
    return Sight(lambda name: name in topics, lambda name: name in groups, **asked)


def test_a_watcher_is_told_only_of_what_it_may_see() -> None:
    counts = TopicCounts(records_in=10, size_bytes=100, partitions=1, known=1)
    before = sample(1.0, orders=replace(counts, records_in=4), secret=counts)
    after = sample(3.0, orders=counts, secret=replace(counts, records_in=900))
    body = told(before, after, sight("orders", topic="secret", group="hidden"), lists=True)
    assert [one["name"] for one in body["topics"]] == ["orders"]
    assert body["total"]["records_in"] == 3.0
    assert body["total"]["size_bytes"] == 100
    assert body["total"]["topics"] == 1
    assert body["topic"] is None
    assert body["group"] is None
    assert [one["name"] for one in body["groups"]] == ["billing"]
    # Its lag in a topic that may not be seen is not told either.
    assert (body["groups"][0]["lag"], body["groups"][0]["lag_seconds"], body["groups"][0]["status"]) == (7, 3.0, "OK")
    assert "secret" not in str(body)
    assert body["service"]["requests"] == 10.0


def test_a_point_of_the_past_has_no_lists_but_what_was_asked_for() -> None:
    seen = sight("orders", topic="orders", group="billing")
    body = told(sample(1.0), sample(2.0, orders=TopicCounts()), seen, lists=False)
    assert "topics" not in body
    assert "groups" not in body
    assert body["group"]["lag"] == 7
    assert body["topic"]["records_in"] == 0.0


counters = st.integers(0, 10**12)


@given(before=st.none() | counters, after=counters, seconds=st.floats(0, 100))
def test_rates_are_never_negative(before: int | None, after: int, seconds: float) -> None:
    """A topic that was deleted and made anew counts from 0 again."""
    earlier = None if before is None else TopicCounts(records_in=before)
    found = topic_told(earlier, TopicCounts(records_in=after), seconds)["records_in"]
    assert found >= 0
    if seconds and after >= (before or 0):
        assert found == pytest.approx((after - (before or 0)) / seconds, rel=1e-3, abs=1e-3)


@given(times=st.lists(st.floats(0, 20), min_size=1, max_size=200), share=st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(times: list[float], share: float) -> None:
    histogram = Histogram()
    for one in times:
        histogram.observe(one)
    found = quantile(histogram.buckets, share)
    rank = max(0, -(-int(share * 1000) * len(times) // 1000) - 1)
    true = sorted(times)[rank]
    assert found is not None
    low = max((bound for bound in (0.0, *BOUNDS_S) if bound < true), default=0.0)
    high = min((bound for bound in BOUNDS_S if bound >= true), default=BOUNDS_S[-1])
    assert low <= found <= high + 1e-9


def test_there_is_no_quantile_of_nothing() -> None:
    assert quantile(EMPTY, 0.99) is None
