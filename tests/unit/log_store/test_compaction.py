"""Key compaction: what is cleaned, when, and what the service does of it by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.compaction import Cleanable, FileGroup, LogView, bounded, cleanable, dirtiest_first, file_reasons
from sluice.log_store.compaction_files import Cleaned, Cleaning
from sluice.log_store.compaction_run import TRIES, LocalPasses, compact
from sluice.log_store.compaction_service import BACKOFF_S, LedPartition
from sluice.log_store.compaction_tombstones import Span, spans_of, tag_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import PlanRefused, StorageError
from sluice.log_store.merger import merge_once
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.records import make_batch
from sluice.log_store.segments import segment_bounds
from sluice.log_store.topic import CLUSTER_METADATA, TopicConfig
from tests.support.logs import (
    NOW_MS,
    WAIT_S,
    Cluster,
    append,
    batch,
    eventually,
    folder_cluster,
    folder_of,
    memory_cluster,
    plan,
    rows,
    stamp,
)

DAY_S = 86_400
COMPACTED = {"cleanup.policy": "compact", "segment.ms": 1_000, "min.cleanable.dirty.ratio": 0}


# --- the choice ------------------------------------------------------------------------------------


def log_of(*segments: tuple[int, int, int], first_dirty: int = 0, log_start: int = 0) -> LogView:
    """Closed segments of ten records each as (bytes, oldest, newest), and an active one with a file of its own."""
    files = [
        DataFile(f"{n * 10:020d}-1-a.parquet", size, n * 10, n * 10 + 10, 10, oldest, newest, 0)
        for n, (size, oldest, newest) in enumerate([*segments, (100, NOW_MS, NOW_MS)])
    ]
    rolls = [n * 10 for n in range(1, len(files))]
    bounds = segment_bounds(rolls, log_start, len(files) * 10)
    return LogView(version=5, files=files, segments=bounds, first_dirty=first_dirty, last_cleaning=-1)


def chosen(view: LogView, **configs: object) -> Cleanable:
    config = TopicConfig.parse({"cleanup.policy": "compact"} | {k.replace("_", "."): v for k, v in configs.items()})
    return cleanable(view, config, NOW_MS)


OLD = (100, NOW_MS - 10_000, NOW_MS - 9_000)


def test_the_range_goes_from_the_first_dirty_offset_to_the_active_segment() -> None:
    found = chosen(log_of(OLD, OLD, OLD, first_dirty=10))
    assert (found.first_dirty, found.end, found.clean_bytes, found.dirty_bytes) == (10, 30, 100, 200)
    assert found.due
    assert chosen(log_of(OLD, first_dirty=0, log_start=4)).first_dirty == 4
    assert not chosen(log_of()).due  # only an active segment


@pytest.mark.parametrize(("sizes", "dirty", "due"), [((50, 50), 10, False), ((49, 51), 10, True), ((100,), 0, True)])
def test_the_dirty_ratio_is_strict_and_counts_bytes(sizes: tuple[int, ...], dirty: int, due: bool) -> None:
    found = chosen(log_of(*((size, *OLD[1:]) for size in sizes), first_dirty=dirty))
    assert found.due is due
    assert "min.cleanable.dirty.ratio = 50%" in found.reason


def test_a_ratio_of_one_is_never_exceeded_but_the_largest_lag_still_counts() -> None:
    assert not chosen(log_of(OLD), min_cleanable_dirty_ratio=1).due
    assert not chosen(log_of(OLD), min_cleanable_dirty_ratio=1, max_compaction_lag_ms=10_000).due
    found = chosen(log_of(OLD), min_cleanable_dirty_ratio=1, max_compaction_lag_ms=9_999)
    assert found.due
    assert "max.compaction.lag.ms" in found.reason
    waiting = chosen(log_of(OLD), min_cleanable_dirty_ratio=1, max_compaction_lag_ms=12_000)
    assert waiting.look_again_ms == NOW_MS + 2_001
    # Records without a real timestamp say nothing about their age.
    assert not chosen(log_of((100, 0, 0)), min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1).due


def test_the_first_segment_that_is_too_young_ends_the_range_whole() -> None:
    young, older = (100, NOW_MS - 10_000, NOW_MS - 4_999), (100, NOW_MS - 10_000, NOW_MS - 5_000)
    found = chosen(log_of(older, young, older), min_compaction_lag_ms=5_000)
    assert (found.end, found.look_again_ms) == (10, NOW_MS + 1)
    assert found.limit == "younger than min.compaction.lag.ms = 5000"
    assert chosen(log_of(young), min_compaction_lag_ms=5_000).due is False
    # A file counts with its youngest record, wherever in it the log starts.
    assert chosen(log_of(young, older, log_start=4), min_compaction_lag_ms=5_000).end == 4
    # As in Kafka a record from the future holds nothing up where no lag is asked for.
    future = (100, NOW_MS, NOW_MS + 3_600_000)
    assert chosen(log_of(future)).end == 10
    assert chosen(log_of(future), min_compaction_lag_ms=1).end == 0


def test_a_topic_that_is_not_compacted_is_never_due() -> None:
    found = cleanable(log_of(OLD), TopicConfig.parse({"min.cleanable.dirty.ratio": 0}), NOW_MS)
    assert (found.due, found.look_again_ms) == (False, None)
    assert "cleanup.policy" in found.reason


def test_the_dirtiest_comes_first() -> None:
    looks = [chosen(log_of(OLD, OLD, OLD, first_dirty=d), min_cleanable_dirty_ratio=0) for d in (20, 0, 30, 10)]
    assert dirtiest_first(looks) == [1, 3, 0]
    assert dirtiest_first(looks, every=True) == [1, 3, 0, 2]


def test_a_part_of_the_range_is_whole_segments_and_at_least_one() -> None:
    view = log_of(OLD, OLD, OLD, first_dirty=10)
    assert bounded(view, chosen(view), 1, 1).end == 20
    assert bounded(view, chosen(view), 199, 10**9).end == 20
    assert bounded(view, chosen(view), 10**9, 19).end == 20
    assert bounded(view, chosen(view), 200, 20).end == 30
    assert bounded(view, chosen(view), 1, 1).dirty_bytes == 100


def test_each_file_has_its_reason() -> None:
    view = log_of(OLD, OLD, OLD, first_dirty=20)
    stamped = replace(view.files[0], tags=tag_of([Span(0, 1, NOW_MS)]))
    view = replace(view, files=[stamped, *view.files[1:]])
    found = file_reasons(view, chosen(view), NOW_MS)
    assert [one.action for one in found] == ["rewrite", "check", "clean", "leave"]
    assert found[3].reason == "the active segment is never cleaned"


# --- a log -------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with memory_cluster(compaction_in_process_max_bytes=0) as made:
        yield made


def put(log: LogStore, *pairs: tuple[str, str | None], topic: str = "t", second: int = 0) -> None:
    """One segment, if the second differs from the last one's."""
    records = [{"key": k.encode(), "value": None if v is None else v.encode()} for k, v in pairs]
    append(log, topic, 0, make_batch(records, default_ms=NOW_MS + second * 10_000))


