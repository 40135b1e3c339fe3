"""What OpenAPI says of the group calls that are not FastAPI's own: their shapes are taken from the models."""

from __future__ import annotations

from typing import Any

import msgspec

from sluice.api import group_models as models
from sluice.api.openapi_examples import PATH_PARAMETERS

Json = dict[str, Any]

_PLACE = {"topic_name": "payments", "partition_id": 0}
_MEMBER = {"generation_id": 3, "member_id": "reader-5f3c1a2b"}
_SUBSCRIPTION = {"topics": ["payments"]}
_EXAMPLES: dict[type, Json] = {
    models.Join: {"client_id": "reader", "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}]},
    models.Joined: {
        "generation_id": 3,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "reader-5f3c1a2b",
        "member_id": "reader-5f3c1a2b",
        "skip_assignment": False,
        "members": [{"member_id": "reader-5f3c1a2b", "group_instance_id": None, "metadata": _SUBSCRIPTION}],
    },
    models.Sync: {**_MEMBER, "strategy": "range"},
    models.Synced: {
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": [["payments", 0], ["payments", 1]],
    },
    models.Heartbeat: _MEMBER,
    models.Leave: {"members": [{"member_id": "reader-5f3c1a2b"}]},
    models.Left: {
        "members": [
            {"member_id": "reader-5f3c1a2b", "group_instance_id": None, "error_code": None, "error": None},
        ]
    },
    models.CommitOffsets: {"offsets": [{**_PLACE, "offset": 42}]},
    models.DeleteOffsets: {"offsets": [_PLACE]},
    models.CommittedOffsets: {
        "offsets": [
            {**_PLACE, "offset": 42, "metadata": "", "commit_timestamp": 1_750_000_000_000, "topic_id": "9f1c"},
        ]
    },
    models.OffsetOutcomes: {"offsets": [{**_PLACE, "error_code": None, "error": None, "message": None}]},
    models.ResetOffsets: {"to_earliest": True, "topics": ["payments"]},
    models.ResetPlan: {"plan": [{**_PLACE, "current_offset": 42, "new_offset": 0}], "executed": False},
}
"""A body or an answer of each kind."""


def _prefixed(kind: type) -> str:
    return f"Group{kind.__name__}"


def schemas() -> Json:
    """For the components of the document, under names that cannot meet those of other models."""
    _, found = msgspec.json.schema_components(_EXAMPLES, ref_template="#/components/schemas/Group{name}")
    return {f"Group{name}": schema for name, schema in found.items()}


def _content(kind: type) -> Json:
    schema = {"$ref": f"#/components/schemas/{_prefixed(kind)}"}
    return {"application/json": {"schema": schema, "example": _EXAMPLES[kind]}}


_WHERE = [{"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]} for name in ("c", "g")]
_NOTHING: Json = {"application/json": {"schema": {"type": "object"}, "example": {}}}


def _operation(summary: str, body: type | None, answer: type | None, *more: Json, some_fail: bool = False) -> Json:
    good: Json = {"description": "Done", "content": _NOTHING if answer is None else _content(answer)}
    responses = {"200": good} | ({"207": good | {"description": "Some were refused"}} if some_fail else {})
    found: Json = {
        "tags": ["consumer groups"],
        "summary": summary,
        "parameters": [*_WHERE, *more],
        "responses": responses,
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": _content(body)}
    return found


_TOPIC = {
    "name": "topic",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Only of this topic",
}
_GROUP = "/v3/clusters/{c}/consumer-groups/{g}"
GROUP_PATHS: dict[str, Json] = {
    f"{_GROUP}/members:join": {"post": _operation("Join; waits for the rebalance", models.Join, models.Joined)},
    f"{_GROUP}/members:sync": {"post": _operation("Bring or get the assignment", models.Sync, models.Synced)},
    f"{_GROUP}/members:heartbeat": {"post": _operation("Keep the session", models.Heartbeat, None)},
    f"{_GROUP}/members:leave": {"post": _operation("Leave", models.Leave, models.Left)},
    f"{_GROUP}/offsets": {
        "get": _operation("Committed offsets", None, models.CommittedOffsets, _TOPIC),
        "post": _operation("Commit offsets", models.CommitOffsets, models.OffsetOutcomes, some_fail=True),
        "delete": _operation("Delete offsets", models.DeleteOffsets, models.OffsetOutcomes, some_fail=True),
    },
    f"{_GROUP}/offsets:reset": {
        "post": _operation("Move a group that has no members", models.ResetOffsets, models.ResetPlan)
    },
}
