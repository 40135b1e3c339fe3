"""Fetch and offsets by time as clients see them, and readers whose files go away (I-9)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.log_store.claims import CLAIM_CHECK_S
from sluice.log_store.delta_log import commit_path
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import CorruptCommit, CorruptData, OffsetOutOfRange
from sluice.log_store.partition_reads import FoundOffset
from sluice.log_store.plans import PlanKind
from sluice.log_store.records import make_batch
from tests.support.logs import (
    ALL,
    Cluster,
    append,
    append_one_by_one,
    batch,
    eventually,
    fetched,
    folder_cluster,
    memory_cluster,
    rewrite,
    rows,
    settled,
    timed,
)
from tests.unit.log_store.test_records import TRICKY

FOLDER = "topics/t/0"


@pytest.fixture(params=["cached", "from files"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with memory_cluster(tail_cache_bytes=1 << 20 if request.param == "cached" else 0) as made:
        yield made


def opened(cluster: Cluster, texts: str = "") -> LogStore:
    log = cluster.open()
    log.create_topic("t")
    append_one_by_one(log, "t", texts)
    return log


def test_every_record_comes_back_exactly(cluster: Cluster) -> None:
    """Null and empty keys and values, header lists with repeated keys, null header values."""
    log = opened(cluster)
    sent = make_batch(TRICKY, default_ms=77)
    append(log, "t", 0, sent)
    (got,) = log.reads("t", 0).fetch(0).rows.batches
    for name in ("timestamp", "key", "value", "headers"):
        assert got.column(name).to_pylist() == sent.column(name).to_pylist()
    log = cluster.reopen()
    (got,) = log.reads("t", 0).fetch(0).rows.batches
    assert got.column("headers").to_pylist() == sent.column("headers").to_pylist()


def test_limits_are_soft_for_the_first_record(cluster: Cluster) -> None:
    """Kafka's rule: a consumer always progresses."""
    log = opened(cluster)
    append(log, "t", 0, batch("x" * 100, "y" * 100, "z"))
    assert fetched(log, "t", 0, max_bytes=1) == [(0, b"x" * 100)]
    assert fetched(log, "t", 0, max_bytes=0, max_records=0) == [(0, b"x" * 100)]
    assert [offset for offset, _ in fetched(log, "t", 0, max_bytes=200)] == [0, 1]
    assert [offset for offset, _ in fetched(log, "t", 0, max_bytes=199)] == [0]
    assert [offset for offset, _ in fetched(log, "t", 0, max_bytes=201)] == [0, 1, 2]
    assert [offset for offset, _ in fetched(log, "t", 0, max_records=2)] == [0, 1]


def test_empty_records_fit_whether_they_share_a_file_or_not(cluster: Cluster) -> None:
    log = opened(cluster)
    append(log, "t", 0, batch("", ""))
    append(log, "t", 0, batch("", "x"))
    assert [offset for offset, _ in fetched(log, "t", 0, max_bytes=0)] == [0, 1, 2]
    assert [offset for offset, _ in fetched(log, "t", 3, max_bytes=0)] == [3]


def test_a_fetch_goes_over_files_and_says_where_to_go_on(cluster: Cluster) -> None:
    log = opened(cluster, "abcdef")
    answer = log.reads("t", 0).fetch(1, max_records=3)
    assert answer.rows.count == 3
    assert (answer.rows.next_offset, answer.high_watermark, answer.log_start) == (4, 6, 0)
    assert log.reads("t", 0).fetch(4).rows.next_offset == 6


def test_at_the_end_there_is_nothing(cluster: Cluster) -> None:
    """Kafka's rule: offset == LEO is empty, not an error."""
    log = opened(cluster, "ab")
    answer = log.reads("t", 0).fetch(2)
    assert (answer.rows.batches, answer.rows.next_offset, answer.high_watermark) == ([], 2, 2)


