"""Rows that travel with the plan: sent by PySpark's own planner code, which decides by the reader's class."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths, UTF8Deserializer, read_int, write_with_length
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sluice.log_store.engine import LogStore
from sluice.streaming.source import SluiceDataSource
from sluice.streaming.spark import carrying
from sluice.streaming.spark.planning import slices_of
from sluice.streaming.spark.stream_reader import StreamReader
from tests.support.logs import append, batch, folder_cluster, folder_of

EVERYTHING = ReadAllAvailable()


@pytest.fixture
def log(tmp_root: Path) -> Iterator[LogStore]:
    with folder_cluster(tmp_root) as cluster:
        log = cluster.open()
        log.create_topic("t", partitions=2)
        append(log, "t", 0, batch("a", "b", "c"))
        append(log, "t", 1, batch("x", "y"))
        yield log


class Planned:
    """One call of `partitions` by the process that PySpark runs for a streaming query, and its answer."""

    def __init__(self, root: Path, *, again: bool = False, **given: Any) -> None:
        options = {"path": str(root), "subscribe": "t", "startingOffsets": "earliest"} | given
        source = SluiceDataSource(options)
        self.schema = source.schema()
        assert not isinstance(self.schema, str)
        reader = source.streamReader(self.schema)
        assert isinstance(reader, StreamReader)
        self.reader = reader
        self.start = reader.initialOffset()
        self.end = reader.latestOffset(self.start, EVERYTHING)
        asked, self._answer = io.BytesIO(), io.BytesIO()
        for offset in (self.end if again else self.start, self.end):
            write_with_length(json.dumps(offset).encode(), asked)
        asked.seek(0)
        runner.partitions_func(reader, source, self.schema, 10_000, asked, self._answer)
        self._answer.seek(0)
        self.tasks = [pickle.loads(self._bytes()) for _ in range(read_int(self._answer))]
        self.status = read_int(self._answer)

    def _bytes(self) -> bytes:
        return self._answer.read(read_int(self._answer))

    @property
    def carried(self) -> list[str]:
        assert self.status == runner.NON_EMPTY_PYARROW_RECORD_BATCHES
        assert read_int(self._answer) == SpecialLengths.START_ARROW_STREAM
        return texts(pa.ipc.open_stream(self._answer).read_all())

    @property
    def read_by_tasks(self) -> list[str]:
        """By the reader that a task has: a copy that went through pickle."""
        copy = pickle.loads(pickle.dumps(self.reader))
        return [text for task in self.tasks for found in copy.read(task) for text in texts(found)]


def texts(rows: pa.Table | pa.RecordBatch) -> list[str]:
    return [value.decode() for value in rows.column("value").to_pylist()]


def test_a_small_batch_brings_its_rows_and_can_still_be_read_by_its_task(log: LogStore, tmp_root: Path):
    planned = Planned(tmp_root)
    assert len(planned.tasks) == 1, "PySpark takes rows for one task only"
    assert planned.carried == ["a", "b", "c", "x", "y"]
    assert planned.read_by_tasks == ["a", "b", "c", "x", "y"], "the block of a batch may get lost"


def test_admission_control_and_the_backlog_stay(log: LogStore, tmp_root: Path):
    planned = Planned(tmp_root)
    flags, report = io.BytesIO(), io.BytesIO()
    runner.check_support_func(planned.reader, flags)
    both = runner.SUPPORTS_ADMISSION_CONTROL | runner.SUPPORTS_TRIGGER_AVAILABLE_NOW
    assert struct.unpack("!i", flags.getvalue()) == (both,)
    runner.report_latest_offset_func(planned.reader, report)
    report.seek(0)
    assert json.loads(UTF8Deserializer().loads(report)) == {"t": {"0": 3, "1": 2}}


def test_rows_of_one_batch_never_go_with_another(log: LogStore, tmp_root: Path):
    planned = Planned(tmp_root)
    append(log, "t", 0, batch("d"))
    end = planned.reader.latestOffset(planned.end, EVERYTHING)
    planned.reader.partitions(planned.end, end)
    planned.reader.partitions(planned.start, planned.end)
    assert [row for rows in planned.reader.getCache(None, None) for row in texts(rows)] == ["a", "b", "c", "x", "y"]
    assert list(planned.reader.getCache(None, None)) == []


@pytest.mark.parametrize("limit", ["CARRIED_ROWS", "CARRIED_BYTES"])
def test_a_larger_batch_is_left_to_its_tasks(
    log: LogStore, tmp_root: Path, monkeypatch: pytest.MonkeyPatch, limit: str
):
    monkeypatch.setattr(carrying, limit, 4)
    planned = Planned(tmp_root)
    assert planned.status == runner.PREFETCHED_RECORDS_NOT_FOUND
    assert planned.read_by_tasks == ["a", "b", "c", "x", "y"]


def test_who_asks_for_tasks_gets_them(log: LogStore, tmp_root: Path):
    planned = Planned(tmp_root, minPartitions="4")
    assert planned.status == runner.PREFETCHED_RECORDS_NOT_FOUND
    assert [len(slices_of(task)) for task in planned.tasks] == [1] * 4
    assert planned.read_by_tasks == ["a", "b", "c", "x", "y"]


def test_a_restarted_query_that_tells_where_it_was_reads_nothing(log: LogStore, tmp_root: Path):
    assert Planned(tmp_root, again=True).status == runner.PREFETCHED_RECORDS_NOT_FOUND


def test_what_cannot_be_read_is_left_to_the_task_and_its_error(log: LogStore, tmp_root: Path):
    file = log.partition("t", 0).state.files[0]
    (tmp_root / folder_of(log, "t") / file.path).unlink()
    planned = Planned(tmp_root)
    assert planned.status == runner.PREFETCHED_RECORDS_NOT_FOUND
    with pytest.raises(Exception, match="part of the log and missing"):
        _ = planned.read_by_tasks


def test_the_reader_is_of_its_own_class(log: LogStore, tmp_root: Path):
    reader = Planned(tmp_root).reader
    assert reader.__class__ is StreamReader