def clean(log: LogStore, passes: LocalPasses | None = None, topic: str = "t"):
    partition = log.partition(topic, 0)
    led, now = LedPartition(partition), log.runtime.clock.wall_ms()
    view = led.view()
    return compact(
        led, passes or LocalPasses(led.store), partition.config, cleanable(view, partition.config, now), view, now
    )


def keyed(log: LogStore, topic: str = "t") -> list[tuple[int, str, str | None]]:
    found = []
    for piece in log.reads(topic, 0).scan(readahead=0):
        columns = (piece.column(name).to_pylist() for name in ("offset", "key", "value"))
        found += [(o, k.decode(), None if v is None else v.decode()) for o, k, v in zip(*columns, strict=True)]
    return found


def test_a_tombstone_is_kept_once_stamped_and_gone_after_its_horizon(cluster: Cluster) -> None:
    log = cluster.open()
    log.create_topic("t", configs=COMPACTED | {"delete.retention.ms": 5_000})
    put(log, ("a", "1"), ("a", None))
    put(log, ("x", "0"), second=1)
    met = cluster.clock.wall_ms()

    first = clean(log)

    assert (first.stamped, first.expired) == (1, 0)
    assert keyed(log) == [(1, "a", None), (2, "x", "0")]
    assert spans_of(log.partition("t", 0).state.files[0]) == (Span(1, 2, met + 5_000),)
    cluster.clock.advance(4.999)
    put(log, ("x", "1"), second=2)
    assert clean(log).expired == 0
    assert keyed(log)[0] == (1, "a", None)
    # The segment with the tombstone holds nothing else that changes: its horizon alone is a reason to rewrite it.
    cluster.clock.advance(0.001)
    put(log, ("x", "2"), second=3)
    assert clean(log).expired == 1
    assert keyed(log) == [(3, "x", "1"), (4, "x", "2")]
    state = log.partition("t", 0).state
    assert (state.log_start, state.end) == (0, 5)


