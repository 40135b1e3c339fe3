"""The gate that a job's batches pass: none begins after a stop was asked for, and the one at work is waited for."""

from __future__ import annotations

import threading

import pytest

from sluice.streaming.spark import job_stop
from sluice.streaming.spark.job_run import started_too_slowly
from sluice.streaming.spark.job_stop import StopGate, StopRequested, stop_in_order


class Query:
    """As much of a StreamingQuery as a stop looks at."""

    def __init__(self, recorded: int) -> None:
        self.isActive = True
        self.lastProgress = {"batchId": recorded}
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()


def test_a_stop_waits_for_the_batch_at_work_and_turns_the_next_away():
    gate, query = StopGate(), Query(recorded=3)
    at_work, finish = threading.Event(), threading.Event()

    def batch() -> None:
        with gate.batch(3):
            at_work.set()
            finish.wait(60)

    worker = threading.Thread(target=batch)
    worker.start()
    assert at_work.wait(60)
    gate.request("test")
    stopper = threading.Thread(target=stop_in_order, args=(query, gate, lambda _: None))
    stopper.start()
    assert not query.stopped.wait(0.1)
    finish.set()
    assert query.stopped.wait(60)
    worker.join(60)
    stopper.join(60)
    assert gate.last_batch == 3
    with pytest.raises(StopRequested), gate.batch(4):
        pytest.fail("a batch began after the stop")
    assert gate.refused


def test_the_last_batch_is_told_before_the_query_ends_however_long_its_trigger_is():
    gate, query = StopGate(), Query(recorded=5)
    told: list[tuple[int, bool]] = []
    with gate.batch(5):
        pass
    gate.request("test")
    stop_in_order(query, gate, lambda number: told.append((number, query.stopped.is_set())))
    assert told == [(5, False)]
    assert query.stopped.is_set()


@pytest.mark.parametrize("written", [True, False])
def test_a_batch_that_spark_has_not_recorded_is_not_told(written: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_stop, "RECORD_WITHIN_S", 0.1)
    gate, query = StopGate(), Query(recorded=4)
    if written:
        with gate.batch(5):
            pass
    stop_in_order(query, gate, lambda number: pytest.fail(f"batch {number} is not in the checkpoint"))
    assert query.stopped.is_set()


def test_a_batch_that_failed_is_not_counted():
    gate = StopGate()
    with pytest.raises(KeyError), gate.batch(7):
        raise KeyError
    assert gate.last_batch == -1
    gate.wait_idle()


def test_a_planner_that_did_not_start_in_time_is_no_fault_of_the_query():
    assert started_too_slowly("[STREAM_FAILED] …: Python worker failed to connect back. SQLSTATE: XXKST")
    assert not started_too_slowly("[STREAM_FAILED] …: topic 't' was deleted")
