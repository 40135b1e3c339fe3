"""Any read gives the same answer with a tail cache of any size, and the one that a list would give."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.log_store.engine import LogStore
from sluice.log_store.errors import OffsetOutOfRange
from sluice.log_store.records import make_batch
from tests import counts
from tests.support.logs import Cluster, append, memory_cluster

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), min_size=1, max_size=5), min_size=1, max_size=8
)
Rows = list[tuple[int, int, int]]  # offset, timestamp, size of the value
Answer = tuple[list[int], int, int, int] | str


def fill(cluster: Cluster, batches: list[list[tuple[int, int]]], start: int) -> LogStore:
    log = cluster.open()
    log.create_topic("t")
    for batch in batches:
        append(log, "t", 0, make_batch([{"value": b"v" * size, "timestamp": ms} for ms, size in batch], default_ms=0))
    log.delete_records("t", 0, start)
    return log


def ask(log: LogStore, offset: int, records: int, size: int) -> Answer:
    try:
        got = log.reads("t", 0).fetch(offset, max_records=records, max_bytes=size)
    except OffsetOutOfRange:
        return "out of range"
    offsets = [o for piece in got.rows.batches for o in piece.column("offset").to_pylist()]
    return offsets, got.rows.next_offset, got.high_watermark, got.log_start


def naive(rows: Rows, start: int, end: int, offset: int, records: int, size: int) -> Answer:
    if not start <= offset <= end:
        return "out of range"
    taken: list[int] = []
    used = 0
    for position, _, length in rows:
        if position < offset:
            continue
        if taken and (len(taken) >= records or used + length > size):
            break
        taken.append(position)
        used += length
    return taken, (taken[-1] + 1 if taken else offset), end, start


# Each example opens three clusters.
@settings(max_examples=min(200, counts.HYPOTHESIS_EXAMPLES))
@given(BATCHES, st.data())
def test_cached_or_not_the_answer_is_the_same(batches: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    """The cache is a shortcut, never another truth."""
    flat = [record for batch in batches for record in batch]
    end = len(flat)
    start = data.draw(st.integers(0, end))
    rows = [(offset, ms, size) for offset, (ms, size) in enumerate(flat) if offset >= start]
    questions = data.draw(
        st.lists(st.tuples(st.integers(-1, end + 1), st.integers(1, 12), st.integers(0, 200)), min_size=1, max_size=6)
    )
    times = data.draw(st.lists(st.integers(0, 310), max_size=4))
    budgets = (1 << 20, 0, data.draw(st.integers(1, 2_000)))
    for budget in budgets:
        with memory_cluster(tail_cache_bytes=budget) as cluster:
            log = fill(cluster, batches, start)
            assert log.runtime.tails.size_bytes <= budget
            for offset, records, size in questions:
                assert ask(log, offset, records, size) == naive(rows, start, end, offset, records, size)
            reads = log.reads("t", 0)
            for ms in times:
                expected = next(((offset, at) for offset, at, _ in rows if at >= ms), (-1, -1))
                assert (reads.at_time(ms).offset, reads.at_time(ms).timestamp_ms) == expected
            largest = max(rows, key=lambda row: (row[1], -row[0]), default=(-1, -1, 0))
            assert (reads.max_timestamp().offset, reads.max_timestamp().timestamp_ms) == largest[:2]