def test_merges_and_restarts_keep_the_horizons_of_tombstones(cluster: Cluster) -> None:
    log = cluster.open()
    log.create_topic("t", configs=COMPACTED | {"segment.ms": 30_000, "merge.target.bytes": 100_000})
    for n in range(3):
        put(log, (f"gone-{n}", None), second=n)
    put(log, ("x", "0"), second=9)
    # One piece of work each, as if they were large: three files with tombstones of three horizons.
    partition = log.partition("t", 0)
    clean(log)
    stamped = spans_of(partition.state.files[0])
    assert len(stamped) == 1
    put(log, ("late", None), second=10)
    put(log, ("x", "1"), second=19)
    cluster.clock.advance(7)
    clean(log)
    merge_once(partition, partition.config, quiet=True)
    horizons = [span.horizon_ms for file in partition.state.files for span in spans_of(file)]
    assert horizons == [NOW_MS + DAY_S * 1000, NOW_MS + 7_000 + DAY_S * 1000]
    partition.checkpoint()
    log = cluster.reopen()
    again = [span.horizon_ms for file in log.partition("t", 0).state.files for span in spans_of(file)]
    assert again == horizons


def test_files_that_lose_nothing_are_left_and_files_that_lose_all_go(cluster: Cluster) -> None:
    log = cluster.open()
    log.create_topic("t", configs=COMPACTED)
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("c", "1"), second=1)
    put(log, ("a", "2"), ("b", "2"), second=2)
    put(log, ("x", "0"), second=3)
    partition = log.partition("t", 0)
    before = [file.path for file in partition.state.files]

    done = clean(log)

    assert [file.path for file in partition.state.files] == before[1:]
    assert (done.files_removed, done.files_added, done.files_left) == (1, 0, 2)
    assert keyed(log) == [(2, "c", "1"), (3, "a", "2"), (4, "b", "2"), (5, "x", "0")]
    # Nothing was duplicated in the new range: the plan only says that it is clean now.
    put(log, ("d", "1"), second=4)
    done = clean(log)
    assert (done.files_removed, done.files_added, partition.state.first_dirty) == (0, 0, 6)


# --- races ---------------------------------------------------------------------------------------------


class Disturbed(LocalPasses):
    """Something happens to the log each time that work was done and is about to be committed."""

    def __init__(self, log: LogStore, *disturbances: Callable[[], object]) -> None:
        super().__init__(log.runtime.store)
        self._disturbances = list(disturbances)
        self.pieces: list[int] = []

    def clean(self, job: Cleaning, groups: Sequence[FileGroup]) -> list[Cleaned]:
        self.pieces.append(len(groups))
        done = super().clean(job, groups)
        if self._disturbances:
            self._disturbances.pop(0)()
        return done


def names_in_folder(log: LogStore) -> set[str]:
    return {item.name for item in log.runtime.store.list(folder_of(log, "t")) if item.name.endswith(".parquet")}


def busy_log(cluster: Cluster) -> LogStore:
    """Four closed segments of three files each."""
    log = cluster.open()
    configs = COMPACTED | {"cleanup.policy": "compact,delete", "segment.ms": 9_000}
    log.create_topic("t", configs=configs)
    for second in range(5):
        for n in range(3):
            put(log, ("a", f"{second}{n}"), (f"k{second}{n}", "1"), second=second)
    return log


