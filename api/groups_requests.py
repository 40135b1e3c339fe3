"""What the calls about groups have in common: bodies, loading, and answers that come later without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sluice.api.errors import JSON, BodyTimedOut, UnsupportedMediaType
from sluice.api.routing import ADMIN_MAX_BYTES
from sluice.api.service import Service, service_of
from sluice.log_store.errors import InvalidRequest, Overloaded, RecordListTooLarge, RequestTimedOut, SluiceError
from sluice.streaming.coordinator import Waiter
from sluice.streaming.groups import Refusal
from sluice.streaming.groups import Response as Answer

_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


def json_response(body: object, status: int = 200) -> Response:
    return Response(_encode(body), status, media_type=JSON)


# --- the request ---------------------------------------------------------------------------------


def group_of(request: Request) -> tuple[Service, str]:
    service = service_of(request)
    service.check_cluster(request.path_params["c"])
    return service, request.path_params["g"]


async def body_of(request: Request, service: Service, decoder: msgspec.json.Decoder[_T]) -> _T:
    media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if media != JSON and not media.endswith("+json"):
        raise UnsupportedMediaType(f"Content-Type: must be {JSON}", field="Content-Type")
    data = await _received(request, service)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"body: is not JSON: {error}"[:300], field="body") from None


def _invalid(error: msgspec.ValidationError) -> InvalidRequest:
    rule, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".") or "body"
    return InvalidRequest(f"{field}: {rule}"[:300], field=field[:100])


async def _received(request: Request, service: Service) -> bytes:
    most = min(ADMIN_MAX_BYTES, service.settings.request_max_bytes)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    got, pieces = 0, []
    try:
        async with asyncio.timeout(service.settings.request_timeout_ms / 1000):
            async for piece in request.stream():
                got += len(piece)
                if got > most:
                    raise _too_large(most)
                pieces.append(piece)
    except TimeoutError:
        raise BodyTimedOut("body: did not arrive in time", field="body") from None
    request.scope["sluice.bytes_in"] = got
    return b"".join(pieces)


def _too_large(most: int) -> SluiceError:
    return RecordListTooLarge(f"body: must not be larger than {most} bytes", field="body", limit=most)


# --- the group -----------------------------------------------------------------------------------


async def ready(service: Service, group_id: str, *, write: bool = False) -> None:
    """Until the group can be asked. Its part of the offsets topic is loaded once, in a thread."""
    while (opening := service.groups.opening(group_id, write=write)) is not None:
        await asyncio.shield(asyncio.wrap_future(opening))


async def all_ready(service: Service) -> None:
    for opening in service.groups.opening_all():
        await asyncio.shield(asyncio.wrap_future(opening))


# --- answers that come later ---------------------------------------------------------------------


class Later(Generic[_T]):
    """A future of the loop that any thread may settle."""

    def __init__(self, service: Service) -> None:
        loop = asyncio.get_running_loop()
        service.bell.attach(loop)
        self._bell = service.bell
        self.future: asyncio.Future[_T] = loop.create_future()

    def set(self, value: _T) -> None:
        self._bell.ring(partial(_settle, self.future, value))


def _settle(future: asyncio.Future[Any], value: object) -> None:
    if not future.done():
        future.set_result(value)


async def in_time(service: Service, later: Later[_T]) -> _T:
    """For a write, whose answer must not take longer than a produce request's."""
    try:
        async with asyncio.timeout(service.settings.request_timeout_ms / 1000):
            return await later.future
    except TimeoutError:
        raise RequestTimedOut("it could not be committed in time; whether it holds is not known") from None


async def answered(
    request: Request, service: Service, group_id: str, ask: Callable[[Waiter], None], *, in_thread: bool = False
) -> Answer:
    """Ask the group and wait, however long it takes. Whoever hangs up meanwhile has not asked."""
    if service.waiting.full:
        raise Overloaded("too many requests are waiting already", retry_after_s=1)
    later: Later[Answer] = Later(service)
    waiter = Waiter(later.set)
    if in_thread:
        await service.reading(lambda: ask(waiter))
    else:
        ask(waiter)
    service.waiting.entered()
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((later.future, gone), return_when=asyncio.FIRST_COMPLETED)
        if not later.future.done():
            raise ClientDisconnect
        return later.future.result()
    finally:
        gone.cancel()
        service.waiting.left()
        if not later.future.done():
            service.groups.client_gone(group_id, waiter)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def granted(answer: Answer | None) -> Answer | None:
    """What the group answered, unless it refused."""
    if isinstance(answer, Refusal):
        raise answer.exception()
    return answer
