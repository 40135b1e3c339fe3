"""What OpenAPI says of the routes that are not FastAPI's own."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from sluice.api.auth_needs import OPEN_PATHS
from sluice.api.openapi_errors import add_errors
from sluice.api.openapi_examples import PATH_PARAMETERS, add_examples, describe_path_parameters

Json = dict[str, Any]


def _parameter(name: str, place: str, kind: str, doc: str, **more: Any) -> Json:
    return {"name": name, "in": place, "required": False, "schema": {"type": kind, **more}, "description": doc}


def _query(name: str, kind: str, doc: str, **more: Any) -> Json:
    return _parameter(name, "query", kind, doc, **more)


def _path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, **PATH_PARAMETERS[name]}


_CLUSTER, _TOPIC, _PARTITION = map(_path, ("c", "t", "p"))
_LONG = {"minimum": 0, "maximum": 2**63 - 1}
_ACKS = [
    _query("acks", "string", "0 none, 1 in the write-ahead log, all committed", enum=["0", "1", "all", "-1"]),
    _query("timeout_ms", "integer", "How long to wait for the acknowledgement", minimum=1, maximum=3_600_000),
]
_CLIENT_ID = _parameter("Sluice-Client-Id", "header", "string", "Whose quotas count", default="default")
_STAMP = [
    _parameter("Sluice-Producer-Id", "header", "integer", "Idempotent producer: its id", **_LONG),
    _parameter(
        "Sluice-Producer-Epoch", "header", "integer", "Idempotent producer: its epoch", minimum=0, maximum=2**31 - 1
    ),
    _parameter(
        "Sluice-Sequence",
        "header",
        "integer",
        "Records so far (partition) or requests so far (topic)",
        minimum=0,
        maximum=2**31 - 1,
    ),
]
_INT: Json = {"type": "integer"}
_TEXT: Json = {"type": "string"}
_TEXT_OR_NULL: Json = {"type": ["string", "null"], "default": None}


def _object(required: list[str] | None = None, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _json(schema: Json, **examples: Any) -> Json:
    return {"application/json": {"schema": schema, **examples}}


_HEADER = _object(
    ["name"],
    name=_TEXT | {"example": "trace"},
    value={"type": ["string", "null"], "description": "base64", "example": "YQ=="},
)
_V2_RECORD = _object(key={}, value={}, partition=_INT, timestamp=_INT, headers=_list(_HEADER))
_V2_BODY = _object(["records"], records=_list(_V2_RECORD))
_EXAMPLE = {"example": {"records": [{"key": "c-7", "value": {"item": "lamp"}}]}}
_V2_CONTENT: Json = {
    **_json(_V2_BODY, **_EXAMPLE),
    "application/vnd.kafka.json.v2+json": {"schema": _V2_BODY, **_EXAMPLE},
    "application/vnd.kafka.binary.v2+json": {
        "schema": _V2_BODY,
        "example": {"records": [{"key": "Yy03", "value": "bGFtcA=="}]},
    },
    "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
}
_OFFSET = _object(
    ["partition", "offset", "error_code", "error"],
    partition=_INT,
    offset=_INT,
    error_code={"type": ["integer", "null"], "default": None},
    error=_TEXT_OR_NULL,
)
_PART = _object(
    ["partition", "base_offset", "count"],
    partition=_INT,
    base_offset=_INT,
    count=_INT,
    duplicate={"type": "boolean"},
    error_code=_INT,
    error=_TEXT,
)
_DUPLICATE = {"type": "boolean", "description": "The records were in the log already; this is where."}
_PRODUCED = {
    "description": "Where the records are; with acks=0 (202) offsets are -1",
    "content": _json(
        {
            "anyOf": [
                _object(["offsets"], offsets=_list(_OFFSET), duplicate=_DUPLICATE),
                _object(["partitions"], partitions=_list(_PART), duplicate=_DUPLICATE),
            ]
        },
        examples={
            "full": {"value": {"offsets": [{"partition": 0, "offset": 41, "error_code": None, "error": None}]}},
            "summary": {"value": {"partitions": [{"partition": 0, "base_offset": 41, "count": 1}]}},
        },
    ),
}


def _produce(*where: Json) -> Json:
    response = _query(
        "response", "string", "One offset per record, or one line per partition", enum=["full", "summary"]
    )
    return {
        "post": {
            "tags": ["produce"],
            "summary": "Produce records",
            "parameters": [*where, *_ACKS, response, _CLIENT_ID, *_STAMP],
            "requestBody": {"required": True, "content": _V2_CONTENT},
            "responses": {"200": _PRODUCED, "202": _PRODUCED},
        }
    }


_DATA = _object(["type"], type={"type": "string", "enum": ["BINARY", "JSON", "STRING"]}, data={})
_V3 = {
    "partition_id": _INT,
    "headers": _list(_HEADER),
    "key": _DATA,
    "value": _DATA,
    "timestamp": {"description": "RFC 3339, or milliseconds"},
}
_SIZED = {
    "anyOf": [
        _object(["type", "size"], type=_TEXT | {"example": "JSON"}, size=_INT | {"example": 15}),
        {"type": "null"},
    ]
}
_STORED = {
    "error_code": _INT | {"example": 200},
    "cluster_id": _TEXT | {"example": "5f3c"},
    "topic_name": _TEXT | {"example": "orders"},
    "partition_id": _INT,
    "offset": _INT | {"example": 41},
    "timestamp": _TEXT | {"example": "2025-06-15T15:06:40Z"},
    "key": _SIZED,
    "value": _SIZED,
}
_REPORTED = _STORED | {"duplicate": {"type": "boolean", "description": "It was in the log already; this is where."}}
_FAILED = {
    "error_code": _INT | {"example": 42206},
    "message": _TEXT | {"example": "key: must not be null in a compacted topic"},
    "error": _TEXT | {"example": "INVALID_RECORD"},
    "retriable": {"type": "boolean"},
    "details": {"type": "object"},
}
_ID = _TEXT | {"example": "1"}
_V3_EXAMPLE = {"key": {"type": "STRING", "data": "c-7"}, "value": {"type": "JSON", "data": {"item": "lamp"}}}
_RECORD_OUT = _object(
    ["offset", "timestamp", "key", "value", "headers"],
    offset=_INT,
    timestamp=_INT,
    key={"example": "c-7"},
    value={"example": {"item": "lamp"}},
    headers=_list(_HEADER),
)
_FETCHED = _object(
    ["topic_name", "partition_id", "high_watermark", "log_start_offset", "next_offset", "data"],
    topic_name=_TEXT | {"example": "orders"},
    partition_id=_INT,
    high_watermark=_INT,
    log_start_offset=_INT,
    next_offset=_INT,
    data=_list(_RECORD_OUT),
    throttle_time_ms=_INT | {"description": "Only when a quota is used up: no records for so long"},
)


def _v3_produce(summary: str, body: Json, answer: Json, **statuses: str) -> Json:
    """Each status (`_207`) with what it says."""
    return {
        "post": {
            "tags": ["produce"],
            "summary": summary,
            "parameters": [_CLUSTER, _TOPIC, *_ACKS, _CLIENT_ID, *_STAMP],
            "requestBody": {"required": True, "content": _json(body)},
            "responses": {
                status.removeprefix("_"): {"description": text, "content": _json(answer)}
                for status, text in statuses.items()
            },
        }
    }


def _get(summary: str, parameters: list[Json], answer: Json, **more: Json) -> Json:
    ok = {"description": "Found", "content": {**_json(answer), **more}}
    return {"get": {"tags": ["read"], "summary": summary, "parameters": parameters, "responses": {"200": ok}}}


_FETCH = [
    _parameter("offset", "query", "integer", "First offset wanted", **_LONG) | {"required": True},
    _query("max_records", "integer", "At most so many", minimum=1, maximum=2**63 - 1, default=500),
    _query(
        "max_bytes",
        "integer",
        "At most so much, but at least one record",
        minimum=1,
        maximum=2**63 - 1,
        default=1 << 20,
    ),
    _query("min_bytes", "integer", "Wait until there is so much", minimum=0, maximum=2**63 - 1, default=1),
    _query("max_wait_ms", "integer", "Wait so long for it", minimum=0, maximum=2**63 - 1, default=500),
    _query("format", "string", "How keys and values are shown", enum=["json", "string", "binary"], default="json"),
]
_AT = _query("at", "string", "earliest, latest, max_timestamp, milliseconds or RFC 3339", default="latest")
_OFFSET_TYPE = _query(
    "offset_type", "string", "Both ends at once, as Confluent REST has it", enum=["earliest_and_latest"]
)
_WHERE = [_CLUSTER, _TOPIC, _PARTITION]
_P = "/v3/clusters/{c}/topics/{t}/partitions/{p}"

RAW_PATHS: dict[str, Json] = {
    "/topics/{t}": _produce(_TOPIC),
    "/topics/{t}/partitions/{p}": _produce(_TOPIC, _PARTITION),
    "/topics/{t}/partitions/{p}/offsets": _get(
        "First and next offset",
        [_TOPIC, _PARTITION],
        _object(["beginning_offset", "end_offset"], beginning_offset=_INT, end_offset=_INT),
    ),
    "/v3/clusters/{c}/topics/{t}/records": _v3_produce(
        "Produce one record, or a stream of them",
        {"type": "object", "properties": _V3, "example": _V3_EXAMPLE},
        {"anyOf": [_object(list(_STORED), **_REPORTED), _object(list(_FAILED)[:4], **_FAILED)]},
        _200="Where each record is; for a chunked stream, what became of each",
        _202="acks=0: offsets are -1",
        _207="Some records failed; when all do, the status is that of the error",
    ),
    "/v3/clusters/{c}/topics/{t}/records:batch": _v3_produce(
        "Produce a batch of records with ids",
        _object(["entries"], entries=_list(_object(["id"], id=_ID, **_V3)))
        | {"example": {"entries": [{"id": "1", **_V3_EXAMPLE}]}},
        _object(
            ["successes", "failures"],
            successes=_list(_object(["id", *_STORED], id=_ID, **_REPORTED)),
            failures=_list(_object(["id", *list(_FAILED)[:4]], id=_ID, **_FAILED)),
        ),
        _202="acks=0, and no record failed: offsets are -1",
        _207="What became of each record",
    ),
    f"{_P}/records": _get(
        "Fetch records, waiting for them",
        [*_WHERE, *_FETCH, _CLIENT_ID],
        _FETCHED,
        **{"application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}}},
    ),
    f"{_P}/offset": _get(
        "Offset by time",
        [*_WHERE, _AT, _OFFSET_TYPE],
        _object(
            ["topic_name", "partition_id"],
            topic_name=_TEXT | {"example": "orders"},
            partition_id=_INT,
            offset=_INT,
            timestamp=_INT,
            earliest_offset=_INT,
            latest_offset=_INT,
        ),
    ),
}


def complete(schema: Json, more_paths: dict[str, Json]) -> None:
    """What FastAPI made of its routes, with all others, and with what every operation has in common."""
    for path, operations in {**RAW_PATHS, **more_paths}.items():
        schema["paths"].setdefault(path, {}).update(deepcopy(operations))
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            operation.setdefault("operationId", re.sub(r"\W+", "_", f"{method}{path}").strip("_"))
    describe_path_parameters(schema)
    add_errors(schema)
    add_examples(schema)
    _add_security(schema)


def _add_security(schema: Json) -> None:
    """A bearer token everywhere but at the open paths. While no token is stored, none is asked for."""
    text = "An access token, `sluice_<id>_<secret>`, as `sluice tokens create` prints it."
    schemes = schema.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["token"] = {"type": "http", "scheme": "bearer", "description": text}
    schema["security"] = [{"token": []}]
    for path in OPEN_PATHS & schema["paths"].keys():
        for operation in schema["paths"][path].values():
            operation["security"] = []
