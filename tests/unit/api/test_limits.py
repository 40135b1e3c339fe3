"""What was refused only after much work for it is answered later; the rest at once."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from sluice.api.limits import _BODY_CAME, MOST_PAUSE_S, PAUSE_FACTOR, patiently
from sluice.api.service import Service
from sluice.api.waiting import Waiting, spread
from sluice.log_store.errors import InvalidRequest, MessageTooLarge, RecordListTooLarge, SluiceError

WORK_S = 0.02


class Patience(Waiting):
    """Real waiting that also says for how long it was asked to."""

    def __init__(self) -> None:
        super().__init__(10)
        self.asked: list[float] = []

    body: weakref.ref[Body]

    async def pause(self, seconds: float) -> None:
        assert self.body() is None, "what is refused must not keep its body while it waits"
        self.asked.append(seconds)
        await super().pause(seconds)


class Body:
    """Stands for what a request keeps in memory."""


def refused(
    error: SluiceError, work_s: float, waiting: Waiting | None = None, *, came: bool = True
) -> tuple[list[float], float]:
    """(how long it was asked to pause, how long all of it took)"""
    waiting = waiting or Patience()
    request = cast("Request", SimpleNamespace(scope={}))

    async def work() -> Response:
        body = Body()
        waiting.body = weakref.ref(body)  # type: ignore[attr-defined]
        if came:
            request.scope[_BODY_CAME] = perf_counter()
        await asyncio.sleep(work_s)
        try:
            raise ValueError(body)
        except ValueError:
            raise error  # noqa: B904 - it has a context, as errors of decoders do

    begun = time.monotonic()
    with pytest.raises(type(error)):
        asyncio.run(patiently(request, cast("Service", SimpleNamespace(waiting=waiting)), work()))  # type: ignore[arg-type]
    return (waiting.asked if isinstance(waiting, Patience) else []), time.monotonic() - begun


@pytest.mark.parametrize("kind", [RecordListTooLarge, MessageTooLarge])
def test_a_refusal_that_cost_much_is_paid_for_with_time(kind: Callable[[str], SluiceError]) -> None:
    asked, took = refused(kind("x"), WORK_S)
    assert len(asked) == 1
    assert PAUSE_FACTOR * WORK_S * 0.9 < asked[0] <= MOST_PAUSE_S  # a timer may ring a moment early
    assert took > WORK_S + asked[0] * 0.9


def test_it_never_takes_longer_than_a_second() -> None:
    assert refused(MessageTooLarge("x"), 2 * MOST_PAUSE_S / PAUSE_FACTOR)[0] == [MOST_PAUSE_S]


def test_other_refusals_and_what_is_known_at_once_are_told_at_once() -> None:
    assert refused(InvalidRequest("x"), WORK_S)[0] == []
    assert refused(RecordListTooLarge("x"), 0)[0][0] < 0.1
    assert refused(RecordListTooLarge("x"), WORK_S, came=False)[0] == []


def test_a_service_that_stops_waits_for_nobody() -> None:
    waiting = Waiting(10)
    waiting.stopping = True
    assert refused(MessageTooLarge("x"), 0.5, waiting)[1] < 0.5 + MOST_PAUSE_S


def test_those_who_came_together_do_not_end_together() -> None:
    ends = sorted(spread(8.0) for _ in range(1_000))
    assert ends[0] >= 8.0
    assert ends[-1] <= 9.0
    assert ends[-1] - ends[0] > 0.5
