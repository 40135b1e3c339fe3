"""Which errors OpenAPI lists for an operation: one table for all routes, whoever documents the rest of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

Json = dict[str, Any]
SCHEMA = {"$ref": "#/components/schemas/ErrorModel"}
_PROBES = ("/healthz", "/readyz", "/metrics")
_WRITES = ("post", "put", "patch", "delete")


class Operation(NamedTuple):
    method: str
    path: str
    body: bool

    @property
    def produces(self) -> bool:
        return self.method == "post" and bool(re.search(r"^/topics/|/records(:batch)?$", self.path))

    @property
    def of_sinks(self) -> bool:
        return "/sinks/" in self.path and self.method in _WRITES

    @property
    def of_groups(self) -> bool:
        return "/consumer" in self.path


class Error(NamedTuple):
    description: str
    code: int
    message: str
    name: str
    retriable: bool
    applies: Callable[[Operation], bool]
    details: Json | None = None

    def response(self) -> Json:
        example = {
            "error_code": self.code,
            "message": self.message,
            "error": self.name,
            "retriable": self.retriable,
            "details": self.details,
        }
        return {
            "description": self.description,
            "content": {"application/json": {"schema": SCHEMA, "example": example}},
        }


def _guarded(operation: Operation) -> bool:
    return operation.path not in _PROBES or operation.path == "/metrics"


def _not_a_probe(operation: Operation) -> bool:
    return operation.path not in _PROBES


_BAD, _TIMED_OUT = "INVALID_REQUEST", "REQUEST_TIMED_OUT"
ERRORS: dict[int, Error] = {
    400: Error(
        "The request, a name or a config is wrong",
        400, "records: must be an array", _BAD, False, _not_a_probe, {"field": "records"},
    ),
    401: Error(
        "No access token, or one that is not valid",
        40101, "Authorization: must be a valid access token", "SASL_AUTHENTICATION_FAILED", False, _guarded,
    ),
    403: Error(
        "The token does not grant it",
        40301, "the token does not grant produce on topic orders", "TOPIC_AUTHORIZATION_FAILED", False, _guarded,
    ),
    404: Error(
        "There is no such cluster, topic, partition or other resource",
        40403, "topic orders does not exist", "UNKNOWN_TOPIC_OR_PARTITION", True, lambda op: "{" in op.path,
    ),
    406: Error(
        "Accept allows nothing that is served",
        406, "Accept: must allow application/json", _BAD, False, _not_a_probe, {"field": "Accept"},
    ),
    408: Error(
        "The body did not arrive in time", 408, "body: did not arrive in time", _TIMED_OUT, True, lambda op: op.body
    ),
    409: Error(
        "Sequence, epoch, plan, generation or state does not fit what is there",
        409, "the sequence must be 7, not 9", "OUT_OF_ORDER_SEQUENCE_NUMBER", False,
        lambda op: op.method in _WRITES and (op.produces or op.of_groups or op.path.endswith(("producers", "plans"))),
    ),
    413: Error(
        "The body, decompressed or as it was sent, is too large",
        413, "body: must not be larger than 33554432 bytes", "RECORD_LIST_TOO_LARGE", False, lambda op: op.body,
        {"field": "body"},
    ),
    415: Error(
        "Content-Type is not taken here",
        415, "Content-Type: must be application/json", _BAD, False, lambda op: op.body, {"field": "Content-Type"},
    ),
    416: Error(
        "The offset is outside the log",
        416, "offset 9 is outside the log", "OFFSET_OUT_OF_RANGE", False,
        lambda op: op.path.endswith(("}/records", ":delete", ":reset")) or op.of_groups, {"log_start": 0, "log_end": 7},
    ),
    422: Error(
        "A record breaks a rule of its topic, or cannot be shown in the format that was asked for",
        42206, "records[0].key: must not be null in a compacted topic", "INVALID_RECORD", False,
        lambda op: op.produces or op.of_groups or op.of_sinks or op.path.endswith(("}/records", ":search")),
        {"field": "records[0].key"},
    ),
    429: Error(
        "A bounded buffer is full, or a quota is used up; see Retry-After",
        42901, "too many requests are at work already", "THROTTLING_QUOTA_EXCEEDED", True, _not_a_probe,
    ),
    500: Error(
        "Unexpected, or what is stored is not what was written",
        500, "unexpected error; the service's log says more", "UNKNOWN_SERVER_ERROR", False, lambda _: True,
    ),
    503: Error(
        "Storage fails, or another process leads: details.leader says where; see Retry-After",
        50302, "another process leads", "NOT_LEADER_OR_FOLLOWER", True, lambda _: True,
        {"leader": "http://127.0.0.1:8081"},
    ),
    504: Error(
        "The acknowledgement did not come in time: the data may still be committed, repeat idempotently",
        504, "the acknowledgement did not come in time", _TIMED_OUT, True, lambda op: op.method in _WRITES,
    ),
}  # fmt: skip


def add_errors(schema: Json) -> None:
    """In the place of the ranges that routes declare. Errors that a route describes itself stay."""
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for given in ("4XX", "5XX"):
                responses.pop(given, None)
            asked = Operation(method, path, "requestBody" in operation)
            for status, error in ERRORS.items():
                if error.applies(asked):
                    responses.setdefault(str(status), error.response())
