"""Two clocks and the guard between them (R-13)."""

from __future__ import annotations

import pytest

from sluice.log_store.clock import ManualClock, SystemClock, WallGuard

HOUR = 3600.0


def test_the_manual_clock_moves_when_told() -> None:
    clock = ManualClock(1_000, 5.0)
    clock.advance(1.5)
    assert (clock.wall_ms(), clock.boottime()) == (2_500, 6.5)
    clock.jump(-2)
    assert (clock.wall_ms(), clock.boottime()) == (500, 6.5)


def test_the_system_clock() -> None:
    """R-13: boottime counts on, whatever wall time does."""
    clock = SystemClock()
    first = clock.boottime()
    assert clock.boottime() >= first > 0
    assert clock.wall_ms() > 1_600_000_000_000


@pytest.mark.parametrize("seconds", [HOUR, -HOUR, 301, -301])
def test_a_jump_pauses_until_confirmed(seconds: float) -> None:
    """R-13: and stays paused when the clock comes back."""
    clock = ManualClock()
    guard = WallGuard(clock)
    clock.advance(10 * HOUR)
    assert guard.trusted()
    clock.jump(seconds)
    assert not guard.trusted()
    clock.jump(-seconds)
    assert not guard.trusted()
    guard.confirm()
    assert guard.trusted()


def test_small_steps_are_ntp_at_work() -> None:
    """R-13: up to 5 min in all, however it is made up."""
    clock = ManualClock()
    guard = WallGuard(clock)
    for _ in range(5):
        clock.jump(60)
        assert guard.trusted()
    clock.jump(1)
    assert not guard.trusted()


def test_a_restart_trusts_the_present_time() -> None:
    """R-13."""
    clock = ManualClock()
    guard = WallGuard(clock)
    clock.jump(HOUR)
    assert not guard.trusted()
    assert WallGuard(clock).trusted()
