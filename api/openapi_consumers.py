"""What OpenAPI says of the v2 consumer calls: FastAPI sees neither their bodies nor their answers."""

from __future__ import annotations

from typing import Any

import msgspec

from sluice.api import consumers_v2_models as models

Json = dict[str, Any]
V2 = "application/vnd.kafka.v2+json"

_PLACE = {"topic": "payments", "partition": 0}
_INTEGER = {"type": "integer"}
_TEXT = {"type": "string"}
_EXAMPLES: dict[type[msgspec.Struct], Json] = {
    models.NewConsumer: {"name": "reader", "format": "json", "auto.offset.reset": "earliest"},
    models.NewSubscription: {"topics": ["payments"]},
    models.Places: {"partitions": [_PLACE]},
    models.Offsets: {"offsets": [{**_PLACE, "offset": 41}]},
    models.Seeks: {"offsets": [{**_PLACE, "offset": 41}]},
}


def takes(model: type[msgspec.Struct], *, always: bool = True, **answer: Json) -> Json:
    """A body of this kind; and an answer, if there is one."""
    schema = msgspec.json.schema(model)
    content = {"schema": _inlined(schema["$defs"][model.__name__], schema), "example": _EXAMPLES[model]}
    body = {"required": always, "content": dict.fromkeys((V2, "application/json"), content)}
    return {"requestBody": body} | answer


def _inlined(part: Any, whole: Json) -> Any:
    if isinstance(part, dict):
        if "$ref" in part:
            return _inlined(whole["$defs"][part["$ref"].rpartition("/")[2]], whole)
        return {name: _inlined(value, whole) for name, value in part.items()}
    return [_inlined(one, whole) for one in part] if isinstance(part, list) else part


def answers(schema: Json, example: Any, *media: str) -> Json:
    content = {one: {"schema": schema, "example": example} for one in media or ("application/json",)}
    return {"responses": {"200": {"description": "Found", "content": content}}}


def _row(**members: Json) -> Json:
    properties = {"topic": _TEXT, "partition": _INTEGER, **members}
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(name: str, row: Json) -> Json:
    return {"type": "object", "required": [name], "properties": {name: {"type": "array", "items": row}}}


_COMMITTED = _row(offset=_INTEGER, metadata=_TEXT)
_COMMITTED_EXAMPLE = {**_PLACE, "offset": 42, "metadata": ""}
_RECORD = _row(
    key={},
    value={},
    offset=_INTEGER,
    timestamp=_INTEGER,
    headers={"type": "array", "items": {"type": "object"}},
)
_RECORD_EXAMPLE = {**_PLACE, "key": "c-7", "value": {"item": "lamp"}, "offset": 41, "timestamp": 1_750_000_000_000}

MADE = answers(
    {
        "type": "object",
        "required": ["instance_id", "base_uri"],
        "properties": {"instance_id": _TEXT, "base_uri": _TEXT},
    },
    {"instance_id": "reader", "base_uri": "http://127.0.0.1:8080/consumers/billing/instances/reader"},
)
SUBSCRIBED = answers(
    {"type": "object", "required": ["topics"], "properties": {"topics": {"type": "array", "items": _TEXT}}},
    {"topics": ["payments"]},
)
ASSIGNED = answers(_list("partitions", _row()), {"partitions": [_PLACE]})
POSITIONS = answers(_list("offsets", _row(offset=_INTEGER)), {"offsets": [{**_PLACE, "offset": 42}]})
COMMITTED = answers(_list("offsets", _COMMITTED), {"offsets": [_COMMITTED_EXAMPLE]})
COMMITTED_NOW = answers({"type": "array", "items": _COMMITTED}, [_COMMITTED_EXAMPLE])
RECORDS = answers(
    {"type": "array", "items": _RECORD},
    [{**_RECORD_EXAMPLE, "headers": []}],
    "application/vnd.kafka.json.v2+json",
    "application/vnd.kafka.binary.v2+json",
) | {
    "parameters": [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
            "description": doc,
        }
        for name, doc in (("timeout", "Wait so many milliseconds"), ("max_bytes", "At most so much"))
    ]
}
