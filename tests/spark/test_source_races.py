"""Slow queries against maintenance that never rests: offsets are exact, and loss is judged by the log start alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.log_store.delta_log import DataFile
from sluice.log_store.engine import LogStore
from sluice.log_store.plans import Plan, PlanKind
from sluice.streaming import register
from tests.support.harness import wait_until
from tests.support.logs import append_one_by_one, folder_of, rewrite
from tests.support.spark_source import Place, Sink, start, stream, to_the_end


@pytest.fixture(autouse=True, scope="module")
def registered(spark: SparkSession) -> None:
    register(spark)


@contextmanager
def churned(step: Callable[[], None]) -> Iterator[None]:
    """`step` again and again beside what is done inside."""
    stop, failures = threading.Event(), list[BaseException]()

    def churn() -> None:
        try:
            while not stop.is_set():
                step()
                stop.wait(0.02)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        yield
    finally:
        stop.set()
        churning.join()
    assert not failures, failures


def without_mercy(log: LogStore, plan: Plan, files: Sequence[DataFile]) -> None:
    """A plan, and a vacuum: what left the log is gone at once."""
    log.apply_plan("t", 0, plan)
    for file in files:
        log.runtime.store.delete(f"{folder_of(log, 't')}/{file.path}")


@pytest.mark.parametrize("place", ["folder", pytest.param("bucket", marks=pytest.mark.full)], indirect=True)
def test_slow_batches_race_merge_retention_and_vacuum(spark: SparkSession, place: Place, tmp_path: Path):
    """I-9: files are replaced and deleted all the time; every record above the log start comes once, in order.

    Retention follows close behind the query, up to the first offset that it has not finished: no loss.
    """
    log, sink, count = place.log, Sink(), 120
    append_one_by_one(log, "t", map(str, range(count)))

    def step() -> None:
        nonlocal count
        files = list(log.partition("t", 0).state.files)[-8:]
        without_mercy(log, rewrite(log, "t", PlanKind.MERGE, files), files)
        append_one_by_one(log, "t", map(str, range(count, count + 3)))
        count += 3
        if finished := len(sink.offsets):
            log.delete_records("t", 0, finished)

    frame, checkpoint = stream(spark, place, maxOffsetsPerTrigger=30), tmp_path / "checkpoint"
    with churned(step):
        assert start(frame, sink, checkpoint, availableNow=True).awaitTermination(120)
    offsets = [offset for _, offset in sink.offsets]
    assert len(offsets) >= 120
    assert offsets == list(range(len(offsets)))
    # Retention passes the position of the query: an error, or, if asked for, the rest.
    append_one_by_one(log, "t", "abc")
    log.delete_records("t", 0, len(offsets) + 2)
    with pytest.raises(PySparkException, match="below the log start"):
        to_the_end(stream(spark, place), checkpoint)
    rest = to_the_end(stream(spark, place, failOnDataLoss="false"), checkpoint)
    end = log.partition("t", 0).state.end
    assert [offset for _, offset in rest.offsets] == list(range(len(offsets) + 2, end))


@pytest.mark.parametrize("place", ["folder", pytest.param("bucket", marks=pytest.mark.full)], indirect=True)
def test_slow_batches_race_key_compaction(spark: SparkSession, place: Place, tmp_path: Path):
    """Gaps are no data loss, whoever makes them and when: the query fails only below the log start.

    Every fifth record has a key of its own and must come, whenever it is read. Of the twelve keys of the others, each
    written again and again, the newest record at least must come. What comes is as written.
    """
    log, sink, count, keys = place.log, Sink(), 120, 12
    append_one_by_one(log, "t", map(str, range(count)))

    def step() -> None:
        nonlocal count
        state = log.partition("t", 0).state
        files = list(state.files)
        newest = {offset % keys: offset for offset in range(state.end)}
        kept = {*newest.values(), *range(0, state.end, 5)}
        without_mercy(
            log, rewrite(log, "t", PlanKind.COMPACT, files, keep=kept.__contains__, first_dirty=state.end), files
        )
        append_one_by_one(log, "t", map(str, range(count, count + 3)))
        count += 3

    # In tasks: small batches of a local root are otherwise read by the planner, as in the test above.
    frame = stream(spark, place, maxOffsetsPerTrigger=20, minPartitions=1)
    with churned(step):
        query = start(frame, sink, tmp_path / "checkpoint", processingTime="50 milliseconds")
        try:
            wait_until(lambda: query.exception() or len(sink.batches) >= 8, "batches beside cleanings", 120)
        finally:
            query.stop()
    last = to_the_end(frame, tmp_path / "checkpoint")
    # A batch that was stopped before Spark noted its end comes again, by the same number.
    found = [row for _, rows in sorted((sink.batches | last.batches).items()) for row in rows]
    offsets = [row.offset for row in found]
    assert offsets == sorted(set(offsets)), "once, in order"
    assert all(int(bytes(row.value)) == row.offset for row in found)
    assert {*range(count - keys, count), *range(0, count, 5)} <= set(offsets), "the newest record of each key"