def test_between_hw_and_leo_there_is_nothing_yet(cluster: Cluster) -> None:
    """Kafka's rule."""
    log = opened(cluster, "a")
    with cluster.store.gate("put", f"{FOLDER}/*") as gate:
        waiting = log.append("t", 0, batch("b", "c"), acks=ALL)
        gate.wait()
        for offset in (1, 2, 3):
            assert log.reads("t", 0).fetch(offset).rows.batches == []
        with pytest.raises(OffsetOutOfRange):
            log.reads("t", 0).fetch(4)
        assert log.reads("t", 0).latest() == FoundOffset(1)
    settled([waiting])


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_out_of_range(cluster: Cluster, offset: int) -> None:
    """Kafka's rule: below the start or above LEO; the error says where the log is."""
    log = opened(cluster, "ab")
    with pytest.raises(OffsetOutOfRange) as caught:
        log.reads("t", 0).fetch(offset)
    assert caught.value.fields == {"log_start": 0, "log_end": 2}
    with pytest.raises(OffsetOutOfRange):
        list(log.reads("t", 0).scan(offset))


def test_only_below_the_log_start_is_an_error(cluster: Cluster) -> None:
    """I-9: deleted records are out of range; the log start itself is not."""
    log = opened(cluster, "abcd")
    log.delete_records("t", 0, 2)
    with pytest.raises(OffsetOutOfRange):
        log.reads("t", 0).fetch(1)
    assert fetched(log, "t", 2) == [(2, b"c"), (3, b"d")]
    assert log.reads("t", 0).earliest() == FoundOffset(2)


def test_a_compaction_gap_gives_the_next_offset(cluster: Cluster) -> None:
    """Kafka's rule: inside, at the beginning and at the end of the gap."""
    log = opened(cluster, "abcdef")
    files = log.partition("t", 0).state.files
    log.apply_plan("t", 0, rewrite(log, "t", PlanKind.COMPACT, files[1:5], keep=lambda o: o in (1, 4), first_dirty=5))
    for offset, following in ((1, 1), (2, 4), (3, 4), (4, 4), (5, 5)):
        assert fetched(log, "t", offset, max_records=1)[0][0] == following
    log.apply_plan(
        "t",
        0,
        rewrite(
            log, "t", PlanKind.COMPACT, log.partition("t", 0).state.files[-1:], keep=lambda _: False, first_dirty=6
        ),
    )
    answer = log.reads("t", 0).fetch(5)
    assert (answer.rows.count, answer.rows.next_offset) == (0, 6)
    assert rows(log, "t") == [(0, b"a"), (1, b"b"), (4, b"e")]


def test_an_empty_partition(cluster: Cluster) -> None:
    """R-8: a table that does not exist yet."""
    reads = opened(cluster).reads("t", 0)
    assert (reads.earliest(), reads.latest()) == (FoundOffset(0), FoundOffset(0))
    assert (reads.at_time(0), reads.max_timestamp()) == (FoundOffset(-1), FoundOffset(-1))
    assert reads.fetch(0).rows.batches == []
    assert list(reads.scan()) == []


def test_by_time_when_times_do_not_rise(cluster: Cluster) -> None:
    """Kafka's rule: the lowest offset whose record is at t or later."""
    log = opened(cluster)
    append(log, "t", 0, timed(50, 10))
    append(log, "t", 0, timed(20, 90, 30))
    append(log, "t", 0, timed(40))
    reads = log.reads("t", 0)
    expected = {0: (0, 50), 50: (0, 50), 51: (3, 90), 90: (3, 90), 91: (-1, -1)}
    assert {t: (reads.at_time(t).offset, reads.at_time(t).timestamp_ms) for t in expected} == expected
    log.delete_records("t", 0, 1)
    assert [reads.at_time(t).offset for t in (0, 11, 31)] == [1, 2, 3]
    log.delete_records("t", 0, 4)
    assert [reads.at_time(t).offset for t in (0, 31, 41)] == [4, 5, -1]


