"""Timers: in order, at their time, none of them able to stop the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from sluice.log_store.clock import ManualClock, SystemClock
from sluice.log_store.scheduler import Scheduler
from tests.support.logs import WAIT_S, eventually, wake


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Iterator[Scheduler]:
    made = Scheduler(clock)
    yield made
    made.close()


def test_in_the_order_of_their_times(scheduler: Scheduler, clock: ManualClock) -> None:
    done: list[str] = []
    scheduler.after(30, lambda: done.append("late"))
    scheduler.after(10, lambda: done.append("early"))
    scheduler.after(10, lambda: done.append("early too"))
    scheduler.after(0, lambda: done.append("now"))
    eventually(lambda: done == ["now"])
    clock.advance(10)
    wake(scheduler)
    eventually(lambda: done == ["now", "early", "early too"])
    clock.advance(20)
    wake(scheduler)
    eventually(lambda: done[-1] == "late")


def test_a_failing_callback_stops_nothing(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        scheduler.after(0, fail)
        scheduler.after(0, done.set)
        assert done.wait(WAIT_S)
    assert "a scheduled action failed" in caplog.text


def test_real_time() -> None:
    scheduler = Scheduler(SystemClock())
    done = threading.Event()
    scheduler.after(0.01, done.set)
    assert done.wait(WAIT_S)
    scheduler.close()


def test_after_closing_nothing_runs(clock: ManualClock) -> None:
    scheduler = Scheduler(clock)
    done: list[int] = []
    scheduler.after(1, lambda: done.append(1))
    scheduler.close()
    clock.advance(5)
    scheduler.after(0, lambda: done.append(2))
    assert done == []
    assert not scheduler._thread.is_alive()
