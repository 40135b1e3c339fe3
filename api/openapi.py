"""What OpenAPI says of the routes that are not FastAPI's own."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _parameter(name: str, place: str, kind: str, doc: str, **more: Any) -> Json:
    schema = {"type": kind, **more}
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": doc}


def _query(name: str, kind: str, doc: str, **more: Any) -> Json:
    return _parameter(name, "query", kind, doc, **more)


_CLUSTER = _parameter("c", "path", "string", "Cluster id, or - for this one")
_TOPIC = _parameter("t", "path", "string", "Topic")
_PARTITION = _parameter("p", "path", "integer", "Partition", minimum=0)
_ACKS = [
    _query("acks", "string", "0 none, 1 in the write-ahead log, all committed", enum=["0", "1", "all", "-1"]),
    _query("timeout_ms", "integer", "How long to wait for the acknowledgement", minimum=1),
]
_STAMP = [
    _parameter("Sluice-Producer-Id", "header", "integer", "Idempotent producer: its id"),
    _parameter("Sluice-Producer-Epoch", "header", "integer", "Idempotent producer: its epoch"),
    _parameter("Sluice-Sequence", "header", "integer", "Records so far (partition) or requests so far (topic)"),
]
_ERROR = {
    "description": "Refused",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorModel"}}},
}
_ERRORS = {"4XX": _ERROR, "5XX": _ERROR}
_INT: Json = {"type": "integer"}
_TEXT: Json = {"type": ["string", "null"]}


def _object(required: list[str] | None = None, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _json(schema: Json, **examples: Any) -> Json:
    return {"application/json": {"schema": schema, **examples}}


_HEADER = _object(["name"], name={"type": "string"}, value={"type": ["string", "null"], "description": "base64"})
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
_OFFSET = _object(partition=_INT, offset=_INT, error_code={"type": ["integer", "null"]}, error=_TEXT)
_PART = _object(partition=_INT, base_offset=_INT, count=_INT)
_PRODUCED = {
    "description": "Where the records are; with acks=0 (202) offsets are -1",
    "content": _json(_object(offsets=_list(_OFFSET), partitions=_list(_PART), duplicate={"type": "boolean"})),
}


def _produce(*where: Json) -> Json:
    response = _query(
        "response", "string", "One offset per record, or one line per partition", enum=["full", "summary"]
    )
    return {
        "post": {
            "tags": ["produce"],
            "summary": "Produce records",
            "parameters": [*where, *_ACKS, response, *_STAMP],
            "requestBody": {"required": True, "content": _V2_CONTENT},
            "responses": {"200": _PRODUCED, "202": _PRODUCED, **_ERRORS},
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
_RECORD_OUT = _object(offset=_INT, timestamp=_INT, key={}, value={}, headers=_list(_HEADER))
_FETCHED = _object(
    topic_name={"type": "string"},
    partition_id=_INT,
    high_watermark=_INT,
    log_start_offset=_INT,
    next_offset=_INT,
    data=_list(_RECORD_OUT),
)


def _v3_produce(summary: str, body: Json, status: str, answer: Json) -> Json:
    return {
        "post": {
            "tags": ["produce"],
            "summary": summary,
            "parameters": [_CLUSTER, _TOPIC, *_ACKS],
            "requestBody": {"required": True, "content": _json(body)},
            "responses": {status: {"description": "What became of each record", "content": _json(answer)}, **_ERRORS},
        }
    }


def _get(summary: str, parameters: list[Json], answer: Json, **more: Json) -> Json:
    ok = {"description": "Found", "content": {**_json(answer), **more}}
    return {
        "get": {"tags": ["read"], "summary": summary, "parameters": parameters, "responses": {"200": ok, **_ERRORS}}
    }


_FETCH = [
    _parameter("offset", "query", "integer", "First offset wanted", minimum=0) | {"required": True},
    _query("max_records", "integer", "At most so many", minimum=1, default=500),
    _query("max_bytes", "integer", "At most so much, but at least one record", minimum=1, default=1 << 20),
    _query("min_bytes", "integer", "Wait until there is so much", minimum=0, default=1),
    _query("max_wait_ms", "integer", "Wait so long for it", minimum=0, default=500),
    _query("format", "string", "How keys and values are shown", enum=["json", "string", "binary"], default="json"),
]
_AT = _query("at", "string", "earliest, latest, max_timestamp, milliseconds or RFC 3339", default="latest")
_WHERE = [_CLUSTER, _TOPIC, _PARTITION]
_P = "/v3/clusters/{c}/topics/{t}/partitions/{p}"

RAW_PATHS: dict[str, Json] = {
    "/topics/{t}": _produce(_TOPIC),
    "/topics/{t}/partitions/{p}": _produce(_TOPIC, _PARTITION),
    "/topics/{t}/partitions/{p}/offsets": _get(
        "First and next offset", [_TOPIC, _PARTITION], _object(beginning_offset=_INT, end_offset=_INT)
    ),
    "/v3/clusters/{c}/topics/{t}/records": _v3_produce(
        "Produce one record, or a stream of them",
        {"type": "object", "properties": _V3},
        "200",
        _object(error_code=_INT),
    ),
    "/v3/clusters/{c}/topics/{t}/records:batch": _v3_produce(
        "Produce a batch of records with ids",
        _object(["entries"], entries=_list(_object(["id"], id={"type": "string"}, **_V3))),
        "207",
        _object(successes=_list(_object()), failures=_list(_object())),
    ),
    f"{_P}/records": _get(
        "Fetch records, waiting for them",
        [*_WHERE, *_FETCH],
        _FETCHED,
        **{"application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}}},
    ),
    f"{_P}/offset": _get(
        "Offset by time", [*_WHERE, _AT], _object(topic_name={"type": "string"}, offset=_INT, timestamp=_INT)
    ),
}