def expected(start: int = 0) -> list[tuple[int, str, str | None]]:
    found = [(6 * s + 2 * n + 1, f"k{s}{n}", "1") for s in range(4) for n in range(3)]
    found.append((6 * 3 + 4, "a", "32"))
    for n in range(3):
        found += [(24 + 2 * n, "a", f"4{n}"), (25 + 2 * n, f"k4{n}", "1")]
    return sorted(row for row in found if row[0] >= start)


def merge_all(log: LogStore) -> None:
    partition = log.partition("t", 0)
    while merge_once(partition, partition.config, quiet=False) is not None:
        pass


def merge_first(log: LogStore) -> None:
    partition = log.partition("t", 0)
    assert merge_once(partition, partition.config, quiet=False) is not None


def test_a_merge_under_a_compaction_costs_only_the_work_on_what_it_merged(cluster: Cluster) -> None:
    log = busy_log(cluster)
    passes = Disturbed(log, lambda: merge_first(log), lambda: merge_first(log), lambda: put(log, ("z", "1"), second=5))

    done = clean(log, passes)

    assert keyed(log)[:-1] == expected()
    assert passes.pieces == [4, 1, 1]
    assert done.tries == 3
    live = {file.path for file in log.partition("t", 0).state.files}
    removed = set(log.partition("t", 0).known_files()[1])
    assert names_in_folder(log) == live | removed  # what was overtaken left no orphan


def test_merging_everything_all_the_time_does_not_starve_it(cluster: Cluster) -> None:
    log = busy_log(cluster)
    done = clean(log, Disturbed(log, *[lambda: merge_all(log)] * 20))
    assert done.tries <= 2
    assert keyed(log) == expected()


def test_records_that_are_deleted_meanwhile_stay_deleted(cluster: Cluster) -> None:
    log = busy_log(cluster)
    clean(log, Disturbed(log, lambda: log.delete_records("t", 0, 8), lambda: log.delete_records("t", 0, 20)))
    assert keyed(log) == expected(20)
    assert log.partition("t", 0).state.first_dirty == 24


def test_of_two_cleanings_the_second_gives_up_and_leaves_nothing(cluster: Cluster) -> None:
    log = busy_log(cluster)
    with pytest.raises(PlanRefused, match="another cleaning"):
        clean(log, Disturbed(log, lambda: clean(log)))
    assert keyed(log) == expected()
    state, removed = log.partition("t", 0).state, log.partition("t", 0).known_files()[1]
    assert names_in_folder(log) == {file.path for file in state.files} | set(removed)


def test_a_log_that_never_stands_still_is_left_after_some_tries(cluster: Cluster, monkeypatch) -> None:
    log = busy_log(cluster)
    refusals = []

    def refuse(_self: PartitionLog, _plan: Plan) -> int:
        refusals.append(1)
        raise PlanRefused("moved on")

    monkeypatch.setattr(PartitionLog, "apply_plan", refuse)
    before = names_in_folder(log)
    with pytest.raises(PlanRefused, match="moved on 8 times"):
        clean(log)
    assert len(refusals) == TRIES
    assert names_in_folder(log) == before


def test_files_of_a_plan_in_doubt_are_not_deleted(cluster: Cluster, monkeypatch) -> None:
    """R-4: the commit may be there. Then its files are the log."""
    log = busy_log(cluster)
    original = PartitionLog.apply_plan

    def in_doubt(self: PartitionLog, wanted: Plan) -> int:
        original(self, wanted)
        raise StorageError("the connection broke after the commit")

    monkeypatch.setattr(PartitionLog, "apply_plan", in_doubt)
    with pytest.raises(StorageError):
        clean(log)
    assert keyed(log) == expected()


def test_a_plan_may_not_remove_what_lies_beyond_the_cleaned_range(cluster: Cluster) -> None:
    log = busy_log(cluster)
    state = log.partition("t", 0).state
    wanted = plan(PlanKind.COMPACT, state.version, removes=(state.files[-1].path,), first_dirty=24)
    with pytest.raises(PlanRefused, match="cleans up to 24"):
        log.apply_plan("t", 0, wanted)


