"""Mirrors without Spark: what a copy refuses, what a plan may add, how rows become files, how a copy is promoted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.jobs.cluster import StoreSpec, open_cluster
from sluice.jobs.data_files import write_data_file
from sluice.jobs.mirror_plans import CONFIG, SourceLog, check_copy, mirror_plan, source_name, starting_offset
from sluice.jobs.mirror_writing import BatchWriter, CopyTarget, cut, read_result
from sluice.jobs.verify_run import Scope, Verification
from sluice.jobs.verify_workers import LocalWorkers
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.delta_log import DataFile
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import InvalidConfig, PlanRefused, PolicyViolation
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.records import RECORD_SCHEMA, STORED_SCHEMA
from sluice.log_store.store import open_store
from sluice.log_store.topic import AlterOp, ConfigChange, TopicConfig
from sluice.log_store.values import ProducerStamp, SinkStamp
from tests.support import damage
from tests.support.damage import numbered, open_root
from tests.support.logs import write_file
from tests.support.server import running

SOURCE = "cluster/t/id-1"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogStore]:
    with open_root(tmp_path / "root") as opened:
        opened.create_topic("t", configs={CONFIG: SOURCE})
        yield opened


def rows(*offsets: int) -> pa.Table:
    """Rows of the source at these offsets."""
    batch = numbered(0, max(offsets) + 1).take(pa.array(offsets))
    return pa.Table.from_arrays([pa.array(offsets, pa.int64()), *batch.columns], schema=STORED_SCHEMA)


def added(log: LogStore, *runs: tuple[int, ...], **changes: Any) -> Plan:
    led = log.partition("t", 0)
    led.prepare()
    files = tuple(write_file(led, rows(*run)) for run in runs)
    given = {"continues_at": led.state.end, "end": files[-1].end_offset if files else led.state.end, **changes}
    return Plan(
        plan_id=f"mirror-{led.state.version}-{len(files)}",
        kind=PlanKind.MIRROR,
        reason="test",
        base_version=led.state.version,
        adds=files,
        **given,
    )


def offsets(log: LogStore) -> list[int]:
    batches = list(log.reads("t", 0).scan())
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def assert_verified(root: Path) -> None:
    store = open_store(root, fsync=False)
    found = Verification(store, LocalWorkers(store, threads=1), Scope()).run().violations
    assert [str(one) for one in found] == []


# --- a copy and its leader -----------------------------------------------------------------------


def test_a_copy_refuses_every_kind_of_produce(log: LogStore):
    producer, epoch = log.new_producer("partition")
    for options in ({}, {"stamp": ProducerStamp(producer, epoch, 0)}):
        with pytest.raises(PolicyViolation, match=f"t-0 is a copy of {SOURCE}"):
            log.append("t", 0, numbered(0, 1), **options)
    with pytest.raises(PolicyViolation):
        log.partition("t", 0).append(numbered(0, 1), sink=SinkStamp("query", 0, 0))
    assert log.partition("t", 0).log_end == 0


def test_files_are_added_with_the_sources_gaps_and_log_start(log: LogStore, tmp_path: Path):
    log.apply_plan("t", 0, added(log, (5, 7, 8), (12, 13), log_start=5, rolls=(10,)))
    state = log.partition("t", 0).state
    assert (state.log_start, state.end, state.rolls, state.gaps_below) == (5, 14, [10], 14)
    assert state.active is not None
    assert (state.active.base_offset, state.active.bytes) == (10, state.files[-1].size)
    assert offsets(log) == [5, 7, 8, 12, 13]
    # The source's retention: files below its log start go.
    removed = state.files[0].path
    log.apply_plan("t", 0, added(log, (20,), removes=(removed,), log_start=12, end=25))
    assert offsets(log) == [12, 13, 20]
    assert log.partition("t", 0).high_watermark == 25
    log.partition("t", 0).checkpoint()
    log.close()
    assert_verified(tmp_path / "root")
    with open_root(tmp_path / "root") as again:
        assert offsets(again) == [12, 13, 20]
        assert again.partition("t", 0).state.gaps_below == 25


def test_a_batch_that_comes_twice_adds_nothing_twice(log: LogStore):
    plan = added(log, (0, 1, 2))
    version = log.apply_plan("t", 0, plan)
    assert log.apply_plan("t", 0, plan) == version, "the same plan is answered like the first time"
    with pytest.raises(PlanRefused, match="continues a log that ends at 0, not 3"):
        log.apply_plan("t", 0, replace(added(log, (0, 1, 2)), continues_at=0))
    assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize(
    ("runs", "changes", "message"),
    [
        (((3, 4),), {"continues_at": 3}, "continues a log that ends at 3, not 5"),
        (((3, 6),), {}, "does not lie between"),
        (((5, 6), (6, 7)), {}, "does not lie between"),
        (((5, 9),), {"end": 8}, "does not lie between"),
        (((5, 9),), {"log_start": 11, "end": 10}, "may not move log start and end"),
        ((), {"end": 4}, "may not move log start and end"),
        (((5, 9),), {"rolls": (7,)}, "crosses the segment boundary at 7"),
        (((5, 6),), {"rolls": (9,)}, "out of order or outside"),
        (((7, 8),), {"rolls": (7, 6)}, "out of order or outside"),
    ],
)
def test_a_plan_that_does_not_continue_the_copy_is_refused_r7(
    log: LogStore, runs: tuple[tuple[int, ...], ...], changes: dict[str, Any], message: str
):
    log.apply_plan("t", 0, added(log, (0, 1, 2, 3, 4)))
    with pytest.raises(PlanRefused, match=message):
        log.apply_plan("t", 0, added(log, *runs, **changes))
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_no_other_plan_may_move_the_end_of_the_log_r7(log: LogStore):
    log.apply_plan("t", 0, added(log, (0, 1, 2, 3, 4)))
    files = log.partition("t", 0).state.files
    merge = replace(added(log, (0, 1, 2, 3, 4)), kind=PlanKind.MERGE, removes=tuple(one.path for one in files))
    with pytest.raises(PlanRefused, match="only a mirror does"):
        log.apply_plan("t", 0, replace(merge, end=99, continues_at=None))
    log.apply_plan("t", 0, replace(merge, plan_id="good", end=None, continues_at=None))
    assert log.partition("t", 0).high_watermark == 5


def test_only_a_copy_takes_the_plans_of_a_mirror(log: LogStore):
    plan = added(log, (0, 1))
    log.alter_topic("t", [ConfigChange(CONFIG, op=AlterOp.DELETE)])
    with pytest.raises(PlanRefused, match=r"has no mirror\.source"):
        log.apply_plan("t", 0, plan)


def test_a_promoted_copy_is_written_from_its_end_on(log: LogStore, tmp_path: Path):
    log.apply_plan("t", 0, added(log, (2, 4)))
    log.alter_topic("t", [ConfigChange(CONFIG, op=AlterOp.DELETE)])
    assert log.append("t", 0, numbered(0, 3)).result(timeout=60).base_offset == 5
    log.alter_topic("t", [ConfigChange(CONFIG, SOURCE)])
    with pytest.raises(PolicyViolation):
        log.append("t", 0, numbered(0, 1))
    log.apply_plan("t", 0, added(log, (8,)))
    assert offsets(log) == [2, 4, 5, 6, 7, 8]
    log.close()
    assert_verified(tmp_path / "root")


def test_mirror_source_is_a_line_of_text():
    with pytest.raises(InvalidConfig, match=r"mirror\.source"):
        TopicConfig.parse({CONFIG: "two\nlines"})


def test_the_service_takes_the_plans_of_a_mirror_and_refuses_records(tmp_path: Path):
    root = tmp_path / "root"
    with running(root) as server:
        created = {"topic_name": "t", "partitions_count": 1, "configs": [{"name": CONFIG, "value": SOURCE}]}
        assert server.client.post("/v3/clusters/-/topics", json=created).is_success
        with open_cluster(str(root), server.url) as cluster:
            ref = cluster.targets(["t"])[0].ref
            batches = rows(3, 4, 9).to_batches()
            file = write_data_file(
                cluster.store,
                ref.folder,
                batches,
                epoch=cluster.epoch,
                codec=("zstd", 1),
                now_ms=cluster.clock.wall_ms(),
            )
            assert file is not None
            plan = mirror_plan(PartitionState(), SourceLog(2, 12, (4, 11)), [], "test")
            assert plan is not None
            crossing = replace(plan, adds=(file,), end=10, rolls=(4,))
            with pytest.raises(PlanRefused, match="crosses the segment boundary at 4"):
                cluster.apply_plan(ref, crossing)
            cluster.apply_plan(ref, replace(crossing, rolls=(3,)))
            state = cluster.load(ref)
        assert (state.log_start, state.end, state.rolls) == (2, 10, [3])
        refused = server.client.post("/topics/t", json={"records": [{"value": 1}]})
        assert (refused.status_code, refused.json()["error"]) == (400, "POLICY_VIOLATION"), refused.text
        gone = server.client.delete(f"/v3/clusters/-/topics/t/configs/{CONFIG}")
        assert gone.is_success, gone.text
        answer = server.client.post("/topics/t", json={"records": [{"value": 1}]})
        assert answer.json()["offsets"][0]["offset"] == 10
    assert_verified(root)


# --- pure decisions ------------------------------------------------------------------------------


def meta(topic_id: str, **configs: str) -> TopicMeta:
    return TopicMeta("t", topic_id, "topics/t", (1,), configs, 0)


def test_a_copy_is_continued_only_from_the_incarnation_it_is_a_copy_of_r8():
    name = source_name("cluster", meta("id-1"))
    check_copy(meta("own", **{CONFIG: name}), meta("id-1"))
    with pytest.raises(PlanRefused, match="created anew"):
        check_copy(meta("own", **{CONFIG: name}), meta("id-2"))
    with pytest.raises(PlanRefused, match=r"has no mirror\.source"):
        check_copy(meta("own"), meta("id-1"))


def state(end: int, log_start: int = 0, *files: DataFile) -> PartitionState:
    return PartitionState(version=3, end=end, log_start=log_start, files=list(files))


def file(base: int, end: int) -> DataFile:
    return DataFile(damage.new_name(base), 10, base, end, end - base, 0, 0, 0)


def test_a_copy_goes_on_at_its_end_or_where_the_source_begins():
    assert starting_offset(state(5), SourceLog(0, 9)) == 5
    assert starting_offset(state(5), SourceLog(7, 9)) == 7
    with pytest.raises(PlanRefused, match="past the end of its source"):
        starting_offset(state(10), SourceLog(0, 9))


def test_a_plan_follows_the_log_start_also_without_rows():
    assert mirror_plan(state(5), SourceLog(0, 9), [], "r") is None
    old, young = file(0, 3), file(3, 5)
    plan = mirror_plan(state(5, 0, old, young), SourceLog(3, 9), [], "r")
    assert plan is not None
    assert (plan.log_start, plan.end, plan.removes) == (3, 5, (old.path,))
    plan = mirror_plan(state(5, 0, old, young), SourceLog(9, 9), [], "r")
    assert plan is not None
    assert (plan.log_start, plan.end, plan.removes) == (9, 9, (old.path, young.path)), "the source deleted everything"


def test_a_plan_takes_the_segments_of_the_source():
    plan = mirror_plan(state(5), SourceLog(0, 30, (3, 5, 8, 20)), [file(8, 12), file(5, 8)], "r")
    assert plan is not None
    assert (plan.rolls, [one.base_offset for one in plan.adds], plan.end) == ((5, 8), [5, 8], 12)


# --- rows become files ---------------------------------------------------------------------------


def spark_batch(topic: str, partition: int, *at: int) -> pa.RecordBatch:
    table = rows(*at)
    columns = [
        pa.array([topic] * len(at)),
        pa.array([partition] * len(at), pa.int32()),
        *table.combine_chunks().columns,
    ]
    flat = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return pa.record_batch(flat, names=["topic", "partition", "offset", *RECORD_SCHEMA.names])


def test_rows_are_cut_at_segments_and_those_that_are_there_are_left_out():
    batch = rows(3, 5, 8, 9, 12).to_batches()[0]
    assert [piece.column("offset").to_pylist() for piece in cut(batch, 5, (4, 8, 10))] == [[5], [8, 9], [12]]
    assert list(cut(batch, 13, ())) == []


def test_an_executor_writes_files_that_cross_neither_partitions_nor_segments(tmp_path: Path):
    target = CopyTarget("topics/a/0", 2, (6,), ("zstd", 1))
    writer = BatchWriter(
        StoreSpec(str(tmp_path), False, ()), 7, damage.MS,
        {("a", 0): target, ("b", 0): CopyTarget("topics/b/0", 0, (), ("zstd", 1))},
    )  # fmt: skip
    batches = [
        spark_batch("a", 0, 0, 1, 2, 3),
        pa.Table.from_batches([spark_batch("a", 0, 5, 6, 7), spark_batch("b", 0, 0, 1)])
        .combine_chunks()
        .to_batches()[0],
    ]
    found = [(row["topic"], read_result(row["file"])) for answer in writer(iter(batches)) for row in answer.to_pylist()]
    assert [(topic, one.base_offset, one.end_offset, one.records) for topic, one in found] == [
        ("a", 2, 6, 3),
        ("a", 6, 8, 2),
        ("b", 0, 2, 2),
    ]
    assert all((tmp_path / "topics" / topic / "0" / one.path).stat().st_size == one.size for topic, one in found)
    # The source has gained a partition since the query began: another query will copy it.
    assert list(writer(iter([spark_batch("b", 1, 0, 1)]))) == []
    small = list(replace(writer, file_bytes=1)(iter([spark_batch("b", 0, 0), spark_batch("b", 0, 1)])))
    assert len(small) == 2, "a file ends once it is large enough"
