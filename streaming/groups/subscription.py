"""What members of a consumer group say and are told, as JSON.

A subscription (metadata of a protocol of type `consumer`)::

    {"topics": ["orders"], "owned_partitions": [["orders", 0]], "generation": 4, "user_data": "…"}

and an assignment::

    {"partitions": [["orders", 0]], "user_data": "…"}

`topics` and `partitions` are required, the rest may be missing. Unknown fields are left to newer clients.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition

CONSUMER = "consumer"
"""The protocol type whose metadata is a `Subscription`."""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """In which the member owned them: an older claim gives way to a newer one."""
    user_data: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    partitions: tuple[TopicPartition, ...] = ()
    user_data: str | None = None


def decode_subscription(data: bytes) -> Subscription:
    body = _object(data, "subscription")
    topics = body.get("topics")
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise _wrong("subscription", "topics", "a list of names")
    generation = body.get("generation", NO_GENERATION)
    if type(generation) is not int or generation < NO_GENERATION:
        raise _wrong("subscription", "generation", "a number, -1 for none")
    owned = _partitions(body.get("owned_partitions", []), "subscription", "owned_partitions")
    return Subscription(tuple(topics), owned, generation, _user_data(body, "subscription"))


def encode_subscription(subscription: Subscription) -> bytes:
    body: dict[str, Any] = {"topics": list(subscription.topics)}
    if subscription.owned_partitions:
        body["owned_partitions"] = _rows(subscription.owned_partitions)
    if subscription.generation != NO_GENERATION:
        body["generation"] = subscription.generation
    return _encoded(body, subscription.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """No bytes at all is what a member gets that its leader forgot: it owns nothing."""
    if not data:
        return Assignment()
    body = _object(data, "assignment")
    return Assignment(_partitions(body.get("partitions"), "assignment", "partitions"), _user_data(body, "assignment"))


def encode_assignment(assignment: Assignment) -> bytes:
    return _encoded({"partitions": _rows(assignment.partitions)}, assignment.user_data)


def _encoded(body: dict[str, Any], user_data: str | None) -> bytes:
    if user_data is not None:
        body["user_data"] = user_data
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _rows(partitions: tuple[TopicPartition, ...]) -> list[list[Any]]:
    return [[p.topic, p.partition] for p in partitions]


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"the {what} is not JSON") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"the {what} is not an object")
    return body


def _partitions(rows: object, what: str, field: str) -> tuple[TopicPartition, ...]:
    if not isinstance(rows, list) or not all(_is_partition(row) for row in rows):
        raise _wrong(what, field, "a list of [topic, partition]")
    return tuple(TopicPartition(topic, partition) for topic, partition in rows)


def _is_partition(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and type(row[1]) is int and row[1] >= 0


def _user_data(body: dict[str, Any], what: str) -> str | None:
    value = body.get("user_data")
    if value is not None and not isinstance(value, str):
        raise _wrong(what, "user_data", "text")
    return value


def _wrong(what: str, field: str, rule: str) -> InvalidRequest:
    return InvalidRequest(f"{field} of the {what} must be {rule}", field=field)