# --- the service by itself -------------------------------------------------------------------------------


def looked_at(log: LogStore, topic: str = "t") -> bool:
    return log.background.housekeeping.compaction.look(log.partition(topic, 0))


def test_the_service_compacts_small_partitions_in_the_background() -> None:
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED)
        for second in range(4):
            put(log, ("a", str(second)), second=second)
        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        eventually(lambda: len(keyed(log)) == 2)
        assert keyed(log) == [(2, "a", "2"), (3, "a", "3")]
        counters = log.background.housekeeping.compaction.counters  # they follow what they count
        eventually(lambda: (counters.compactions, counters.records_dropped, counters.failures) == (1, 2, 0))


def test_what_is_too_large_is_left_to_the_job() -> None:
    with memory_cluster(compaction_in_process_max_bytes=1_000) as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED)
        for second in range(4):
            put(log, ("a", str(second)), second=second)
        assert not looked_at(log)
        assert log.background.housekeeping.compaction.counters.too_large == 1
        assert len(keyed(log)) == 4


def test_a_partition_that_is_only_too_young_is_looked_at_again_in_time() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED | {"min.compaction.lag.ms": 60_000})
        for second in range(3):
            put(log, ("a", str(second)), second=second)
        assert not looked_at(log)
        cluster.tick(81)
        eventually(lambda: len(keyed(log)) == 2)


def test_a_failed_cleaning_waits_and_keeps_no_merge_waiting() -> None:
    with memory_cluster(merge_enable=True) as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED)
        for second in range(3):
            put(log, ("a", str(second)), second=second)
        for n in range(3):
            put(log, ("b", str(n)), second=3)
        partition = log.partition("t", 0)
        lost = partition.state.files[0]
        held = log.runtime.store.get(f"{partition.ref.folder}/{lost.path}")
        log.runtime.tails.drop(partition.ref.folder)
        log.runtime.store.delete(f"{partition.ref.folder}/{lost.path}")
        cluster.tick(cluster.settings.log.merge_quiet_ms / 1000)
        eventually(lambda: len(partition.state.files) == 4)  # the active segment was merged all the same
        counters = log.background.housekeeping.compaction.counters
        assert (counters.failures, counters.compactions) == (1, 0)
        assert not looked_at(log)
        assert counters.failures == 1
        log.runtime.store.put(f"{partition.ref.folder}/{lost.path}", held)
        cluster.tick(BACKOFF_S)
        eventually(lambda: counters.compactions == 1)


def test_nothing_is_cleaned_while_wall_time_is_not_to_be_trusted() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED)
        for second in range(3):
            put(log, ("a", str(second)), second=second)
        cluster.clock.jump(3_600)
        assert not looked_at(log)
        assert len(keyed(log)) == 3


def test_a_service_that_stops_does_not_wait_for_a_cleaning() -> None:
    with memory_cluster() as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED)
        for second in range(3):
            put(log, ("a", str(second)), second=second)
        log.runtime.closing = True
        assert not looked_at(log)
        counters = log.background.housekeeping.compaction.counters
        assert (counters.compactions, counters.failures) == (0, 0)
        log.runtime.closing = False
        assert looked_at(log)


# --- internal topics -------------------------------------------------------------------------------------


def test_the_catalog_stays_small_and_every_start_reads_the_same_from_it() -> None:
    """Rolled by time here; the real ones roll by size."""
    with memory_cluster() as cluster:
        log = cluster.open()
        for round_ in range(3):
            for n in range(4):
                log.create_topic(f"t{round_}{n}")
                log.create_topic(f"again-{n}") if round_ == 0 else log.delete_topic(f"again-{n}")
                if round_:
                    log.create_topic(f"again-{n}")
            log.delete_topic(f"t{round_}0")
            log.new_producer("partition", "named")
            cluster.clock.advance(8 * DAY_S)
        log.create_topic("last")
        before, state = _metadata_rows(log), log.catalog.state
        partition = log.maintained(CLUSTER_METADATA, 0)
        assert len(partition.state.rolls) >= 2

        while log.background.housekeeping.compaction.look(partition):
            pass

        after = _metadata_rows(log)
        assert len(after) < len(before)
        assert partition.state.first_dirty == partition.state.rolls[-1]
        again = cluster.reopen()
        assert again.catalog.state == state
        assert again.new_producer("partition", "named")[1] == 3
        again.create_topic("after-compaction")
        assert cluster.crash().catalog.state.find("after-compaction") is not None


