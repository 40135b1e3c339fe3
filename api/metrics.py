"""What the HTTP service counts of itself. Written from the event loop only, so nothing is locked.

The number of series is bounded: routes are patterns, methods and errors are from lists, and topics that were deleted
are forgotten. What the log counts is in `metrics_log`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from sluice.api.prometheus import family, histograms, single
from sluice.log_store.figures import Histogram


class Metrics:
    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._latency: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self._errors: defaultdict[str, int] = defaultdict(int)
        self._throttles: defaultdict[str, int] = defaultdict(int)
        self._produced: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._fetched: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.bytes_in = 0
        self.bytes_out = 0

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern, never the path: the number of series must not grow with what clients ask."""
        self._requests[method, route, status] += 1
        self._latency[method, route].observe(seconds)

    def error(self, name: str) -> None:
        self._errors[name] += 1

    def throttled(self, kind: str) -> None:
        self._throttles[kind] += 1

    def produced(self, topic: str, records: int, size: int) -> None:
        counts = self._produced[topic]
        counts[0] += records
        counts[1] += size

    def fetched(self, topic: str, records: int, size: int) -> None:
        counts = self._fetched[topic]
        counts[0] += records
        counts[1] += size

    # --- for the console -------------------------------------------------------------------------

    def by_topic(self) -> dict[str, tuple[int, int, int, int]]:
        """(records produced, bytes produced, records fetched, bytes fetched) since the start."""
        none = [0, 0]
        names = self._produced.keys() | self._fetched.keys()
        return {name: (*_pair(self._produced.get(name, none)), *_pair(self._fetched.get(name, none))) for name in names}

    def totals(self) -> tuple[int, int]:
        """(requests, errors) since the start."""
        return sum(self._requests.values()), sum(self._errors.values())

    def buckets(self, method: str, routes: Collection[str]) -> tuple[int, ...]:
        """The histograms of some routes, added up."""
        found = [self._latency[method, route].buckets for route in routes if (method, route) in self._latency]
        return tuple(map(sum, zip(*found, strict=True))) if found else tuple(Histogram().buckets)

    # --- for Prometheus --------------------------------------------------------------------------

    def lines(self, topics: Collection[str]) -> Iterator[str]:
        """`topics`: those that there are now."""
        yield from family(
            "sluice_http_requests_total",
            "counter",
            "Requests by route and status.",
            (
                ({"method": method, "route": route, "status": status}, count)
                for (method, route, status), count in sorted(self._requests.items())
            ),
        )
        yield from histograms(
            "sluice_http_request_seconds",
            "Time to answer, by route.",
            (
                ({"method": method, "route": route}, histogram)
                for (method, route), histogram in sorted(self._latency.items())
            ),
        )
        yield from single("sluice_http_request_bytes_total", "counter", "Bytes of request bodies.", self.bytes_in)
        yield from single("sluice_http_response_bytes_total", "counter", "Bytes of answers.", self.bytes_out)
        yield from family(
            "sluice_errors_total",
            "counter",
            "Errors by Kafka's name.",
            (({"error": name}, count) for name, count in sorted(self._errors.items())),
        )
        yield from family(
            "sluice_throttles_total",
            "counter",
            "Requests that were told to wait, or refused, because of a quota.",
            (({"kind": kind}, count) for kind, count in sorted(self._throttles.items())),
        )
        yield from self._by_topic("produced", self._produced, topics)
        yield from self._by_topic("fetched", self._fetched, topics)

    def _by_topic(self, kind: str, counts: dict[str, list[int]], topics: Collection[str]) -> Iterator[str]:
        for gone in counts.keys() - topics:
            del counts[gone]
        for place, unit in enumerate(("records", "bytes")):
            yield from family(
                f"sluice_{kind}_{unit}_total",
                "counter",
                f"{unit.capitalize()} {kind}, by topic.",
                (({"topic": topic}, pair[place]) for topic, pair in sorted(counts.items())),
            )


def _pair(counts: list[int]) -> tuple[int, int]:
    return counts[0], counts[1]
