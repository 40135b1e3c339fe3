"""What a client raises: the server's error bodies as exceptions, under the names that the log itself uses.

::

    SluiceError
    └── RequestFailed            status, error_code, retry_after_s; error and retriable as the server said
        ├── <name>               also a log_store.errors class where there is one of that Kafka name
        ├── ClientClosed         the request came too late to be sent
        ├── ConnectionFailed     no answer came; `sent` says whether the request may have arrived
        └── NoAnswerInTime       likewise, and a RequestTimedOut

So `except UnknownTopicOrPartition` and `except RequestFailed` both catch what a missing topic answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import httpx
import msgspec

from sluice.log_store import errors
from sluice.log_store.errors import RequestTimedOut, SluiceError, TransientError

TRY_LATER = frozenset({429, 503})


class RequestFailed(SluiceError):
    status: int = 0
    """Of HTTP; 0 when there was no answer."""
    error_code: int = 0
    retry_after_s: float | None = None
    sent: bool = True
    """Whether the server may have acted on the request."""

    @property
    def refused(self) -> bool:
        """Nothing was done: repeating is harmless, whatever the request was."""
        return not self.sent or (self.status in TRY_LATER and self.error != RequestTimedOut.error)

    @property
    def worth_repeating(self) -> bool:
        """Kafka also repeats for a topic that is not there yet; a person who mistyped a name would rather know."""
        return self.retriable and self.status != httpx.codes.NOT_FOUND


class ConnectionFailed(RequestFailed, TransientError):
    error, code = "NETWORK_EXCEPTION", 13


class ClientClosed(RequestFailed):
    """The client was closed, perhaps by another thread. Nothing was sent."""

    sent = False


class NoAnswerInTime(RequestFailed, RequestTimedOut):
    pass


class BufferFull(errors.Overloaded):
    """The producer's memory was full for longer than `max_block_ms`."""


class NoOffsetForPartition(SluiceError):
    """Nothing is committed for the partition, and `auto_offset_reset` is none: say where to begin with `seek`."""


class ConsumerClosed(SluiceError):
    """The consumer was closed, perhaps by another thread."""


class ProducerClosed(SluiceError):
    """The record was not sent, or its outcome is not known, because the producer was closed."""


def failure_of(response: httpx.Response) -> RequestFailed:
    """The exception for an answer of 400 and more. Not every proxy on the way speaks our error body."""
    body = _body_of(response)
    name, message = body.get("error"), body.get("message")
    text = str(message) if message else f"the server answered {response.status_code} {response.reason_phrase}".strip()
    retriable = body.get("retriable", response.status_code in TRY_LATER or response.status_code in (502, 504))
    made = failure(str(name) if name else _UNNAMED, text, retriable=bool(retriable))
    made.status = response.status_code
    if isinstance(details := body.get("details"), dict):
        made.fields.update(details)
    made.error_code = _whole(body.get("error_code"), response.status_code)
    exact = throttle_s(response)
    made.retry_after_s = exact if exact is not None else _retry_after(response.headers.get("Retry-After"))
    return made


def failure(name: str, message: str, *, retriable: bool | None = None) -> RequestFailed:
    return _class_of(name[:100], retriable)(message)


def failure_of_record(error_code: int, error: str | None) -> RequestFailed:
    """One record of a v2 answer. `error` is a Kafka name, or a text that begins with one."""
    name, _, rest = (error or _UNNAMED).partition(":")
    known = name in _by_name()
    made = failure(name if known else _UNNAMED, (rest.strip() or name) if known else str(error))
    made.error_code = error_code
    made.status = error_code // 100 if error_code >= 1000 else error_code
    return made


def network_failure(error: httpx.TransportError, url: str) -> RequestFailed:
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    made: RequestFailed
    if isinstance(error, httpx.TimeoutException) and not unsent:
        made = NoAnswerInTime(f"{url} did not answer in time")
    else:
        made = ConnectionFailed(f"cannot reach {url}: {str(error) or type(error).__name__}")
    made.sent = not unsent
    return made


_UNNAMED = SluiceError.error


@lru_cache(maxsize=256)
def _class_of(name: str, retriable: bool | None) -> type[RequestFailed]:
    known = _by_name().get(name)
    bases = (RequestFailed,) if known is None else (RequestFailed, known)
    attributes: dict[str, Any] = {"error": name, "code": -1 if known is None else known.code}
    if retriable is not None:
        attributes["retriable"] = retriable
    elif known is not None:
        attributes["retriable"] = known.retriable
    made: type[RequestFailed] = type("RequestFailed" if known is None else known.__name__, bases, attributes)
    return made


@lru_cache(maxsize=1)
def _by_name() -> Mapping[str, type[SluiceError]]:
    """The first class of each name; families without a name of their own are left out."""
    found: dict[str, type[SluiceError]] = {}
    for cls in _leaves(SluiceError):
        if cls.__module__ == errors.__name__ and "error" in vars(cls):
            found.setdefault(cls.error, cls)
    return found


def _leaves(cls: type[SluiceError]) -> Iterator[type[SluiceError]]:
    """Brothers before their children: of two with one name, the more general is found first."""
    yield from cls.__subclasses__()
    for sub in cls.__subclasses__():
        yield from _leaves(sub)


def _body_of(response: httpx.Response) -> dict[str, Any]:
    try:
        body = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return body if isinstance(body, dict) else {}


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def throttle_s(response: httpx.Response) -> float | None:
    """How long a quota asks us to wait: to the millisecond, where Retry-After has only seconds."""
    given = response.headers.get("Sluice-Throttle-Time-Ms", "")
    return int(given) / 1000 if given.isascii() and given.isdecimal() else None


def _retry_after(header: str | None) -> float | None:
    """Seconds; the form with a date is treated as none."""
    try:
        return None if header is None else max(0.0, float(header))
    except ValueError:
        return None
