"""The two measures of a quota against their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.api.quotas_rate import WINDOWS, Rate, Tokens

amounts = st.floats(0, 1e9)
gaps = st.floats(0, 5)
limits = st.floats(1, 1e7)
events = st.lists(st.tuples(gaps, amounts), max_size=40)


def by_definition(history: list[tuple[float, float]], now: float) -> tuple[float, float]:
    """(sum, length) of the windows: each begins with the first amount a second or more after the last began."""
    windows: list[list[float]] = []
    for at, amount in history:
        windows = [one for one in windows if at - one[0] < WINDOWS]
        if not windows or at - windows[-1][0] >= 1:
            windows.append([at, 0.0])
        windows[-1][1] += amount
    windows = [one for one in windows if now - one[0] < WINDOWS]
    if not windows:
        return 0.0, 10.0
    passed = now - windows[0][0]
    return sum(amount for _, amount in windows), passed + max(0, 10 - int(passed))


@given(events, gaps, limits)
def test_the_wait_is_kafkas_formula(steps: list[tuple[float, float]], last: float, limit: float) -> None:
    rate, now, history = Rate(), 100.0, []
    for gap, amount in steps:
        now += gap
        history.append((now, amount))
        rate.add(amount, limit, now)
    now += last
    total, length = by_definition(history, now)
    expected = max(0.0, (total / length - limit) / limit * length)
    assert rate.wait_s(limit, now) == pytest.approx(expected, rel=1e-6, abs=1e-3)


@given(st.floats(0, 1e9), limits)
def test_one_request_pays_for_all_beyond_ten_seconds_of_its_limit(amount: float, limit: float) -> None:
    rate = Rate()
    rate.add(amount, limit, 5.0)
    assert rate.wait_s(limit, 5.0) == pytest.approx(max(0.0, amount / limit - 10), rel=1e-6, abs=1e-6)


@given(events)
def test_everything_is_forgotten_after_eleven_seconds(steps: list[tuple[float, float]]) -> None:
    rate, now = Rate(), 0.0
    for gap, amount in steps:
        now += gap
        rate.add(amount, 1.0, now)
    assert rate.idle(1.0, now + WINDOWS + 0.01)
    assert rate.wait_s(0.001, now + WINDOWS + 0.01) == 0.0


@given(st.integers(1, 100), st.floats(1, 1000))
def test_who_keeps_to_the_limit_never_waits(seconds: int, limit: float) -> None:
    """As in Kafka eleven windows may lie within ten seconds, hence the tenth less."""
    rate = Rate()
    for second in range(seconds):
        rate.add(limit * 0.9, limit, float(second))
        assert rate.wait_s(limit, float(second)) == 0.0


# --- tokens ------------------------------------------------------------------------------------


@given(limits)
def test_a_burst_of_eleven_seconds_passes_and_one_more_waits_its_share(limit: float) -> None:
    tokens = Tokens()
    tokens.add(limit * WINDOWS, limit, 50.0)
    assert tokens.wait_s(limit, 50.0) == pytest.approx(0.0, abs=1e-6)
    tokens.add(limit, limit, 50.0)
    assert tokens.wait_s(limit, 50.0) == pytest.approx(1.0, rel=1e-6)
    assert tokens.wait_s(limit, 50.5) == pytest.approx(0.5, rel=1e-6)
    assert tokens.wait_s(limit, 51.01) == 0.0


@given(st.lists(st.tuples(gaps, st.floats(0, 1e4)), max_size=30), limits)
def test_tokens_never_exceed_the_bucket(steps: list[tuple[float, float]], limit: float) -> None:
    tokens, now, level = Tokens(), 0.0, limit * WINDOWS
    for gap, amount in steps:
        now += gap
        level = min(limit * WINDOWS, level + limit * gap) - amount
        tokens.add(amount, limit, now)
        assert tokens.wait_s(limit, now) == pytest.approx(max(0.0, -level / limit), rel=1e-5, abs=1e-5)
    assert tokens.idle(limit, now + 1e9)
