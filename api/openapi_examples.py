"""Examples and path parameters of the OpenAPI document, each said once and put wherever it belongs."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _plain(characters: str) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": 249, "pattern": f"^{characters}+$"}


PATH_PARAMETERS: dict[str, Json] = {
    "c": {"description": "Cluster id, or - for this one", "schema": _plain("[A-Za-z0-9-]"), "example": "-"},
    "t": {
        "description": "Topic: 1 to 249 characters of A-Za-z0-9._-",
        "schema": _plain("[A-Za-z0-9._-]"),
        "example": "orders",
    },
    "p": {
        "description": "Partition",
        "schema": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
        "example": 0,
    },
    "b": {"description": "Broker: 0, the only one", "schema": _plain("[0-9-]"), "example": "0"},
    "id": {"description": "Token id", "schema": _plain("[A-Za-z0-9_-]"), "example": "k3v9"},
    "name": {
        "description": "Name of the config",
        "schema": _plain("[a-z.]"),
        "example": "retention.ms",
    },
    "query": {
        "description": "Id of the query that writes",
        "schema": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]*$"},
        "example": "3f0c7e54-8d5e-4c2f-9b1a-0d6a4f5e2c11",
    },
    "batch": {
        "description": "Batch of the query",
        "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        "example": 7,
    },
    "part": {
        "description": "Name of the part, unique for ever",
        "schema": {
            "type": "string",
            "maxLength": 160,
            "pattern": r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,140}\.http\.arrows$",
        },
        "example": "00000-0-5f3c1a2b-00000.http.arrows",
    },
    "job": {
        "description": "Maintenance job",
        "schema": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z][a-z0-9-]*$"},
        "example": "retention",
    },
    "g": {"description": "Consumer group", "schema": {"type": "string", "minLength": 1}, "example": "billing"},
    "m": {"description": "Member id", "schema": {"type": "string", "minLength": 1}, "example": "reader-5f3c1a2b"},
    "i": {"description": "Consumer instance", "schema": {"type": "string", "minLength": 1}, "example": "reader"},
}


def describe_path_parameters(schema: Json) -> None:
    for operations in schema["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter.update(PATH_PARAMETERS.get(parameter["name"], {}))


def add_examples(schema: Json) -> None:
    """To the JSON bodies that have none: made of the examples of their members."""
    models = schema["components"]["schemas"]
    for operations in schema["paths"].values():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for body in bodies:
                for media, content in body.get("content", {}).items():
                    if media.endswith("json") and not content.keys() & {"example", "examples"}:
                        content["example"] = example_of(content.get("schema", {}), models)


def example_of(schema: Json, models: Json) -> Any:
    """Of the schemas that pydantic, msgspec and this package make; not of any JSON schema that there may be."""
    if "example" in schema:
        return schema["example"]
    for given in ("examples", "enum"):
        if schema.get(given):
            return schema[given][0]
    if "$ref" in schema:
        return example_of(models[schema["$ref"].rpartition("/")[2]], models)
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return example_of(schema[choice][0], models)
    return _of_type(schema, models)


def _of_type(schema: Json, models: Json) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return {name: example_of(member, models) for name, member in schema.get("properties", {}).items()}
    if kind == "array":
        return [example_of(schema["items"], models)] if schema.get("items") else []
    return {"integer": schema.get("minimum", 0), "number": 0, "boolean": False, "string": "..."}.get(kind or "")
