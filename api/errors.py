"""What a client is told when something goes wrong: one table from error class to HTTP status, one body for all.

| status | codes | when |
|---|---|---|
| 400 | 400, 40002 | the request, a name or a config is wrong |
| 401 | 40101 | no access token, or one that is not valid |
| 403 | 40301 | the token does not grant it |
| 404 | 404, 40401, 40402, 40403 | no such route or cluster; topic (v2); partition (v2); topic or partition (v3) |
| 404 | 40403, 40405 | no such member; no such group |
| 405, 406, 413, 415 | the same | method, Accept, size, media type |
| 414, 431 | the same | URL too long, headers too large or too many: `http_protocol.py` |
| 408 | 408 | the body did not arrive in time |
| 409 | 409 | sequence, epoch, plan, generation or state of the group does not fit what is there |
| 416 | 416 | offset outside the log; `details` carries `log_start` and `log_end` |
| 422 | 42206 | a record breaks a rule of its topic |
| 429 | 42901 | a bounded buffer is full, or a quota is used up; Retry-After |
| 500 | 500, 50002 | unexpected; what is stored is not what was written |
| 503 | 503, 50302 | storage fails; another process leads, `details.leader` says where; Retry-After |
| 504 | 504 | the acknowledgement did not come in time: the data may still be committed, repeat idempotently |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from sluice.log_store import errors

_log = logging.getLogger(__name__)
JSON = "application/json"
_MESSAGE_CHARS = 1_000


class HttpError(errors.ClientError):
    """A refusal that only HTTP knows."""

    error, code = "INVALID_REQUEST", 42
    status: ClassVar[int] = 400
    error_code: ClassVar[int | None] = None
    """In the body; None: the status."""


class NotFound(HttpError):
    status = 404


class NotAcceptable(HttpError):
    status = 406


class BodyTimedOut(HttpError):
    """The body did not arrive in time. Nothing of it was taken, so it may be sent again."""

    error, code, retriable = "REQUEST_TIMED_OUT", 7, True
    status = 408


class UnsupportedMediaType(HttpError):
    status = 415


STATUS: Mapping[type[errors.SluiceError], tuple[int, int]] = {
    errors.InvalidRequest: (400, 400),
    errors.InvalidTopic: (400, 40002),
    errors.TopicAlreadyExists: (400, 40002),
    errors.InvalidPartitions: (400, 40002),
    errors.InvalidReplicationFactor: (400, 40002),
    errors.InvalidConfig: (400, 40002),
    errors.InvalidRequiredAcks: (400, 40002),
    errors.PolicyViolation: (400, 40002),
    errors.InvalidRecord: (422, 42206),
    errors.InvalidTimestamp: (422, 42206),
    errors.MessageTooLarge: (413, 413),
    errors.RecordListTooLarge: (413, 413),
    errors.UnknownTopicOrPartition: (404, 40403),
    errors.UnknownTopicId: (404, 40403),
    errors.AuthenticationFailed: (401, 40101),
    errors.AuthorizationFailed: (403, 40301),
    errors.ResourceNotFound: (404, 404),
    errors.OffsetOutOfRange: (416, 416),
    errors.OutOfOrderSequence: (409, 409),
    errors.InvalidProducerEpoch: (409, 409),
    errors.ProducerFenced: (409, 409),
    errors.PlanRefused: (409, 409),
    errors.InvalidGroupId: (400, 40002),
    errors.InvalidSessionTimeout: (400, 40002),
    errors.OffsetMetadataTooLarge: (400, 40002),
    errors.UnknownMemberId: (404, 40403),
    errors.GroupIdNotFound: (404, 40405),
    errors.InconsistentGroupProtocol: (409, 409),
    errors.IllegalGeneration: (409, 409),
    errors.RebalanceInProgress: (409, 409),
    errors.MemberIdRequired: (409, 409),
    errors.FencedInstanceId: (409, 409),
    errors.GroupMaxSizeReached: (409, 409),
    errors.NonEmptyGroup: (409, 409),
    errors.GroupSubscribedToTopic: (409, 409),
    errors.ClientError: (400, 400),
    errors.CoordinatorNotAvailable: (503, 50302),
    errors.CoordinatorLoadInProgress: (503, 50302),
    errors.NotCoordinator: (503, 50302),
    errors.NotLeader: (503, 50302),
    errors.RequestTimedOut: (504, 504),
    errors.Overloaded: (429, 42901),
    errors.WalFull: (503, 503),
    errors.StorageError: (503, 503),
    errors.IntegrityError: (500, 50002),
    errors.SluiceError: (500, 50002),
}
"""Looked up along the class's bases, nearest first."""

_DETAILS = ("field", "record_errors", "log_start", "log_end", "leader", "gone", "limit", "rule", "member_id")
"""Facts of an error that are a client's business."""


_FIELDS: Mapping[type[errors.SluiceError], str] = {
    errors.InvalidTopic: "topic_name",
    errors.TopicAlreadyExists: "topic_name",
    errors.InvalidPartitions: "partitions_count",
    errors.InvalidReplicationFactor: "replication_factor",
}
"""The field that is wrong, where the kind of error says it: the log knows no fields of requests."""


