"""What the console plots: counters at one moment, and what happened between two of them. Pure values and rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sluice.log_store.figures import BOUNDS_S
from sluice.streaming.coordinator.status import Status, group_status

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Of one topic: counters since the service started, then what is stored now."""

    records_in: int = 0
    bytes_in: int = 0
    records_out: int = 0
    bytes_out: int = 0
    versions: int = 0
    partitions: int = 0
    known: int = 0
    """Partitions whose log was loaded, of which alone sizes are known."""
    size_bytes: int = 0
    files: int = 0
    small_files: int = 0
    records: int = 0
    """Offsets between log start and high watermark."""


NOTHING = TopicCounts()
COUNTERS = ("records_in", "bytes_in", "records_out", "bytes_out", "versions")
GAUGES = tuple(field.name for field in fields(TopicCounts) if field.name not in COUNTERS)


@dataclass(frozen=True, slots=True)
class TopicLag:
    lag: int
    seconds: float
    status: Status


@dataclass(frozen=True, slots=True)
class GroupCounts:
    state: str
    members: int
    topics: Mapping[str, TopicLag]


@dataclass(frozen=True, slots=True)
class ServiceCounts:
    requests: int
    errors: int
    acks: tuple[int, ...]
    """Produce requests by the time that they took, in the buckets of a histogram."""
    wal_bytes: int
    wal_fill: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything at one moment. `at` counts seconds that nobody sets; `ms` is for people."""

    number: int
    at: float
    ms: int
    service: ServiceCounts
    topics: Mapping[str, TopicCounts]
    groups: Mapping[str, GroupCounts]
    groups_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What one watcher may see, and what else it asked for."""

    topic_visible: Callable[[str], bool]
    group_visible: Callable[[str], bool]
    topic: str | None = None
    group: str | None = None


LISTED = 200
"""Topics and groups that a sample lists: the busiest, and those that lag most."""


def told(earlier: Sample | None, later: Sample, sight: Sight, *, lists: bool) -> Json:
    """A sample as a watcher is told it; without the lists for a point of the past."""
    topics = {name: counts for name, counts in later.topics.items() if sight.topic_visible(name)}
    before = {} if earlier is None else earlier.topics
    seconds = 0.0 if earlier is None else later.at - earlier.at
    by_topic = {name: topic_told(before.get(name), counts, seconds) for name, counts in topics.items()}
    body: Json = {
        "ms": later.ms,
        "service": service_told(None if earlier is None else earlier.service, later.service, seconds),
        "total": total(by_topic.values()) | {"topics": len(topics)},
    }
    if sight.topic is not None:
        body["topic"] = by_topic.get(sight.topic)
    groups = {name: group_told(counts, sight) for name, counts in _groups(later, sight, lists=lists)}
    if sight.group is not None:
        body["group"] = groups.get(sight.group)
    if lists:
        busiest = sorted(by_topic.items(), key=lambda one: (-one[1]["bytes_in"] - one[1]["bytes_out"], one[0]))
        behind = sorted(groups.items(), key=lambda one: (-one[1]["lag"], one[0]))
        body["topics"] = [{"name": name, **figures} for name, figures in busiest[:LISTED]]
        body["groups"] = [{"name": name, **figures} for name, figures in behind[:LISTED]]
        body["groups_problem"] = later.groups_problem
    return body


def _groups(sample: Sample, sight: Sight, *, lists: bool) -> Iterable[tuple[str, GroupCounts]]:
    if lists:
        return ((name, counts) for name, counts in sample.groups.items() if sight.group_visible(name))
    found = None if sight.group is None else sample.groups.get(sight.group)
    if sight.group is None or found is None or not sight.group_visible(sight.group):
        return ()
    return ((sight.group, found),)


def topic_told(earlier: TopicCounts | None, later: TopicCounts, seconds: float) -> Json:
    """Counters by the second, the rest as it is."""
    return {name: _rate(earlier, later, name, seconds) for name in COUNTERS} | {
        name: getattr(later, name) for name in GAUGES
    }


def _rate(earlier: TopicCounts | None, later: TopicCounts, name: str, seconds: float) -> float:
    if seconds <= 0:
        return 0.0
    # A topic that is new since then began at 0; one that was made anew counts from 0 again.
    grown: int = getattr(later, name) - getattr(earlier or NOTHING, name)
    return round(max(0, grown) / seconds, 3)


def total(told_topics: Iterable[Json]) -> Json:
    sums: Json = dict.fromkeys((*COUNTERS, *GAUGES), 0)
    for figures in told_topics:
        for name in sums:
            sums[name] += figures[name]
    return {name: round(value, 3) for name, value in sums.items()}


def group_told(counts: GroupCounts, sight: Sight) -> Json:
    """Its lag in the topics that the watcher may see."""
    seen = [lag for name, lag in counts.topics.items() if sight.topic_visible(name)]
    return {
        "state": counts.state,
        "members": counts.members,
        "lag": sum(lag.lag for lag in seen),
        "lag_seconds": round(max((lag.seconds for lag in seen), default=0.0), 3),
        "status": group_status(lag.status for lag in seen),
    }


def service_told(earlier: ServiceCounts | None, later: ServiceCounts, seconds: float) -> Json:
    body: Json = {"requests": 0.0, "errors": 0.0, "acks": 0, "ack_p50_ms": None, "ack_p99_ms": None}
    if earlier is not None and seconds > 0:
        buckets = [now - then for now, then in zip(later.acks, earlier.acks, strict=True)]
        body = {
            "requests": round((later.requests - earlier.requests) / seconds, 3),
            "errors": round((later.errors - earlier.errors) / seconds, 3),
            "acks": sum(buckets),
            "ack_p50_ms": _milliseconds(quantile(buckets, 0.5)),
            "ack_p99_ms": _milliseconds(quantile(buckets, 0.99)),
        }
    return body | {"wal_bytes": later.wal_bytes, "wal_fill": round(later.wal_fill, 4)}


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Seconds, read off a histogram: within its bucket in proportion. Above the last bound: that bound."""
    count = sum(buckets)
    if count <= 0:
        return None
    wanted, seen, low = share * count, 0, 0.0
    for bound, found in zip(BOUNDS_S, buckets, strict=False):
        if found and seen + found >= wanted:
            return low + (bound - low) * (wanted - seen) / found
        seen, low = seen + found, bound
    return BOUNDS_S[-1]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
