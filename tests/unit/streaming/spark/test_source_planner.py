"""Streaming and batch queries on real storage, without Spark: positions, limits, data loss, topics that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.log_store.clock import ManualClock
from sluice.log_store.delta_log import commit_path
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import CorruptCommit, InvalidConfig, StorageError, UnknownTopicOrPartition
from sluice.log_store.plans import PlanKind
from sluice.log_store.store import open_store
from sluice.log_store.topic import ConfigChange
from sluice.streaming.spark.data_loss import DataLoss
from sluice.streaming.spark.partition_view import commits_after
from tests.support.faulty_store import FaultyStore
from tests.support.logs import (
    NOW_MS,
    Cluster,
    append,
    append_one_by_one,
    batch,
    folder_cluster,
    folder_of,
    make_batch,
    rewrite,
    timed,
)
from tests.support.source_queries import Query, read_batch, values

EARLIEST = {"subscribe": "t", "startingOffsets": "earliest"}


@pytest.fixture
def cluster(tmp_root: Path) -> Iterator[Cluster]:
    with folder_cluster(tmp_root) as cluster:
        yield cluster


@pytest.fixture
def log(cluster: Cluster) -> LogStore:
    log = cluster.open()
    log.create_topic("t", partitions=2)
    append(log, "t", 0, batch("a", "b", "c"))
    append(log, "t", 1, batch("x"))
    return log


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file()}


def merged(log: LogStore, **changes: object) -> None:
    """All files of t-0 become one, and the old ones are gone at once."""
    old = list(log.partition("t", 0).state.files)
    log.apply_plan("t", 0, rewrite(log, "t", PlanKind.MERGE, old, **changes))  # type: ignore[arg-type]
    for file in old:
        log.runtime.store.delete(f"{folder_of(log, 't')}/{file.path}")


# --- where a query begins ------------------------------------------------------------------------


def test_rows_have_every_column(log: LogStore, tmp_root: Path):
    log.create_topic("stamped", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    append(log, "stamped", 0, make_batch([{"key": b"k", "value": b"v", "headers": [("h", b"1")]}], default_ms=5))
    rows = read_batch(tmp_root, subscribe="stamped,t", includeHeaders="true")
    assert [row["value"] for row in rows] == [b"v", b"a", b"b", b"c", b"x"]
    first, second = rows[0], rows[1]
    assert (first["key"], first["topic"], first["partition"], first["offset"]) == (b"k", "stamped", 0, 0)
    assert first["headers"] == [{"key": "h", "value": b"1"}]
    assert (first["timestampType"], second["timestampType"]) == (1, 0)
    assert second["timestamp"].timestamp() * 1000 == NOW_MS
    assert second["headers"] is None
    assert read_batch(tmp_root, subscribe="t", columns="offset") == [{"offset": o} for o in (0, 1, 2, 0)]


def test_latest_begins_at_the_end_and_stays_there(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, subscribe="t")
    query.begin()
    append(log, "t", 0, batch("d"))
    assert query.planner.initial() == query.position, "Spark asks twice, and nothing may fall between"
    assert values(query.trigger()) == ["d"]
    assert query.trigger() is None
    append(log, "t", 1, batch("y"))
    assert values(query.trigger()) == ["y"]


def test_given_offsets(log: LogStore, tmp_root: Path):
    assert values(Query(tmp_root, subscribe="t", startingOffsets='{"t":{"0":2,"1":-2}}').trigger()) == ["c", "x"]
    assert Query(tmp_root, subscribe="t", startingOffsets='{"t":{"0":-1,"1":1}}').trigger() is None
    assert values(read_batch(tmp_root, subscribe="t", endingOffsets='{"t":{"0":1,"1":-1}}')) == ["a", "x"]
    with pytest.raises(InvalidConfig, match="t-1 is missing"):
        Query(tmp_root, subscribe="t", startingOffsets='{"t":{"0":2}}').begin()
    with pytest.raises(InvalidConfig, match="t-7 is not subscribed"):
        read_batch(tmp_root, subscribe="t", endingOffsets='{"t":{"0":1,"1":1,"7":1}}')
    with pytest.raises(DataLoss, match=r"offset 9 of t-0 is outside 0\.\.3"):
        Query(tmp_root, subscribe="t", startingOffsets='{"t":{"0":9,"1":0}}').begin()


def test_given_times(log: LogStore, tmp_root: Path):
    log.create_topic("timed", partitions=1)
    append(log, "timed", 0, timed(100, 200, 300))
    by_time = {"subscribe": "timed", "startingTimestamp": 150}
    assert values(Query(tmp_root, **by_time).trigger()) == ["200", "300"]
    assert values(read_batch(tmp_root, **by_time, endingTimestamp=300)) == ["200"]
    each = '{"timed":{"0":201}}'
    assert values(read_batch(tmp_root, subscribe="timed", startingOffsetsByTimestamp=each)) == ["300"]
    with pytest.raises(InvalidConfig, match="timed-0 has no record at or after 400"):
        Query(tmp_root, subscribe="timed", startingTimestamp=400).begin()
    patient = Query(tmp_root, subscribe="timed", startingTimestamp=400, startingOffsetsByTimestampStrategy="latest")
    assert patient.trigger() is None
    append(log, "timed", 0, timed(50))
    assert values(patient.trigger()) == ["50"]


def test_assigned_partitions(log: LogStore, tmp_root: Path):
    assert values(read_batch(tmp_root, assign='{"t":[1]}')) == ["x"]
    with pytest.raises(UnknownTopicOrPartition, match="none is 5"):
        read_batch(tmp_root, assign='{"t":[1,5]}')


def test_a_root_must_be_there(tmp_root: Path, log: LogStore):
    with pytest.raises(InvalidConfig, match="there is no folder"):
        read_batch(tmp_root / "nowhere", subscribe="t")
    assert not (tmp_root / "nowhere").exists()
    with pytest.raises(InvalidConfig, match="holds no Sluice cluster"):
        read_batch(tmp_root / "topics", subscribe="t")
    with pytest.raises(UnknownTopicOrPartition, match="'nope'"):
        Query(tmp_root, subscribe="t,nope").begin()


def test_reading_writes_nothing(cluster: Cluster, log: LogStore, tmp_root: Path):
    log.close()
    before = listing(tmp_root)
    query = Query(tmp_root, **EARLIEST)
    assert values(query.trigger()) == ["a", "b", "c", "x"]
    assert query.trigger() is None
    assert listing(tmp_root) == before


# --- how far a batch goes ------------------------------------------------------------------------


def test_limits(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, **EARLIEST, maxOffsetsPerTrigger=2)
    sizes = []
    while (rows := query.trigger()) is not None:
        sizes.append(len(rows))
    assert sizes == [2, 2]
    everything = Query(tmp_root, **EARLIEST, maxOffsetsPerTrigger=2)
    assert len(values(everything.trigger(limited=False))) == 4, "Trigger.Once asks for all"


def test_waiting_for_enough(log: LogStore, tmp_root: Path):
    clock = ManualClock()
    query = Query(tmp_root, clock=clock, **EARLIEST, minOffsetsPerTrigger=3, maxTriggerDelay="60s")
    assert len(values(query.trigger())) == 4
    append(log, "t", 0, batch("d"))
    assert query.trigger() is None
    clock.advance(59)
    assert query.trigger() is None
    clock.advance(2)
    assert values(query.trigger()) == ["d"]
    append(log, "t", 0, batch("e", "f", "g"))
    assert values(query.trigger()) == ["e", "f", "g"]


def test_available_now_ends_where_the_log_ended(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, **EARLIEST, maxOffsetsPerTrigger=3, minOffsetsPerTrigger=2)
    query.available_now()
    append(log, "t", 0, batch("late"))
    log.grow_topic("t", 3)
    append(log, "t", 2, batch("new"))
    found = []
    while (rows := query.trigger()) is not None:
        found += values(rows)
    assert sorted(found) == ["a", "b", "c", "x"]
    query.restart()
    query.available_now()
    assert sorted(values(query.trigger())) == ["late", "new"]
    assert query.trigger() is None


def test_tasks_are_cut_and_read_only_their_range(log: LogStore, tmp_root: Path):
    append(log, "t", 0, make_batch([{"value": b"%06d" % n} for n in range(1_000)], default_ms=NOW_MS))
    query = Query(tmp_root, **EARLIEST, minPartitions=5)
    end = query.next_end()
    assert end is not None
    pieces = query.tasks(end)
    assert len(pieces) == 5
    assert [len(piece.files) for piece in pieces] == [2, 1, 1, 1, 1]
    assert sorted(row["offset"] for row in query.run(end)) == sorted([*range(1_003), 0])
    limited = Query(tmp_root, **EARLIEST, maxRecordsPerPartition=250)
    end = limited.next_end()
    assert end is not None
    assert sorted(piece.wanted.count for piece in limited.tasks(end)) == [1, 200, 200, 201, 201, 201]


def test_the_backlog_shows_in_the_progress(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, **EARLIEST, maxOffsetsPerTrigger=1)
    assert query.planner.newest() is None
    query.trigger()
    assert query.planner.newest() == {"t": {"0": 3, "1": 1}}


# --- restarts --------------------------------------------------------------------------------------


def test_a_logged_batch_is_planned_from_its_end_alone(log: LogStore, tmp_root: Path):
    """G-9"""
    query = Query(tmp_root, **EARLIEST)
    end = query.next_end()
    assert end is not None
    append(log, "t", 0, batch("d"))
    query.restart()
    assert values(query.run(end)) == ["a", "b", "c", "x"], "exactly as logged"
    assert values(query.trigger()) == ["d"]


def test_a_logged_batch_survives_merge_and_compaction(log: LogStore, tmp_root: Path):
    append_one_by_one(log, "t", "def")
    query = Query(tmp_root, **EARLIEST)
    end = query.next_end()
    assert end is not None
    merged(log)
    query.restart()
    assert values(query.run(end)) == ["a", "b", "c", "d", "e", "f", "x"]
    state = log.partition("t", 0).state
    plan = rewrite(
        log, "t", PlanKind.COMPACT, list(state.files), keep=lambda offset: offset in (1, 4), first_dirty=state.end
    )
    log.apply_plan("t", 0, plan)
    query.restart()
    assert values(query.run(end)) == ["b", "e", "x"], "gaps are no data loss"
    assert query.trigger() is None


# --- data loss -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_below_the_log_start_are_lost(log: LogStore, tmp_root: Path, fail: str):
    query = Query(tmp_root, **EARLIEST, failOnDataLoss=fail)
    query.begin()
    end = query.next_end()
    assert end is not None
    log.delete_records("t", 0, 2)
    if fail == "true":
        with pytest.raises(DataLoss, match=r"offsets 0\.\.1 of t-0 are below the log start"):
            query.next_end()
        query.restart()
        with pytest.raises(DataLoss, match=r"offsets 0\.\.1 of t-0"):
            query.tasks(end)
    else:
        assert values(query.trigger()) == ["c", "x"]
        query.restart()
        assert values(query.run(end)) == ["c", "x"], "never below the planned range, never above it"


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_made_again_is_another_topic(log: LogStore, tmp_root: Path, fail: str):
    query = Query(tmp_root, **EARLIEST, failOnDataLoss=fail)
    logged = query.next_end()
    assert logged is not None
    query.trigger()
    log.delete_topic("t")
    if fail == "true":
        with pytest.raises(DataLoss, match="t-0, t-1 is gone"):
            query.next_end()
    else:
        assert query.trigger() is None
    log.create_topic("t", partitions=1)
    append(log, "t", 0, batch(*"1234567"))
    if fail == "true":
        with pytest.raises(DataLoss, match="deleted and made again"):
            query.next_end()
    else:
        assert values(query.trigger()) == list("1234567")
    query.restart()
    if fail == "true":
        with pytest.raises(DataLoss, match="was deleted"):
            query.tasks(logged)
    else:
        assert query.run(logged) == []


# --- what appears ----------------------------------------------------------------------------------


def test_new_partitions_begin_at_their_first_record(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, subscribe="t")
    assert query.trigger() is None
    log.grow_topic("t", 3)
    append(log, "t", 2, batch("new"))
    assert values(query.trigger()) == ["new"]
    assert query.trigger() is None


def test_topics_that_match_a_pattern_are_found(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, subscribePattern="t.*")
    assert query.trigger() is None
    log.create_topic("ttt", partitions=1)
    log.create_topic("other", partitions=1)
    append(log, "ttt", 0, batch("found"))
    append(log, "other", 0, batch("not found"))
    assert values(query.trigger()) == ["found"]


def test_nothing_matches_yet(cluster: Cluster, tmp_root: Path):
    log = cluster.open()
    query = Query(tmp_root, subscribePattern="t.*")
    assert query.trigger() is None
    log.create_topic("t", partitions=1)
    append(log, "t", 0, batch("a"))
    assert values(query.trigger()) == ["a"]


def test_the_type_of_timestamps_follows_the_topic(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, **EARLIEST)
    assert {row["timestampType"] for row in query.trigger() or []} == {0}
    log.alter_topic("t", [ConfigChange("message.timestamp.type", "LogAppendTime")])
    append(log, "t", 0, batch("d"))
    assert {row["timestampType"] for row in query.trigger() or []} == {1}


# --- storage -------------------------------------------------------------------------------------


def test_a_slow_reader_is_overtaken_by_the_clean_up_of_the_log(log: LogStore, tmp_root: Path):
    clock = ManualClock()
    query = Query(tmp_root, clock=clock, **EARLIEST)
    query.trigger()
    append_one_by_one(log, "t", map(str, range(9)))
    for version in range(log.partition("t", 0).checkpoint()):
        (tmp_root / commit_path(folder_of(log, "t"), version)).unlink()
    append(log, "t", 0, batch("last"))
    clock.advance(3_700)
    assert values(query.trigger()) == [*map(str, range(9)), "last"]


def test_a_damaged_commit_is_no_end_of_the_log(log: LogStore, tmp_root: Path):
    append_one_by_one(log, "t", "def")
    commits = sorted((tmp_root / folder_of(log, "t") / "_delta_log").glob("*.json"))
    commits[-1].write_bytes(b"")
    query = Query(tmp_root, **EARLIEST)
    assert values(query.trigger()) == ["a", "b", "c", "d", "e", "x"]
    with pytest.raises(CorruptCommit):
        query.trigger()
    with pytest.raises(CorruptCommit):
        read_batch(tmp_root, subscribe="t")


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_logged_batch_waits_for_the_repair_of_its_commit(log: LogStore, tmp_root: Path, fail: str):
    """Its records are there. Without them it would be finished, and nobody would come back for them."""
    append_one_by_one(log, "t", "def")
    query = Query(tmp_root, **EARLIEST, failOnDataLoss=fail)
    end = query.next_end()
    assert end is not None
    newest = sorted((tmp_root / folder_of(log, "t") / "_delta_log").glob("*.json"))[-1]
    whole = newest.read_bytes()
    newest.write_bytes(b"")
    query.restart()
    with pytest.raises(CorruptCommit):
        query.tasks(end)
    newest.write_bytes(whole)
    assert values(query.run(end)) == ["a", "b", "c", "d", "e", "f", "x"]


def test_failing_storage_is_tried_again(log: LogStore, tmp_root: Path):
    query = Query(tmp_root, **EARLIEST)
    query.begin()
    store = query.planner.lake._store = FaultyStore(query.planner.lake.store)
    query.planner.lake._metadata = None
    query.planner.lake._followed.clear()
    store.fail_before("get", times=3)
    assert values(query.trigger()) == ["a", "b", "c", "x"]
    store.fail_before("get", times=None)
    with pytest.raises(StorageError):
        query.trigger()


@pytest.mark.parametrize("commits", [0, 1, 2, 8, 9, 10, 45])
def test_later_commits_come_side_by_side(commits: int):
    """Where each is a round trip: all of them, in few steps, and one request when there are none."""
    store = FaultyStore(open_store("memory://"))
    for version in range(7, 7 + commits):
        store.put_if_absent(commit_path("f", version), b"%d" % version)
    store.counts.clear()
    assert commits_after(store, "f", 6) == {version: b"%d" % version for version in range(7, 7 + commits)}
    assert store.counts["get"] == 1 if commits == 0 else store.counts["get"] <= 4 * commits + 8
