"""What OpenAPI says of the group calls that are not FastAPI's own: their shapes are taken from the models."""

from __future__ import annotations

from typing import Any

import msgspec

from sluice.api import group_models as models

Json = dict[str, Any]

_BODIES = (
    models.Join,
    models.Sync,
    models.Heartbeat,
    models.Leave,
    models.CommitOffsets,
    models.DeleteOffsets,
    models.ResetOffsets,
)
_ANSWERS = (
    models.Joined,
    models.Synced,
    models.Left,
    models.CommittedOffsets,
    models.OffsetOutcomes,
    models.ResetPlan,
)


def _prefixed(kind: type) -> str:
    return f"Group{kind.__name__}"


def schemas() -> Json:
    """For the components of the document, under names that cannot meet those of other models."""
    _, found = msgspec.json.schema_components((*_BODIES, *_ANSWERS), ref_template="#/components/schemas/Group{name}")
    return {f"Group{name}": schema for name, schema in found.items()}


def _content(kind: type) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{_prefixed(kind)}"}}}


_ERROR = {
    "description": "Refused",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorModel"}}},
}


def _parameter(name: str, doc: str, place: str = "path") -> Json:
    kind = {"type": "string"}
    return {"name": name, "in": place, "required": place == "path", "schema": kind, "description": doc}


_WHERE = [_parameter("c", "Cluster id, or - for this one"), _parameter("g", "Group")]


def _operation(summary: str, body: type | None, answer: type | None, *more: Json, some_fail: bool = False) -> Json:
    good: Json = {"description": "Done"} | ({} if answer is None else {"content": _content(answer)})
    responses = {"200": good, "4XX": _ERROR, "5XX": _ERROR} | ({"207": good} if some_fail else {})
    found: Json = {
        "tags": ["consumer groups"],
        "summary": summary,
        "parameters": [*_WHERE, *more],
        "responses": responses,
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": _content(body)}
    return found


_TOPIC = _parameter("topic", "Only of this topic", "query")
_GROUP = "/v3/clusters/{c}/consumer-groups/{g}"
GROUP_PATHS: dict[str, Json] = {
    f"{_GROUP}/members:join": {"post": _operation("Join; waits for the rebalance", models.Join, models.Joined)},
    f"{_GROUP}/members:sync": {"post": _operation("Bring or get the assignment", models.Sync, models.Synced)},
    f"{_GROUP}/members:heartbeat": {"post": _operation("Keep the session", models.Heartbeat, None)},
    f"{_GROUP}/members:leave": {"post": _operation("Leave", models.Leave, models.Left)},
    f"{_GROUP}/offsets": {
        "get": _operation(
            "Committed offsets", None, models.CommittedOffsets, _parameter("topic", "Only these", "query")
        ),
        "post": _operation("Commit offsets", models.CommitOffsets, models.OffsetOutcomes, some_fail=True),
        "delete": _operation("Delete offsets", models.DeleteOffsets, models.OffsetOutcomes, some_fail=True),
    },
    f"{_GROUP}/offsets:reset": {
        "post": _operation("Move a group that has no members", models.ResetOffsets, models.ResetPlan)
    },
}