def test_the_largest_timestamp_lowest_on_ties(cluster: Cluster) -> None:
    """Kafka's rule."""
    log = opened(cluster)
    append(log, "t", 0, timed(60))
    append(log, "t", 0, timed(50))
    append(log, "t", 0, timed(61))
    assert log.reads("t", 0).max_timestamp() == FoundOffset(2, 61)
    log.delete_topic("t")
    log.create_topic("t")
    append(log, "t", 0, timed(10, 70))
    append(log, "t", 0, timed(70, 70, 5))
    append(log, "t", 0, timed(69))
    reads = log.reads("t", 0)
    assert reads.max_timestamp() == FoundOffset(1, 70)
    log.delete_records("t", 0, 2)
    assert reads.max_timestamp() == FoundOffset(2, 70)
    log.delete_records("t", 0, 4)
    assert reads.max_timestamp() == FoundOffset(5, 69)
    log.delete_records("t", 0, -1)
    assert (reads.max_timestamp(), reads.at_time(0)) == (FoundOffset(-1), FoundOffset(-1))


# --- files that go away (I-9) ------------------------------------------------------------------


def merged_away(cluster: Cluster) -> tuple[LogStore, str]:
    """A log whose first two files were merged under a reader's hands."""
    log = opened(cluster, "abc")
    return log, log.partition("t", 0).state.files[0].path


@pytest.fixture
def files_only() -> Iterator[Cluster]:
    with memory_cluster(tail_cache_bytes=0) as made:
        yield made


@pytest.mark.parametrize("how", ["fetch", "scan", "at_time", "max_timestamp"])
def test_a_reader_that_loses_a_file_plans_again(files_only: Cluster, how: str) -> None:
    """I-9: the file goes between plan and read; the same offsets are found in its successor."""
    log, victim = merged_away(files_only)
    reads = log.reads("t", 0)
    plan = rewrite(log, "t", PlanKind.MERGE, log.partition("t", 0).state.files[:2])

    def merge_now(path: str) -> None:
        log.apply_plan("t", 0, plan)
        files_only.store.inner.delete(path)

    for operation in ("open_input", "get"):
        files_only.store.on(operation, merge_now, f"{FOLDER}/{victim}")
    if how == "fetch":
        assert fetched(log, "t", 0) == [(0, b"a"), (1, b"b"), (2, b"c")]
    elif how == "scan":
        assert rows(log, "t") == [(0, b"a"), (1, b"b"), (2, b"c")]
    else:
        found = reads.at_time(1) if how == "at_time" else reads.max_timestamp()
        assert found.offset == 0
    assert log.partition("t", 0).state.plans


def test_a_scan_goes_on_where_it_was(files_only: Cluster) -> None:
    """I-9: what was read is not read again."""
    log, _ = merged_away(files_only)
    scan = log.reads("t", 0).scan(readahead=0)
    seen = [next(scan).column("offset").to_pylist()]
    gone = log.partition("t", 0).state.files[1:3]
    log.apply_plan("t", 0, rewrite(log, "t", PlanKind.MERGE, gone))
    for file in gone:
        files_only.store.inner.delete(f"{FOLDER}/{file.path}")
    seen += [piece.column("offset").to_pylist() for piece in scan]
    assert functools.reduce(operator.iadd, seen, []) == [0, 1, 2]


def test_a_scan_over_deleted_records_is_out_of_range(files_only: Cluster) -> None:
    """I-9: the one error a reader may get: below the log start."""
    log, _ = merged_away(files_only)
    scan = log.reads("t", 0).scan(readahead=0)
    next(scan)
    gone = log.partition("t", 0).state.files[:2]
    log.delete_records("t", 0, 2)
    for file in gone:
        files_only.store.inner.delete(f"{FOLDER}/{file.path}")
    with pytest.raises(OffsetOutOfRange):
        list(scan)


