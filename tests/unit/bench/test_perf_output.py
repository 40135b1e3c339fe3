"""What Kafka's tools print is read as it is; output of another shape is an error, not a zero."""

from __future__ import annotations

import pytest

from bench.peers.perf_output import Consumed, Produced, UnreadableOutput, consumed, produced

PRODUCER = """Reading payloads from: payload
Number of records read: 20000
Warmup first 100000 records. Steady state results will print after the complete test summary.
269946 records sent, 53956.8 records/sec (5.15 MB/sec), 2167.7 ms avg latency, 2908.0 ms max latency.
600000 records sent, 35056.967572 records/sec (3.34 MB/sec), 1982.17 ms avg latency, 2908.00 ms max latency, 2026 ms 50th, 2571 ms 95th, 2666 ms 99th, 2874 ms 99.9th.
"""  # noqa: E501
STEADY = (
    "500000 steady state records sent, 45674.614050 records/sec (4.36 MB/sec), 2067.76 ms avg latency, 2908.00 ms max"
    " latency, 2091 ms 50th, 2589 ms 95th, 2671 ms 99th, 2878 ms 99.9th.\n"
)
CONSUMER = """start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-16 16:51:44:770, 2026-01-16 16:51:53:240, 38.1802, 4.5077, 400348, 47266.5880, 5124, 3346, 11.4107, 119649.7310
"""  # noqa: E501


def test_the_summary_counts_and_not_the_lines_on_the_way():
    assert produced(PRODUCER) == Produced(600_000, 35056.967572, 2026, 2666, 2874)


def test_after_a_warm_up_the_steady_state_counts():
    assert produced(PRODUCER + STEADY) == Produced(500_000, 45674.61405, 2091, 2671, 2878)


def test_the_rate_of_a_consumer_leaves_joining_out():
    assert consumed(CONSUMER) == Consumed(400_348, 119649.731)


def test_a_hidden_header_changes_nothing():
    assert consumed(CONSUMER.split("\n", 1)[1]) == consumed(CONSUMER)


@pytest.mark.parametrize(
    "text", ["", "WARNING: Exiting before consuming the expected number of messages", PRODUCER[:200]]
)
def test_other_output_is_an_error_that_shows_it(text: str):
    for read in (produced, consumed):
        with pytest.raises(UnreadableOutput, match="no "):
            read(text)