class ErrorBody(msgspec.Struct, omit_defaults=True):
    error_code: int
    message: str
    error: str
    retriable: bool
    details: dict[str, Any] | None = None


def status_of(error: errors.SluiceError, *, v2: bool = False) -> tuple[int, int]:
    """(HTTP status, error_code). v2 tells a missing topic from a missing partition."""
    if isinstance(error, HttpError):
        return error.status, error.error_code or error.status
    if v2 and isinstance(error, errors.UnknownTopicOrPartition):
        return 404, 40402 if {"partition", "index"} & error.fields.keys() else 40401
    return next(STATUS[base] for base in type(error).__mro__ if base in STATUS)


def body_of(error: errors.SluiceError, *, v2: bool = False) -> ErrorBody:
    details = {name: error.fields[name] for name in _DETAILS if error.fields.get(name) is not None}
    field = _FIELDS.get(type(error)) or (error.fields.get("name") if isinstance(error, errors.InvalidConfig) else None)
    if field is not None:
        details.setdefault("field", clean(str(field))[:100])
    return ErrorBody(
        status_of(error, v2=v2)[1], _short(clean(error.message)), error.error, error.retriable, details or None
    )


def clean(text: str) -> str:
    """Half a surrogate pair that a client sent must not spoil the answer that quotes it."""
    return text.encode("utf-8", "replace").decode()


def _short(text: str) -> str:
    """What a client sent is quoted to it, but not all of it; the rule stands at the end."""
    return text if len(text) <= _MESSAGE_CHARS else f"{text[: _MESSAGE_CHARS // 2]} ... {text[-_MESSAGE_CHARS // 2 :]}"


def headers_of(error: errors.SluiceError) -> dict[str, str]:
    status = status_of(error)[0]
    headers = {"Retry-After": str(error.fields.get("retry_after_s", 1))} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    leader = str(error.fields.get("leader") or "")
    if isinstance(error, errors.NotLeader) and leader.isascii() and leader.isprintable() and leader:
        headers["Sluice-Leader"] = leader
    return headers


def error_response(error: errors.SluiceError, *, v2: bool = False) -> Response:
    content = msgspec.json.encode(body_of(error, v2=v2))
    return Response(content, status_of(error, v2=v2)[0], headers_of(error), JSON)


def plain_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error that is no SluiceError: of routing, or unexpected."""
    ours = status < 500
    name, again = "INVALID_REQUEST" if ours else "UNKNOWN_SERVER_ERROR", status in (408, 429, 503)
    content = msgspec.json.encode(ErrorBody(status, clean(message), name, again))
    more = {"Retry-After": "1"} if status in (429, 503) else {}
    return Response(content, status, {**(headers or {}), **more}, JSON)


def is_v2(path: str) -> bool:
    return not path.startswith("/v3/")


def install(app: FastAPI) -> None:
    app.add_exception_handler(errors.SluiceError, _on_sluice_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(Exception, _on_bug)


async def _on_bug(request: Request, _error: Exception) -> Response:
    return bug_response(request.scope)


def bug_response(scope: Scope) -> Response:
    """Starlette raises the exception again when it has answered: who logs it must know that."""
    scope["sluice.error"] = "UNKNOWN_SERVER_ERROR"
    return plain_response(500, f"unexpected error; the service's log says more, request {scope['sluice.request_id']}")


async def _on_sluice_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.SluiceError)  # noqa: S101 - registered for this class
    return refusal(request, error)


def refusal(request: Request, error: errors.SluiceError) -> Response:
    """The answer to a request that one of our errors ended."""
    request.scope["sluice.error"] = error.error
    if status_of(error)[0] == 500:
        fields = {"request_id": request.scope.get("sluice.request_id")}
        path = request.url.path[:200]
        _log.error("%s %s: %s", request.method, path, error.message, exc_info=error, extra={"fields": fields})
    return error_response(error, v2=is_v2(request.url.path))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    if error.status_code == 400:  # FastAPI's, for a body that it cannot parse at all
        return error_response(errors.InvalidRequest("body: must be JSON, in UTF-8 and not nested deeply", field="body"))
    messages = {
        404: f"there is nothing at {request.url.path[:200]}",
        405: f"{request.method} is not allowed at {request.url.path[:200]}",
    }
    return plain_response(error.status_code, messages.get(error.status_code, str(error.detail)), error.headers)


async def _on_invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    first = error.errors()[0]
    if first["type"] == "json_invalid":  # its place is a position in the text, not a field
        why, at = first.get("ctx", {}).get("error", first["msg"]), first["loc"][-1]
        return error_response(errors.InvalidRequest(f"body: is no JSON at position {at}: {why}"[:300], field="body"))
    place = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path")) or "body"
    refusal = errors.InvalidRequest(f"{place}: {first['msg']}"[:300], field=clean(place)[:100])
    return error_response(refusal)