@pytest.mark.parametrize("how", ["fetch", "scan"])
def test_a_missing_file_that_is_live_is_damage(files_only: Cluster, how: str) -> None:
    """I-9, I-10: reported with its offsets, not retried for ever."""
    log, victim = merged_away(files_only)
    files_only.store.inner.delete(f"{FOLDER}/{victim}")
    with pytest.raises(CorruptData, match=r"offsets 0..0 cannot be read") as caught:
        fetched(log, "t", 0) if how == "fetch" else rows(log, "t")
    assert (caught.value.fields["start"], caught.value.fields["end"]) == (0, 1)
    assert fetched(log, "t", 1) == [(1, b"b"), (2, b"c")]


def test_a_flipped_bit_is_reported_with_its_offsets(tmp_root: Path) -> None:
    """I-10: page checksums are verified on every read."""
    with folder_cluster(tmp_root, tail_cache_bytes=0) as cluster:
        log = cluster.open()
        log.create_topic("t", configs={"compression.type": "uncompressed"})
        append(log, "t", 0, batch("ok"))
        append(log, "t", 0, batch("needle-in-a-haystack"))
        path = tmp_root / FOLDER / log.partition("t", 0).state.files[1].path
        data = bytearray(path.read_bytes())
        data[data.index(b"needle")] ^= 4
        path.write_bytes(data)
        with pytest.raises(CorruptData, match=r"offsets 1..1"):
            fetched(log, "t", 1)
        assert fetched(log, "t", 0, max_records=1) == [(0, b"ok")]


def test_the_end_of_a_damaged_log_is_not_the_end(files_only: Cluster) -> None:
    """I-10: "no more rows" would be a lie."""
    log = opened(files_only, "abc")
    path = commit_path(FOLDER, 2)
    files_only.store.replace(path, files_only.store.get(path)[:-10])
    log = files_only.crash()
    assert fetched(log, "t", 0) == [(0, b"a")]
    with pytest.raises(CorruptCommit, match="version 2"):
        fetched(log, "t", 1)
    with pytest.raises(CorruptCommit):
        append(log, "t", 0, batch("x"))


def test_a_fenced_service_goes_on_reading(files_only: Cluster) -> None:
    """R-1: it follows the new leader, also past a reload."""
    old = opened(files_only, "a")
    new = files_only.open(force=True)
    append(new, "t", 0, batch("b"))
    old.runtime.leadership.fence("a test")
    assert fetched(old, "t", 0) == [(0, b"a"), (1, b"b")]
    append(new, "t", 0, batch("c"))
    eventually(lambda: old.reads("t", 0).latest().offset == 3)
    assert fetched(old, "t", 2) == [(2, b"c")]


def test_what_a_predecessor_answered_for_after_the_take_over_is_read(files_only: Cluster) -> None:
    """R-1: on an object store it trusts a look at the claims for a second. Whoever read the log before that was over
    reads it once more: else a consumer that comes from the old leader would be told that its offset does not exist."""
    old = opened(files_only, "a")
    new = files_only.open(force=True)
    assert fetched(new, "t", 0) == [(0, b"a")]
    append(old, "t", 0, batch("b"))
    assert new.reads("t", 0).latest().offset == 2
    assert fetched(new, "t", 2) == []
    files_only.clock.advance(CLAIM_CHECK_S)
    assert fetched(new, "t", 0) == [(0, b"a"), (1, b"b")]
    calls = len(files_only.store.calls)
    assert new.reads("t", 0).latest().offset == 2
    assert len(files_only.store.calls) == calls, "the time is over: its own state is the newest there is"
    append(new, "t", 0, batch("c"))
    assert fetched(new, "t", 1) == [(1, b"b"), (2, b"c")]


def test_scan_in_parallel_keeps_the_order(cluster: Cluster) -> None:
    log = opened(cluster, "abcdefghij")
    got = [v for piece in log.reads("t", 0).scan(2, 9, readahead=4) for v in piece.column("value").to_pylist()]
    assert b"".join(got) == b"cdefghi"
    only = next(log.reads("t", 0).scan(columns=["value"]))
    assert only.schema.names == ["offset", "value"]
