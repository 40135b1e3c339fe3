"""Five streams that are stopped and started again and again, against checkpoints, clean-ups, merges and a vacuum that
never rest: no exception, and every record once (I-9, R-5).

All five are Sluice's own. A stock `format("delta")` stream has no claim to survive this: docs/protocol.md, section 11,
gives it `log.json.retention.ms` to come back and `file.delete.delay.ms` to read a file, and here both are nothing.
Stock readers read the table in the end instead, by what the last clean-up has left of its log.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluice.log_store.checkpoints import clean_log
from sluice.log_store.engine import LogStore
from sluice.log_store.plans import PlanKind
from sluice.streaming import register
from sluice.streaming.spark.job_run import SLOW_STARTS, started_too_slowly
from tests import counts
from tests.spark.test_source_races import churned
from tests.support.harness import boottime, wait_until
from tests.support.logs import append, batch, folder_of, rewrite
from tests.support.spark_source import Place, Sink, start, stream
from tests.support.stock_readers import FAR_FUTURE_MS, delta_rs_rows, spark_rows, table_path

SEED = 23
CHECKPOINT_EVERY = 8
"""Versions of a partition."""
KEPT_MS = {0: None, 1: 10_000}
"""How long commits of each partition are kept. Of 0 not at all, where R-3 promises an hour: no running query can follow
it, each goes by what it saw when it was started, and plans again as files are gone. Of 1 so long that most keep up."""
QUERIES: dict[str, dict[str, Any]] = {
    "by the planner": {"maxOffsetsPerTrigger": 60},
    "in tasks": {"maxOffsetsPerTrigger": 100, "minPartitions": 1},
    "in more tasks": {"maxOffsetsPerTrigger": 100, "minPartitions": 5, "includeHeaders": True},
    "in small tasks": {"maxOffsetsPerTrigger": 40, "maxRecordsPerPartition": 15, "columns": "partition,offset,value"},
    "assigned": {"maxOffsetsPerTrigger": 25, "subscribe": None, "assign": '{"t":[0,1]}', "minOffsetsPerTrigger": 5},
}

STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling collect: java.lang.InterruptedException"
"""By which Spark knows that a function failed because its query was stopped. It looks for that in all that the function
said, and a whole stack trace overflows its own stack."""


class Churn:
    """The only writer: what it appends is the truth."""

    def __init__(self, log: LogStore) -> None:
        self._log = log
        self._luck = random.Random(SEED)
        self._checkpointed = dict.fromkeys(KEPT_MS, 0)
        self.truth: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in KEPT_MS}
        self.checkpoints = self.versions_removed = self.files_deleted = 0

    def __str__(self) -> str:
        records = sum(map(len, self.truth.values()))
        removed = f"{self.versions_removed} versions and {self.files_deleted} files removed"
        return f"{records} records, {self.checkpoints} checkpoints, {removed}"

    def step(self) -> None:
        for partition in self.truth:
            for _ in range(self._luck.randint(1, 3)):
                self._append(partition)
            self._merge(partition)
            if self._log.partition("t", partition).state.version - self._checkpointed[partition] >= CHECKPOINT_EVERY:
                self._clean(partition)

    def _append(self, partition: int) -> None:
        end = len(self.truth[partition])
        numbered = [(offset, b"%d:%d" % (partition, offset)) for offset in range(end, end + self._luck.randint(1, 4))]
        assert append(self._log, "t", partition, batch(*(value for _, value in numbered))).base_offset == end
        self.truth[partition] += numbered

    def _merge(self, partition: int) -> None:
        """Neighbours anywhere in the log; what they are replaced by is all that is left of them at once."""
        files = list(self._log.partition("t", partition).state.files)
        first = self._luck.randrange(len(files))
        if len(some := files[first : first + self._luck.randint(2, 3)]) > 1:
            plan = rewrite(self._log, "t", PlanKind.MERGE, some, partition=partition)
            self._log.apply_plan("t", partition, plan)
            for file in some:
                self._log.runtime.store.delete(f"{folder_of(self._log, 't', partition)}/{file.path}")
                self.files_deleted += 1

    def _clean(self, partition: int) -> None:
        version = self._checkpointed[partition] = self._log.partition("t", partition).checkpoint()
        kept_ms = KEPT_MS[partition]
        until = FAR_FUTURE_MS if kept_ms is None else time.time_ns() // 1_000_000 - kept_ms
        store, folder = self._log.runtime.store, folder_of(self._log, "t", partition)
        self.versions_removed += clean_log(store, folder, older_than_ms=until, synced_version=version).versions
        self.checkpoints += 1


class OnceSink(Sink):
    """Idempotent. It reads every batch twice; whenever and however often one is read, it must be the same."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = threading.Event()
        self.replayed = 0
        self.wrong: list[str] = []

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.replayed += number in self.batches
        self._keep(number, self._read(frame))
        self.stopping.wait(0.2)  # many a stop comes here: the rows are written, and Spark has not noted it
        self._keep(number, self._read(frame))

    def _read(self, frame: DataFrame) -> list[Row]:
        try:
            return frame.collect()
        except Exception as error:
            if self.stopping.is_set() and re.search("InterruptedException|cancelled", str(error)):
                raise RuntimeError(STOPPED) from None
            self.wrong.append(f"not read: {error}")
            raise

    def _keep(self, number: int, rows: list[Row]) -> None:
        if self.batches.setdefault(number, rows) != rows:
            self.wrong.append(f"batch {number} was {self.batches[number]}, now it is {rows}")

    def of(self, partition: int) -> list[tuple[int, bytes]]:
        """(offset, value) in the order of delivery."""
        every = [row for _, rows in sorted(self.batches.items()) for row in rows]
        return [(row.offset, bytes(row.value)) for row in every if row.partition == partition]


