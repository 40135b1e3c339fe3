"""The work of a task on files that move under it (I-9): merged, retained, compacted, deleted, missing, unreachable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sluice.log_store import parquet
from sluice.log_store.engine import LogStore
from sluice.log_store.errors import CorruptCommit, CorruptData, StorageError
from sluice.log_store.plans import PlanKind
from sluice.streaming.spark import reading
from sluice.streaming.spark.data_loss import DataLoss
from sluice.streaming.spark.planning import Slice
from sluice.streaming.spark.reading import read_slice
from tests.support.faulty_store import FaultyStore
from tests.support.logs import NOW_MS, append, append_one_by_one, folder_cluster, folder_of, make_batch, rewrite
from tests.support.source_queries import Query, rows_of, values

TEXTS = [f"{number:03d}" for number in range(40)]
ALL = {"subscribe": "t", "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": 1}


@pytest.fixture
def log(tmp_root: Path) -> Iterator[LogStore]:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=1)
        append_one_by_one(log, "t", TEXTS)
        yield log


def planned(root: Path, **given: object) -> tuple[Query, list[Slice]]:
    query = Query(root, **ALL, **given)
    end = query.next_end()
    assert end is not None
    return query, query.tasks(end)


def replace_files(log: LogStore, kind: PlanKind = PlanKind.MERGE, **changes: object) -> None:
    """What a merge and the deletion after its delay leave behind."""
    old = list(log.partition("t", 0).state.files)
    log.apply_plan("t", 0, rewrite(log, "t", kind, old, **changes))  # type: ignore[arg-type]
    for file in old:
        log.runtime.store.delete(f"{folder_of(log, 't')}/{file.path}")


def test_a_task_whose_files_were_merged_away_reads_the_same_rows(log: LogStore, tmp_root: Path):
    query, pieces = planned(tmp_root)
    assert len(pieces[0].files) == len(TEXTS)
    replace_files(log)
    assert values(rows_of(query.options, pieces)) == TEXTS


def test_files_that_vanish_in_the_middle_of_a_task(log: LogStore, tmp_root: Path, monkeypatch: pytest.MonkeyPatch):
    """Behind the last row that was handed out it goes on, with no row twice and none missing."""
    monkeypatch.setattr("sluice.streaming.spark.batches.FULL_ROWS", 3)
    query, pieces = planned(tmp_root)
    batches = read_slice(query.options, pieces[0])
    found = next(batches).column("value").to_pylist()
    replace_files(log)
    found += [value for rows in batches for value in rows.column("value").to_pylist()]
    assert [value.decode() for value in found] == TEXTS


def test_a_task_after_key_compaction_has_gaps(log: LogStore, tmp_root: Path):
    query, pieces = planned(tmp_root)
    end = log.partition("t", 0).state.end
    replace_files(log, PlanKind.COMPACT, keep=lambda offset: offset % 7 == 0, first_dirty=end)
    assert values(rows_of(query.options, pieces)) == TEXTS[::7]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_task_below_the_log_start(log: LogStore, tmp_root: Path, fail: str):
    query, pieces = planned(tmp_root, failOnDataLoss=fail)
    old = list(log.partition("t", 0).state.files)
    log.delete_records("t", 0, 30)
    assert values(rows_of(query.options, pieces)) == TEXTS, "what is still there is read as it was planned"
    for file in old[:30]:
        log.runtime.store.delete(f"{folder_of(log, 't')}/{file.path}")
    if fail == "true":
        with pytest.raises(DataLoss, match=r"offsets 0\.\.29 of t-0"):
            rows_of(query.options, pieces)
    else:
        assert values(rows_of(query.options, pieces)) == TEXTS[30:]


def test_a_file_that_is_missing_and_live_is_damage(log: LogStore, tmp_root: Path):
    query, pieces = planned(tmp_root)
    log.runtime.store.delete(f"{folder_of(log, 't')}/{pieces[0].files[5].path}")
    with pytest.raises(CorruptData, match=r"offsets 5\.\.5 cannot be read"):
        rows_of(query.options, pieces)


def test_a_task_that_plans_again_does_not_take_a_damaged_commit_for_the_end(log: LogStore, tmp_root: Path):
    query, pieces = planned(tmp_root, failOnDataLoss="false")
    last = sorted((tmp_root / folder_of(log, "t") / "_delta_log").glob("*.json"))[-1]
    replace_files(log)
    last.write_bytes(b"")
    with pytest.raises(CorruptCommit):
        rows_of(query.options, pieces)


def test_a_task_tries_again_when_storage_fails(log: LogStore, tmp_root: Path, monkeypatch: pytest.MonkeyPatch):
    query, pieces = planned(tmp_root)
    store = FaultyStore(log.runtime.store)
    monkeypatch.setattr(reading, "_store", lambda *_: store)
    store.fail_before("open_input", "*0000000000000000001*", times=3)
    assert values(rows_of(query.options, pieces)) == TEXTS
    store.fail_before("open_input", times=4)
    with pytest.raises(StorageError):
        rows_of(query.options, pieces)


def test_small_files_become_batches_worth_sending(log: LogStore, tmp_root: Path):
    query, pieces = planned(tmp_root)
    assert [rows.num_rows for rows in read_slice(query.options, pieces[0])] == [len(TEXTS)]


def test_only_the_row_groups_of_a_piece_are_decoded(log: LogStore, tmp_root: Path, monkeypatch: pytest.MonkeyPatch):
    log.create_topic("big", partitions=1)
    rows = [{"value": b"%d" % number + b"." * 1000} for number in range(12_000)]
    append(log, "big", 0, make_batch(rows, default_ms=NOW_MS))
    query = Query(tmp_root, subscribe="big", startingOffsets="earliest", minPartitions=6)
    end = query.next_end()
    assert end is not None
    pieces = query.tasks(end)
    assert len(pieces) == 6
    decoded: list[int] = []
    plain = parquet.read_groups
    monkeypatch.setattr(parquet, "read_groups", lambda *args: decoded.append(len(args[1])) or plain(*args))
    assert [row["offset"] for row in rows_of(query.options, pieces)] == list(range(12_000))
    whole = pq.ParquetFile(tmp_root / folder_of(log, "big") / pieces[0].files[0].path).num_row_groups
    assert whole >= 5
    assert sum(decoded) <= whole + len(pieces) - 1, "a row group that a cut falls into is read twice, no other"


def test_columns_that_are_not_wanted_are_not_read(log: LogStore, tmp_root: Path):
    query, pieces = planned(tmp_root, columns="offset,topic")
    schema = next(read_slice(query.options, pieces[0])).schema
    assert schema.names == ["topic", "offset"]
    assert reading.OutputBatches(query.options.columns, pieces[0]).stored_columns == ["offset"]
