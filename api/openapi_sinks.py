"""What OpenAPI says of the upload of a sink's part, which is a raw route as produce is."""

from __future__ import annotations

from typing import Any

from sluice.api.openapi_examples import PATH_PARAMETERS
from sluice.api.sinks import PART_PATH

Json = dict[str, Any]

_UPLOADED: Json = {
    "type": "object",
    "required": ["part", "size"],
    "properties": {
        "part": {"type": "string", "example": "00000-0-5f3c1a2b-00000.http.arrows"},
        "size": {"type": "integer", "example": 4096},
    },
}

SINK_PATHS: dict[str, Json] = {
    PART_PATH: {
        "put": {
            "tags": ["sinks"],
            "summary": "Upload a part of a batch",
            "description": "Columns as in an Arrow produce request. Nothing is appended before the batch is committed.",
            "parameters": [
                {"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]}
                for name in ("c", "t", "query", "batch", "part")
            ],
            "requestBody": {
                "required": True,
                "content": {"application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}}},
            },
            "responses": {"200": {"description": "Kept", "content": {"application/json": {"schema": _UPLOADED}}}},
        }
    }
}