class Restarted:
    """A query that goes on from its checkpoint."""

    def __init__(self, spark: SparkSession, place: Place, name: str, folder: Path) -> None:
        self.name, self.sink, self.restarts, self.slow_starts = name, OnceSink(), -1, 0
        self._spark, self._place, self._checkpoint = spark, place, folder / name
        self._query: StreamingQuery | None = None

    def __str__(self) -> str:
        batches = f"{len(self.sink.batches)} batches, {self.sink.replayed} of them again"
        return f"{self.name}: {self.restarts} restarts ({self.slow_starts} slow), {batches}"

    def start(self, changes: dict[str, Any] | None = None, **trigger: Any) -> StreamingQuery:
        """Until its source is there. Spark gives that ten seconds: on a busy machine it is tried again."""
        frame = stream(self._spark, self._place, **QUERIES[self.name] | (changes or {}))
        self.sink.stopping.clear()
        for _ in range(SLOW_STARTS):
            query = self._query = start(frame, self.sink, self._checkpoint, **trigger)
            wait_until(lambda: not query.status["message"].startswith("Initializing"), f"{self.name} begins")  # noqa: B023
            if not started_too_slowly(str(query.exception())):
                break
            self.slow_starts += 1
        self.restarts += 1
        return query

    def stop(self) -> None:
        if self._query is not None:
            self.sink.stopping.set()
            self._query.stop()
            error = self._query.exception()
            assert (error, self.sink.wrong) == (None, []), str(self)

    def finish(self) -> None:
        assert self.start({"maxOffsetsPerTrigger": None}, availableNow=True).awaitTermination(120), self.name
        self.stop()


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> Iterator[None]:
    register(spark)
    yield
    for left in spark.streams.active:
        left.stop()


@pytest.mark.full
@pytest.mark.timeout(600 + 3 * counts.STREAMS_RACE_S)
@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_five_restarted_streams_race_checkpoints_and_clean_ups(spark: SparkSession, place: Place, tmp_path: Path):
    churn, luck, moment = Churn(place.log), random.Random(SEED), threading.Event()
    for _ in range(20):
        churn.step()
    queries = [Restarted(spark, place, name, tmp_path) for name in QUERIES]
    with churned(churn.step):
        for query in queries:
            query.start()
        deadline = boottime() + counts.STREAMS_RACE_S
        while boottime() < deadline or min(query.restarts for query in queries) < 2:
            for query in luck.sample(queries, len(queries)):
                moment.wait(luck.uniform(0, 2))  # nobody sets it: a query is stopped at any point of a batch
                query.stop()
                query.start()
        for query in queries:
            query.stop()
    print(f"{churn}; {', '.join(map(str, queries))}")
    assert all(query.restarts >= 2 and query.sink.batches for query in queries)
    assert min(churn.checkpoints, churn.versions_removed, churn.files_deleted) > 0

    for query in queries:
        query.finish()
        for partition, truth in churn.truth.items():
            assert query.sink.of(partition) == truth, f"{query}: partition {partition}"
    for partition, truth in churn.truth.items():
        path = table_path(place.log, "t", partition)
        for found in (spark_rows(spark, path), delta_rs_rows(path)):
            assert [(row.offset, row.value) for row in found] == truth
