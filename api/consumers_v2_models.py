"""Bodies and refusals of the v2 consumer calls, as Confluent's REST proxy has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from sluice.api.errors import HttpError
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.values import TopicPartition

Flag = bool | Literal["true", "false"]
Whole = int | str


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class NewConsumer(_Body):
    """Values may be texts, as Confluent's examples have them."""

    name: str | None = None
    format: str = "binary"
    auto_offset_reset: str = msgspec.field(default="latest", name="auto.offset.reset")
    auto_commit_enable: Flag = msgspec.field(default=True, name="auto.commit.enable")
    fetch_min_bytes: Whole = msgspec.field(default=1, name="fetch.min.bytes")
    request_timeout_ms: Whole = msgspec.field(default=1_000, name="consumer.request.timeout.ms")


class NewSubscription(_Body):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class Place(_Body):
    topic: str
    partition: int

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Places(_Body):
    partitions: list[Place]


class PlaceOffset(Place):
    offset: int
    metadata: str | None = None


class PlaceTime(Place):
    timestamp: int | str
    metadata: str | None = None


class Offsets(_Body):
    offsets: list[PlaceOffset]


class Seeks(_Body):
    offsets: list[PlaceOffset] = []
    timestamps: list[PlaceTime] = []


def shown(where: TopicPartition, **more: Any) -> dict[str, Any]:
    return {"topic": where.topic, "partition": where.partition, **more}


# --- refusals ------------------------------------------------------------------------------------


class UnknownInstance(HttpError):
    """Never made, deleted, or left alone for too long."""

    status, error_code = 404, 40403


class NameTaken(HttpError):
    status, error_code = 409, 40902


class WrongState(HttpError):
    """Subscribing and assigning exclude each other."""

    status, error_code = 409, 40903


class WrongFormat(HttpError):
    """The instance was made for another embedded format than Accept asks for."""

    status, error_code = 406, 40601


class InvalidConsumerConfig(HttpError):
    status, error_code = 422, 42204


def whole(value: Whole, name: str, low: int, high: int) -> int:
    try:
        number = int(value)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise InvalidConsumerConfig(f"{name}: must be a whole number from {low} to {high}", field=name)
    return number


def milliseconds(value: Whole) -> int:
    """Milliseconds since 1970, or RFC 3339."""
    if isinstance(value, int):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidRequest("timestamp: must be milliseconds or an RFC 3339 date", field="timestamp") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def truth(value: Flag) -> bool:
    return value in (True, "true")


def as_config_error(error: InvalidRequest) -> InvalidConsumerConfig:
    return InvalidConsumerConfig(error.message, **error.fields)
