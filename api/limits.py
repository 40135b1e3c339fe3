"""Request bodies and query parameters: sizes are checked before anything is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from io import BytesIO
from time import perf_counter
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from sluice.api.errors import BodyTimedOut
from sluice.api.quotas import admit_produce, count_produced
from sluice.api.service import Service
from sluice.api.waiting import spread
from sluice.log_store.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    MessageTooLarge,
    Overloaded,
    RecordListTooLarge,
)

LONG_MAX = 2**63 - 1
FREE_S, PAUSE_FACTOR, MOST_PAUSE_S = 0.02, 10, 1.0
IN_THE_BODY = (InvalidRequest, InvalidRecord, InvalidTimestamp, RecordListTooLarge, MessageTooLarge)
"""What can be wrong with a body: it has to be unpacked and parsed to see it."""
ALL_REFUSED = "sluice.all_refused"
"""Set in the scope of a request that is answered, and whose answer is that all its records are wrong."""
_BODY_CAME = "sluice.body_came"


async def patiently(
    request: Request, service: Service, work: Awaitable[Response], now: Callable[[], float] = perf_counter
) -> Response:
    """Await it. A request that turns out to be wrong after much was done for it is refused later still, so that who
    sends one after the other takes a small part of the time of all. What is refused soon is told at once."""
    response = refused = None
    try:
        response = await work
    except IN_THE_BODY as error:
        refused = error.with_traceback(None)  # whose frames would keep the body while we wait
        refused.__context__ = None
    begun = request.scope.get(_BODY_CAME)
    if begun is not None and (refused is not None or request.scope.get(ALL_REFUSED)):
        took = now() - begun
        if took > FREE_S:
            await service.waiting.pause(min(PAUSE_FACTOR * took, MOST_PAUSE_S))
    if refused is not None:
        raise refused
    return cast("Response", response)


def note_refusals(request: Request, found: Iterable[object]) -> None:
    """Of each record: what it was answered."""
    request.scope[ALL_REFUSED] = all(isinstance(one, IN_THE_BODY) for one in found)


@asynccontextmanager
async def received(request: Request, service: Service) -> AsyncIterator[bytes]:
    """The body of a produce request as it was sent, counted against its quotas, and against the memory of all requests
    until the block ends. Who is over a quota is refused before anything is read."""
    admit_produce(request, service)
    taken = 0
    try:
        most = service.settings.request_max_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdecimal():
            _refuse_larger(int(declared), most)
            taken = _take(service, int(declared))
        got, body, more = 0, b"", None
        try:
            async with asyncio.timeout(spread(service.settings.request_timeout_ms / 1000)):
                async for piece in request.stream():
                    got += len(piece)
                    _refuse_larger(got, most)
                    if got > taken:
                        taken += _take(service, got - taken)
                    if not body:
                        body = piece  # and that is all of it for most bodies
                    elif piece:
                        if more is None:
                            more = _room_for(taken)
                            more.write(body)
                        more.write(piece)
        except TimeoutError:
            raise BodyTimedOut("body: did not arrive in time", field="body") from None
        request.scope["sluice.bytes_in"] = got
        count_produced(request, service, got)
        if more is not None:
            more.truncate()
            body = more.getvalue()  # not a copy: joining pieces would need the memory twice
            more.close()
        request.scope[_BODY_CAME] = perf_counter()
        yield body
    finally:
        service.bodies_bytes -= taken


async def streamed(request: Request, service: Service) -> AsyncIterator[bytes]:
    """Pieces of a body that may never end. Each must come in time; over a quota the next one is not read until the
    time is up, so that its sender feels it."""
    pieces = request.stream()
    while True:
        try:
            async with service.waiting.timeout(service.settings.stream_timeout_ms / 1000):
                piece = await anext(pieces, None)
        except TimeoutError:
            if service.waiting.stopping:
                return
            raise BodyTimedOut("body: nothing arrived for too long", field="body") from None
        if piece is None:
            return
        request.scope["sluice.bytes_in"] = request.scope.get("sluice.bytes_in", 0) + len(piece)
        wait_ms = count_produced(request, service, len(piece))
        yield piece
        await service.waiting.pause(wait_ms / 1000)


def _room_for(size: int) -> BytesIO:
    """Grown once: a buffer that grows with every piece moves what it has again and again."""
    room = BytesIO()
    room.seek(max(size - 1, 0))
    room.write(b"\0")
    room.seek(0)
    return room


def _refuse_larger(size: int, most: int) -> None:
    if size > most:
        raise RecordListTooLarge(f"body: must not be larger than {most} bytes", field="body", limit=most)


def _take(service: Service, size: int) -> int:
    if service.bodies_bytes and service.bodies_bytes + size > service.settings.request_memory_max_bytes:
        raise Overloaded("the requests at work need too much memory already", retry_after_s=1)
    service.bodies_bytes += size
    return size


PART_BYTES = 16 << 10
"""Memory of what a request puts into one partition beside its records, about: a batch, who waits for it, its answer."""
FEW_PARTS = 16
"""Not worth counting."""


@contextmanager
def room_for_parts(service: Service, count: int) -> Iterator[None]:
    """A small body may become a thousand batches, which need far more memory than it did."""
    # Never so much that a request would be refused for good, whatever else is at work.
    most = service.settings.request_memory_max_bytes // 4
    taken = _take(service, min(count * PART_BYTES, most)) if count > FEW_PARTS else 0
    try:
        yield
    finally:
        service.bodies_bytes -= taken


def whole_number(
    values: Mapping[str, str], name: str, default: int | None = None, *, low: int = 0, high: int = LONG_MAX
) -> int | None:
    """A parameter or header that is a whole number; `default` where there is none."""
    text = values.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19 and low <= int(text) <= high):
        raise InvalidRequest(f"{name}: must be a whole number from {low} to {high}", field=name)
    return int(text)
