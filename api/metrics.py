"""Counters and histograms in Prometheus' text format. Written from the event loop only, so nothing is locked."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from sluice.log_store.engine import LogStore

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    __slots__ = ("buckets", "count", "sum")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.count += 1
        self.sum += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*BOUNDS_S, "+Inf"), self.buckets, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.6f}"
        yield f"{name}_count{{{labels}}} {self.count}"


class Metrics:
    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._latency: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self._errors: defaultdict[str, int] = defaultdict(int)
        self._produced: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._fetched: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern, never the path: the number of series must not grow with what clients ask."""
        self._requests[method, route, status] += 1
        self._latency[method, route].observe(seconds)

    def error(self, name: str) -> None:
        self._errors[name] += 1

    def produced(self, topic: str, records: int, size: int) -> None:
        counts = self._produced[topic]
        counts[0] += records
        counts[1] += size

    def fetched(self, topic: str, records: int, size: int) -> None:
        counts = self._fetched[topic]
        counts[0] += records
        counts[1] += size

    def render(self, log: LogStore, waiting: int) -> str:
        return "\n".join((*self._own(waiting), *_of_log(log), ""))

    def _own(self, waiting: int) -> Iterator[str]:
        yield from _head("sluice_http_requests_total", "counter", "Requests by route and status.")
        for (method, route, status), count in sorted(self._requests.items()):
            yield f'sluice_http_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
        yield from _head("sluice_http_request_seconds", "histogram", "Time to answer, by route.")
        for (method, route), histogram in sorted(self._latency.items()):
            yield from histogram.lines("sluice_http_request_seconds", f'method="{method}",route="{route}"')
        yield from _head("sluice_errors_total", "counter", "Errors by Kafka's name.")
        for name, count in sorted(self._errors.items()):
            yield f'sluice_errors_total{{error="{name}"}} {count}'
        for kind, counts in (("produced", self._produced), ("fetched", self._fetched)):
            for place, unit in enumerate(("records", "bytes")):
                yield from _head(f"sluice_{kind}_{unit}_total", "counter", f"{unit.capitalize()} {kind}, by topic.")
                for topic, pair in sorted(counts.items()):
                    yield f'sluice_{kind}_{unit}_total{{topic="{topic}"}} {pair[place]}'
        yield from _head("sluice_long_polls_waiting", "gauge", "Long polls that wait now.")
        yield f"sluice_long_polls_waiting {waiting}"


def _of_log(log: LogStore) -> Iterator[str]:
    led = [
        (f'topic="{meta.name}",partition="{number}"', partition)
        for meta in log.topics(internal=True)
        for number in range(meta.partitions)
        # Only what is open: a look at the metrics must not open ten thousand partitions.
        if (partition := log.partition(meta.name, number)).opened
    ]
    gauges = {
        "high_watermark": "Offset after the last committed record.",
        "log_end": "Offset that the next record gets.",
        "log_start": "First offset that can be read.",
    }
    for attribute, doc in gauges.items():
        yield from _head(f"sluice_partition_{attribute}", "gauge", doc)
        for labels, partition in led:
            yield f"sluice_partition_{attribute}{{{labels}}} {getattr(partition, attribute)}"
    yield from _head("sluice_partition_version", "gauge", "Delta version of the partition's table.")
    for labels, partition in led:
        yield f"sluice_partition_version{{{labels}}} {partition.state.version}"
    wal = log.runtime.wal
    yield from _head("sluice_wal_bytes", "gauge", "Bytes in the write-ahead log.")
    yield f"sluice_wal_bytes {0 if wal is None else wal.size_bytes}"
    counters = log.background.housekeeping.counters
    for name in ("merges", "merged_files", "merged_bytes", "removed_deleted", "orphans_deleted", "failures"):
        full = f"sluice_housekeeping_{name}_total"
        yield from _head(full, "counter", f"Background work: {name.replace('_', ' ')}.")
        yield f"{full} {getattr(counters, name)}"
    yield from _head("sluice_fenced", "gauge", "1 when another process leads.")
    yield f"sluice_fenced {int(log.fenced)}"


def _head(name: str, kind: str, doc: str) -> Iterator[str]:
    yield f"# HELP {name} {doc}"
    yield f"# TYPE {name} {kind}"
