"""What the JSON routes answer, as OpenAPI shows it. Nothing is checked against these models while serving."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

_URL = "http://127.0.0.1:8080/v3/clusters/5f3c"
Text = Annotated[str, Field(examples=["..."])]
TopicName = Annotated[str, Field(examples=["orders"])]
ClusterId = Annotated[str, Field(examples=["5f3c"])]
Number = Annotated[int, Field(ge=0, examples=[0])]
Count = Annotated[int, Field(ge=0, examples=[3])]
Millis = Annotated[int, Field(examples=[1_750_000_000_000])]
Problem = Annotated[str | None, Field(examples=[None], description="Why it cannot be used, in words.")]
T = TypeVar("T", bound=BaseModel)


class Link(BaseModel):
    related: str = Field(examples=[f"{_URL}/topics/orders"])


class Metadata(BaseModel):
    itself: str = Field(alias="self", examples=[f"{_URL}/topics/orders"])
    resource_name: str = Field(examples=["crn:///kafka=5f3c/topic=orders"])


class ListMetadata(BaseModel):
    model_config = ConfigDict(extra="allow")
    itself: str = Field(alias="self", examples=[f"{_URL}/topics"])
    next: str | None = Field(examples=[None], description="Where the next page is.")


class V3Resource(BaseModel):
    """Every v3 resource: what it is, where it is, and its own members."""

    kind: str = Field(examples=["KafkaTopic"])
    metadata: Metadata


class Listed(BaseModel, Generic[T]):
    kind: str = Field(examples=["KafkaTopicList"])
    metadata: ListMetadata
    data: list[T]


class ClusterResource(V3Resource):
    cluster_id: ClusterId
    storage_root: str = Field(
        description="Where the log is stored: readers with credentials of their own read it there",
        examples=["s3://lake/sluice"],
    )
    topics: Link
    brokers: Link
    consumer_groups: Link


class TopicResource(V3Resource):
    cluster_id: ClusterId
    topic_name: TopicName
    topic_id: str = Field(examples=["7d9b0c8e"])
    is_internal: bool = Field(examples=[False])
    replication_factor: int = Field(examples=[1])
    partitions_count: Count
    created_ms: Millis
    partitions: Link
    configs: Link


class PartitionResource(V3Resource):
    cluster_id: ClusterId
    topic_name: TopicName
    partition_id: Number
    leader: Link
    replicas: Link
    log_start_offset: Number
    high_watermark: Count
    log_end_offset: Count
    version: int = Field(examples=[12], description="Of the partition's Delta table.")
    size_bytes: Count
    folder: str = Field(examples=["topics/orders/0"])
    problem: Problem


class Synonym(BaseModel):
    name: str = Field(examples=["retention.ms"])
    value: str | None = Field(examples=["604800000"])
    source: str = Field(examples=["DEFAULT_CONFIG"])


class ConfigResource(V3Resource):
    cluster_id: ClusterId
    name: str = Field(examples=["retention.ms"])
    value: str | None = Field(examples=["604800000"])
    is_default: bool = Field(examples=[True])
    is_read_only: bool = Field(examples=[False])
    is_sensitive: bool = Field(examples=[False])
    source: str = Field(examples=["DEFAULT_CONFIG"])
    synonyms: list[Synonym]
    doc: Text


class TopicConfigResource(ConfigResource):
    topic_name: TopicName


class BrokerConfigResource(ConfigResource):
    broker_id: Number


class BrokerResource(V3Resource):
    cluster_id: ClusterId
    broker_id: Number
    host: str | None = Field(examples=["127.0.0.1"])
    port: int | None = Field(examples=[8080])
    rack: str | None = Field(examples=[None])
    epoch: int = Field(examples=[1])
    fenced: bool = Field(examples=[False], description="Another process leads.")
    configs: Link
    log_dirs: Link


class ReplicaResource(V3Resource):
    cluster_id: ClusterId
    topic_name: TopicName
    partition_id: Number
    broker_id: Number
    is_leader: bool = Field(examples=[True])
    is_in_sync: bool = Field(examples=[True])
    broker: Link


class LogDirResource(V3Resource):
    """The figures are missing where the partition cannot be opened; `problem` says why."""

    topic_name: TopicName
    partition_id: Number
    root: str = Field(examples=["file:///var/lib/sluice"])
    problem: Problem
    folder: str = Field(default="", examples=["topics/orders/0"])
    size_bytes: Count = 0
    files: Count = 0
    small_files: Count = 0
    merged_files: Count = 0
    log_start_offset: Number = 0
    high_watermark: Count = 0
    log_end_offset: Count = 0
    version: int = Field(default=0, examples=[12])


class SegmentResource(V3Resource):
    path: str = Field(examples=["00000000000000000000-3-1a2b.parquet"])
    base_offset: Number
    end_offset: Count
    records: Count
    size_bytes: Count
    min_timestamp: Millis
    max_timestamp: Millis
    modified_ms: Millis
    state: str = Field(examples=["live"], description="live, or trimmed: partly below the log start.")


class TokenResource(V3Resource):
    cluster_id: ClusterId
    token_id: str = Field(examples=["k3v9"])
    name: str = Field(examples=["loader"])
    grants: list[str] = Field(examples=[["produce:topic:orders*"]])
    created_ms: Millis
    expires_ms: int | None = Field(examples=[None])
    expired: bool = Field(examples=[False])


class NewTokenResource(TokenResource):
    token: str = Field(examples=["sluice_k3v9_secret"], description="Shown this once.")


class QuotaResource(V3Resource):
    entity: dict[str, str | None] = Field(examples=[{"client_id": "loader"}])
    values: dict[str, float] = Field(examples=[{"producer_byte_rate": 1_048_576}])


class TopicList(Listed[TopicResource]): ...


class ClusterList(Listed[ClusterResource]): ...


class PartitionList(Listed[PartitionResource]): ...


class TopicConfigList(Listed[TopicConfigResource]): ...


class BrokerConfigList(Listed[BrokerConfigResource]): ...


class BrokerList(Listed[BrokerResource]): ...


class ReplicaList(Listed[ReplicaResource]): ...


class LogDirList(Listed[LogDirResource]): ...


class SegmentList(Listed[SegmentResource]): ...


class TokenList(Listed[TokenResource]): ...


class QuotaList(Listed[QuotaResource]): ...


# --- answers that are no resources ---------------------------------------------------------------


class Health(BaseModel):
    status: str = Field(examples=["ok"])


class V2Brokers(BaseModel):
    brokers: list[int] = Field(examples=[[0]])


class V2Replica(BaseModel):
    broker: Number
    leader: bool = Field(examples=[True])
    in_sync: bool = Field(examples=[True])


class V2Partition(BaseModel):
    partition: Number
    leader: Number
    replicas: list[V2Replica]


class V2Topic(BaseModel):
    name: TopicName
    configs: dict[str, str | None] = Field(examples=[{"retention.ms": "604800000"}])
    partitions: list[V2Partition]


class ProducerModel(BaseModel):
    producer_id: int = Field(examples=[4000])
    producer_epoch: int = Field(examples=[0])


class DeletedBefore(BaseModel):
    """`low_watermark`, or what went wrong."""

    partition: Number
    low_watermark: int | None = Field(default=None, examples=[42])
    error_code: int | None = None
    error: str | None = None
    message: str | None = None


class DeletedRecords(BaseModel):
    offsets: list[DeletedBefore]


class SweptFiles(BaseModel):
    removed: list[str] = Field(description="Files that a commit had removed.", examples=[[]])
    orphans: list[str] = Field(description="Files that no commit ever named.", examples=[[]])
    next_due_ms: int | None = Field(
        description="When the next removed file may go; null: none is waiting.", examples=[None]
    )


class ClockModel(BaseModel):
    wall_ms: int = Field(description="What the leader takes for the time of day.", examples=[1_750_000_000_000])
    trusted: bool = Field(
        description="False once it jumped by more than 5 minutes: nothing is deleted by its age until it is confirmed.",
        examples=[True],
    )


class ExpiredOffsets(BaseModel):
    groups: int = Field(description="Groups of which nothing was left.", examples=[0])
    offsets: int = Field(examples=[0])


class AppliedPlan(BaseModel):
    plan_id: str = Field(examples=["merge-17"])
    version: int = Field(examples=[13])
