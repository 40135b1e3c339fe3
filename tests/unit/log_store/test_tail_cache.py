"""The newest rows in memory: contiguous, bounded, oldest out first."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.records import stored_table
from sluice.log_store.tail_cache import ENTRY_BYTES, MOST_TAILS, TailCache
from tests.support.logs import batch


def rows(base: int, count: int, size: int = 10) -> pa.Table:
    return stored_table([batch(*["v" * size] * count)], base)


SIZE = rows(0, 1).nbytes + ENTRY_BYTES


def test_from_the_run_that_holds_the_offset() -> None:
    cache = TailCache(10 * SIZE)
    for base in (0, 1, 2):
        cache.add("p", base, base + 1, rows(base, 1))

    assert [tail.base_offset for tail in cache.get("p", 1)] == [1, 2]
    assert cache.get("p", 3) == []
    assert cache.get("q", 0) == []


def test_below_what_is_cached_there_is_nothing() -> None:
    """A read must not begin in the middle."""
    cache = TailCache(10 * SIZE)
    cache.add("p", 5, 6, rows(5, 1))
    assert cache.get("p", 4) == []


def test_oldest_out_whichever_partition() -> None:
    cache = TailCache(3 * SIZE)
    for partition in "abcd":
        cache.add(partition, 0, 1, rows(0, 1))
    assert cache.get("a", 0) == []
    assert all(cache.get(partition, 0) for partition in "bcd")
    assert cache.size_bytes == 3 * SIZE


def test_too_large_for_the_cache_leaves_no_hole() -> None:
    cache = TailCache(3 * SIZE)
    cache.add("p", 0, 1, rows(0, 1))
    cache.add("p", 1, 101, rows(1, 100, 100))
    cache.add("p", 101, 102, rows(101, 1))
    assert [tail.base_offset for tail in cache.get("p", 101)] == [101]
    assert cache.get("p", 0) == []


def test_small_tables_cost_more_than_their_data() -> None:
    """Section 7, memory: a million versions of one record each must not take gigabytes."""
    cache = TailCache(100 * SIZE)
    for base in range(1_000):
        cache.add("p", base, base + 1, rows(base, 1))
    assert len(cache._tails["p"]) == 100
    assert 10 * rows(0, 1).nbytes < ENTRY_BYTES


def test_a_read_takes_no_more_than_it_can_use() -> None:
    cache = TailCache(2 * MOST_TAILS * SIZE)
    for base in range(2 * MOST_TAILS):
        cache.add("p", base, base + 1, rows(base, 1))
    assert [tail.base_offset for tail in cache.get("p", 7)] == list(range(7, 7 + MOST_TAILS))


def test_no_budget_is_no_cache() -> None:
    cache = TailCache(0)
    cache.add("p", 0, 1, rows(0, 1))
    assert (cache.get("p", 0), cache.size_bytes) == ([], 0)


def test_drop() -> None:
    cache = TailCache(10 * SIZE)
    cache.add("p", 0, 1, rows(0, 1))
    cache.add("q", 0, 1, rows(0, 1))
    cache.drop("p")
    assert cache.get("p", 0) == []
    assert cache.size_bytes == SIZE
    cache.drop("p")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.booleans()), max_size=60))
def test_never_above_its_budget_and_never_with_a_hole(steps: list[tuple[str, int, bool]]) -> None:
    """Bounded memory, and per partition one contiguous run up to the newest row, or nothing."""
    budget = 2_000 + 10 * ENTRY_BYTES
    cache = TailCache(budget)
    ends = dict.fromkeys("abc", 0)
    for partition, count, drop in steps:
        if drop:
            cache.drop(partition)
        elif count:
            base = ends[partition]
            ends[partition] = base + count
            cache.add(partition, base, base + count, rows(base, count))
        held = [tail for name in "abc" for tail in cache._tails.get(name, ())]
        assert cache.size_bytes == sum(tail.size for tail in held) <= budget
        for name, end in ends.items():
            tails = list(cache._tails.get(name, ()))
            if tails:
                assert tails[-1].end_offset == end
                assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(tails))
                assert cache.get(name, tails[0].base_offset) == tails
