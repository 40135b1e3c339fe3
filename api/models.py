"""Bodies of the JSON routes, as OpenAPI shows them. Unknown members are refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class Body(BaseModel):
    # With any bound pydantic looks at the characters: halves of surrogate pairs are refused, which nothing could store.
    model_config = ConfigDict(extra="forbid", strict=True, str_max_length=1 << 20)


class ErrorModel(BaseModel):
    """Every 4xx and 5xx."""

    error_code: int = Field(description="HTTP status, or status*100 + n as in Confluent REST.", examples=[400])
    message: str = Field(examples=["records: must not be empty"], description="The field and the rule, in words.")
    error: str = Field(description="Kafka's name of the error.", examples=["INVALID_REQUEST"])
    retriable: bool = Field(examples=[False])
    details: dict[str, JsonValue] | None = Field(
        default=None, description="Facts for programs, such as `field`.", examples=[{"field": "records"}]
    )


class NotReady(ErrorModel):
    troubles: list[str] = Field(examples=[["the service is stopping"]])


TopicName = Annotated[
    str,
    Field(
        description="1 to 249 characters of `A-Za-z0-9._-`, not `.` or `..`; names that begin with `__` are internal.",
        examples=["orders"],
    ),
]
ConfigName = Annotated[str, Field(examples=["retention.ms"])]
Int64 = Annotated[int, Field(ge=0, le=2**63 - 1, examples=[0])]
Millis = Annotated[int, Field(ge=-62_135_596_800_000, le=253_402_300_799_999, examples=[1_750_000_000_000])]
"""The years 1 to 9999: Delta's statistics write them as dates."""
Crc = Annotated[int | None, Field(ge=0, le=2**32 - 1, examples=[None])]
Partitions = Annotated[int, Field(ge=-(2**31), le=2**31 - 1, examples=[3])]
DEFAULT_ONE = "-1: the service's default"


class ConfigValue(Body):
    name: ConfigName
    value: JsonValue = Field(default=None, examples=["604800000"])


class CreateTopic(Body):
    topic_name: TopicName
    partitions_count: Partitions = Field(default=-1, description=DEFAULT_ONE)
    replication_factor: int = Field(
        default=-1, ge=-(2**15), le=2**15 - 1, description=f"{DEFAULT_ONE}, which is 1", examples=[1]
    )
    configs: list[ConfigValue] = Field(default_factory=list, max_length=1000, fail_fast=True)
    validate_only: bool = Field(default=False, examples=[False])


class UpdateTopic(Body):
    partitions_count: Partitions = Field(description="All there shall be; more than there are.")


class UpdateConfig(Body):
    value: JsonValue = Field(examples=["604800000"])


class AlterConfig(ConfigValue):
    operation: Literal["SET", "DELETE", "APPEND", "SUBTRACT"] = "SET"


class AlterConfigs(Body):
    data: list[AlterConfig] = Field(max_length=1000, fail_fast=True)
    validate_only: bool = Field(default=False, examples=[False])


class NewProducer(Body):
    mode: Literal["partition", "topic"] = "partition"
    name: str | None = Field(
        default=None, description="A named producer keeps its id and gets the next epoch.", examples=["loader-1"]
    )


class CreateToken(Body):
    name: str = Field(description="What it is for; shown in lists.", examples=["loader"])
    grants: list[str] = Field(
        default_factory=list,
        description="`admin`, or `produce|consume|admin:topic|group:PATTERN`.",
        max_length=1000,
        fail_fast=True,
        examples=[["produce:topic:orders*"]],
    )
    expires_in_ms: int | None = Field(
        default=None, description="How long it is valid; null: until it is revoked.", examples=[86_400_000]
    )


class DeleteBefore(Body):
    partition: int = Field(ge=0, le=2**31 - 1, examples=[0])
    before_offset: int = Field(
        ge=-1, le=2**63 - 1, description="First offset to keep; -1: delete everything committed.", examples=[42]
    )


class DeleteRecords(Body):
    offsets: list[DeleteBefore] = Field(min_length=1, max_length=10_000, fail_fast=True)


class PlannedFile(Body):
    path: str = Field(examples=["00000000000000000000-3-1a2b.parquet"])
    size: Int64
    base_offset: Int64
    end_offset: Int64
    records: Int64
    min_ms: Millis
    max_ms: Millis
    modified_ms: Millis
    file_crc: Crc = None
    footer_crc: Crc = None
    tags: dict[str, str] = Field(default_factory=dict, max_length=100)


class PlanBody(Body):
    """A maintenance plan (R-7): applied whole or refused with what changed."""

    plan_id: str = Field(min_length=1, max_length=200, examples=["merge-17"])
    kind: Literal["merge", "trim", "compact", "retention", "delete_records", "mirror"]
    reason: str = Field(default="", max_length=10_000, examples=["small files"])
    base_version: int = Field(ge=-1, le=2**63 - 1, examples=[12])
    removes: list[str] = Field(default_factory=list, fail_fast=True, examples=[["00000000000000000000-3-9f8e.parquet"]])
    adds: list[PlannedFile] = Field(default_factory=list, fail_fast=True)
    log_start: Int64 | None = None
    first_dirty: Int64 | None = None
    continues_at: Int64 | None = Field(default=None, description="Of a mirror: the log end that it continues.")
    end: Int64 | None = Field(default=None, description="Of a mirror: the log end afterwards.")
    rolls: list[Int64] = Field(
        default_factory=list, fail_fast=True, description="Of a mirror: where segments begin in what is added."
    )
    empties_log: bool = Field(
        default=False,
        description="The active segment goes too: refused once records were appended to it.",
        examples=[False],
    )
    topic_id: str | None = Field(
        default=None, description="Refused unless the topic is still this incarnation (R-8).", examples=[None]
    )


class SweepFiles(Body):
    """Deletes nothing that a reader may still need (I-9, R-6)."""

    orphans: bool = Field(
        default=False, description="Also files that no commit names, after `orphan.retention.ms`.", examples=[True]
    )
    topic_id: str | None = Field(
        default=None, description="Refused unless the topic is still this incarnation (R-8).", examples=[None]
    )


class Resource(BaseModel):
    """A v3 resource: `kind`, `metadata`, and its own members."""

    model_config = ConfigDict(extra="allow")
    kind: str
    metadata: dict[str, Any]


class ResourceList(BaseModel):
    kind: str
    metadata: dict[str, Any]
    data: list[Resource]