def _metadata_rows(log: LogStore) -> list[int]:
    reads = PartitionReads(log.maintained(METADATA_REF.topic, 0))
    return [offset for piece in reads.scan(readahead=0) for offset in piece.column("offset").to_pylist()]


def test_an_internal_topic_that_is_too_large_is_cleaned_part_by_part() -> None:
    with memory_cluster(compaction_in_process_max_bytes=3_000) as cluster:
        log = cluster.open()
        configs = COMPACTED | {"segment.ms": 9_000}
        log.internal_topic("__consumer_offsets", partitions=1, configs=configs)
        partition = log.partition("__consumer_offsets", 0)
        for second in range(8):
            for n in range(2):
                records = [{"key": b"g", "value": b"%d" % n}, {"key": b"k%d" % second, "value": b"v"}]
                partition.append(make_batch(records, default_ms=NOW_MS + second * 10_000)).result(WAIT_S)
        looks = 0
        while log.background.housekeeping.compaction.look(partition):
            looks += 1
        assert looks >= 3
        assert partition.state.first_dirty == partition.state.rolls[-1]
        found = keyed(log, "__consumer_offsets")
        assert [row for row in found if row[0] < partition.state.first_dirty and row[1] == "g"] == [(26, "g", "1")]
        assert len({row[1] for row in found}) == 9


# --- readers ---------------------------------------------------------------------------------------------


def test_readers_see_every_key_at_its_last_value_before_during_and_after(tmp_root: Path) -> None:
    """I-9, I-11: a slow scan goes on over deleted files, fetches step over gaps, delta-rs reads the same rows."""
    with folder_cluster(tmp_root, compaction_in_process_max_bytes=0) as cluster:
        log = cluster.open()
        log.create_topic("t", configs=COMPACTED | {"segment.ms": 9_000})
        for second in range(6):
            for n in range(4):
                put(log, ("a", f"{second}{n}"), (f"k{n}", f"{second}"), second=second)
        partition = log.partition("t", 0)
        slow = log.reads("t", 0).scan(readahead=0)
        early = next(slow)
        clean(log)
        cluster.clock.advance(3_600)
        assert log.background.housekeeping.sweep(partition).removed
        late = [
            row for piece in slow for row in zip(*(piece.column(c).to_pylist() for c in ("key", "value")), strict=True)
        ]
        seen = dict(zip(early.column("key").to_pylist(), early.column("value").to_pylist(), strict=True)) | dict(late)
        assert seen == {b"a": b"53"} | {b"k%d" % n: b"5" for n in range(4)}

        position, fetched = 0, []
        while position < partition.high_watermark:
            answer = log.reads("t", 0).fetch(position, max_records=3)
            fetched += [offset for piece in answer.rows.batches for offset in piece.column("offset").to_pylist()]
            assert answer.rows.next_offset > position
            position = answer.rows.next_offset
        stock = QueryBuilder().register("t", DeltaTable(str(tmp_root / partition.ref.folder)))
        table = stock.execute('SELECT "offset" FROM t ORDER BY "offset"').read_all()
        assert pa.table(table).column(0).to_pylist() == fetched == [offset for offset, _ in rows(log, "t")]


def test_producer_windows_outlive_the_records_they_came_with(cluster: Cluster) -> None:
    log = cluster.open()
    log.create_topic("t", configs=COMPACTED)
    first = append(log, "t", 0, batch("1", key=b"a"), stamp=stamp(2, 0))
    put(log, ("a", "2"), second=1)
    put(log, ("a", "3"), second=2)
    clean(log)
    assert keyed(log) == [(1, "a", "2"), (2, "a", "3")]
    log = cluster.reopen()
    again = append(log, "t", 0, batch("1", key=b"a"), stamp=stamp(2, 0))
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
