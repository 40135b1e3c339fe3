"""What was refused only after much work for it is answered later; the rest at once."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from sluice.api.limits import _BODY_CAME, ALL_REFUSED, FREE_S, MOST_PAUSE_S, PAUSE_FACTOR, patiently
from sluice.api.service import Service
from sluice.api.waiting import Waiting, spread
from sluice.log_store.errors import (
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    OutOfOrderSequence,
    RecordListTooLarge,
    RequestTimedOut,
    SluiceError,
)

WORK_S = 0.03


class Patience(Waiting):
    """Says for how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        super().__init__(10)
        self.asked: list[float] = []

    body: weakref.ref[Body]

    async def pause(self, seconds: float) -> None:
        assert self.body() is None, "what is refused must not keep its body while it waits"
        self.asked.append(seconds)


class Body:
    """Stands for what a request keeps in memory."""


def asked(error: SluiceError | None, work_s: float, *, came: bool = True, all_refused: bool = False) -> list[float]:
    """How long a request whose body takes so long was made to pause; None as error if it is answered."""
    waiting, clock = Patience(), [100.0]
    request = cast("Request", SimpleNamespace(scope={ALL_REFUSED: all_refused}))

    async def work() -> Response:
        body = Body()
        waiting.body = weakref.ref(body)
        if came:
            request.scope[_BODY_CAME] = clock[0]
        clock[0] += work_s
        if error is None:
            return Response()
        try:
            raise ValueError(body)
        except ValueError:
            raise error  # noqa: B904 - it has a context, as errors of decoders do

    with pytest.raises(type(error)) if error else nullcontext():
        service = cast("Service", SimpleNamespace(waiting=waiting))
        asyncio.run(patiently(request, service, work(), lambda: clock[0]))
    return waiting.asked


@pytest.mark.parametrize("kind", [RecordListTooLarge, MessageTooLarge, InvalidRequest, InvalidRecord])
def test_a_refusal_that_cost_much_is_paid_for_with_time(kind: Callable[[str], SluiceError]) -> None:
    assert asked(kind("x"), WORK_S) == [pytest.approx(PAUSE_FACTOR * WORK_S)]


def test_an_answer_that_refuses_every_record_costs_the_same() -> None:
    assert asked(None, WORK_S, all_refused=True) == [pytest.approx(PAUSE_FACTOR * WORK_S)]
    assert asked(None, WORK_S) == []


def test_it_never_takes_longer_than_a_second() -> None:
    assert asked(MessageTooLarge("x"), 2 * MOST_PAUSE_S / PAUSE_FACTOR) == [MOST_PAUSE_S]


def test_what_is_known_soon_or_is_not_in_the_body_is_told_at_once() -> None:
    assert asked(RecordListTooLarge("x"), FREE_S) == []
    assert asked(RecordListTooLarge("x"), WORK_S, came=False) == []
    assert asked(OutOfOrderSequence("x"), WORK_S) == []
    assert asked(RequestTimedOut("x"), WORK_S) == []


def test_a_service_that_stops_waits_for_nobody() -> None:
    async def pause() -> None:
        waiting = Waiting(10)
        waiting.stopping = True
        async with asyncio.timeout(20):
            await waiting.pause(1000.0)

    asyncio.run(pause())


def test_those_who_came_together_do_not_end_together() -> None:
    ends = sorted(spread(8.0) for _ in range(1_000))
    assert ends[0] >= 8.0
    assert ends[-1] <= 9.0
    assert ends[-1] - ends[0] > 0.5
