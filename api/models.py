"""Bodies of the JSON routes, as OpenAPI shows them. Unknown members are refused by name."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorModel(BaseModel):
    """Every 4xx and 5xx."""

    error_code: int = Field(description="HTTP status, or status*100 + n as in Confluent REST.")
    message: str
    error: str = Field(description="Kafka's name of the error.")
    retriable: bool
    details: dict[str, JsonValue] | None = None


class ConfigValue(Body):
    name: str
    value: JsonValue = None


class CreateTopic(Body):
    topic_name: str
    partitions_count: int = -1
    replication_factor: int = -1
    configs: list[ConfigValue] = Field(default_factory=list)
    validate_only: bool = False


class UpdateTopic(Body):
    partitions_count: int


class UpdateConfig(Body):
    value: JsonValue


class AlterConfig(ConfigValue):
    operation: Literal["SET", "DELETE", "APPEND", "SUBTRACT"] = "SET"


class AlterConfigs(Body):
    data: list[AlterConfig]
    validate_only: bool = False


class NewProducer(Body):
    mode: Literal["partition", "topic"] = "partition"
    name: str | None = Field(default=None, description="A named producer keeps its id and gets the next epoch.")


class ProducerModel(BaseModel):
    producer_id: int
    producer_epoch: int


class DeleteBefore(Body):
    partition: int = Field(ge=0)
    before_offset: int = Field(ge=-1, description="First offset to keep; -1: delete everything committed.")


class DeleteRecords(Body):
    offsets: list[DeleteBefore] = Field(min_length=1)


class PlannedFile(Body):
    path: str
    size: int
    base_offset: int
    end_offset: int
    records: int
    min_ms: int
    max_ms: int
    modified_ms: int
    file_crc: int | None = None
    footer_crc: int | None = None
    tags: dict[str, str] = Field(default_factory=dict)


class PlanBody(Body):
    """A maintenance plan (R-7): applied whole or refused with what changed."""

    plan_id: str = Field(min_length=1, max_length=200)
    kind: Literal["merge", "trim", "compact", "retention", "delete_records"]
    reason: str = ""
    base_version: int
    removes: list[str] = Field(default_factory=list)
    adds: list[PlannedFile] = Field(default_factory=list)
    log_start: int | None = None
    first_dirty: int | None = None


class Resource(BaseModel):
    """A v3 resource: `kind`, `metadata`, and its own members."""

    model_config = ConfigDict(extra="allow")
    kind: str
    metadata: dict[str, Any]


class ResourceList(BaseModel):
    kind: str
    metadata: dict[str, Any]
    data: list[Resource]
