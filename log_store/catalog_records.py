"""Records of `__cluster_metadata`: JSON text in key and value, so that a person can read them with Spark SQL.

A key names a thing (`{"type": …, …}`), a value is all that is known about it: the newest value of each key is the
whole state, which is what makes the topic compactable.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from sluice.log_store.errors import CorruptData, UnsupportedFormat

T_co = TypeVar("T_co", covariant=True)

Record: TypeAlias = tuple[bytes, bytes | None]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Change(Generic[T_co]):
    """What a command decided: the records that make it true, and what will then be so.

    Nothing has changed yet. The caller appends `records`, waits until they are committed, applies them, and only then
    answers `result`. No records: it is so already. One command at a time: two planned on the same state may
    contradict each other.
    """

    records: tuple[Record, ...]
    result: T_co


def record(key: dict[str, Any], value: dict[str, Any]) -> Record:
    return encode(key), encode({"format": FORMAT, **value})


def encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def decode_key(key: bytes) -> dict[str, Any]:
    body = _object(key, "key")
    if not isinstance(body.get("type"), str):
        raise CorruptData(f"a metadata key names no type: {key!r}")
    return body


def decode_value(value: bytes) -> dict[str, Any]:
    body = _object(value, "value")
    written = body.get("format")
    if not isinstance(written, int):
        raise CorruptData(f"a metadata value names no format: {value!r}")
    if written > FORMAT:
        raise UnsupportedFormat(
            f"a metadata record has format {written}, this version knows {FORMAT}: it needs a newer Sluice",
            format=written,
        )
    return body


def record_type(key: bytes) -> str:
    """What a record is about: several states may share the topic, each applies its own types."""
    return str(decode_key(key)["type"])


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as e:
        raise CorruptData(f"a metadata {what} is not JSON: {data!r}") from e
    if not isinstance(body, dict):
        raise CorruptData(f"a metadata {what} is not an object: {data!r}")
    return body
