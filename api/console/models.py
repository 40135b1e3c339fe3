"""What the console's calls answer, as OpenAPI shows it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from sluice.api.resource_models import Count, Listed, Millis, Number, Text, TopicName, V3Resource


class LayoutBlock(BaseModel):
    """A file, or a stretch of neighbouring files where there are many."""

    base_offset: Number
    end_offset: Count
    files: Count
    records: Count
    size_bytes: Count
    min_timestamp: Millis
    max_timestamp: Millis
    kind: str = Field(examples=["merged"], description="small (below 1 MiB), merged, cleaned (compacted) or mixed.")
    expiry: str = Field(examples=["none"], description="none, soon (at 90 % of a limit of retention) or due.")


class LayoutSegment(BaseModel):
    base_offset: Number
    end_offset: Count
    size_bytes: Count
    newest_ms: int | None = Field(examples=[1_750_000_000_000])
    active: bool = Field(examples=[True])
    expiry: str = Field(examples=["none"])
    why: str = Field(examples=[""], description="The comparison that takes it.")


class LayoutResource(V3Resource):
    topic_name: TopicName
    partition_id: Number
    version: int = Field(examples=[12], description="Of the partition's Delta table.")
    log_start_offset: Number
    high_watermark: Count
    log_end_offset: Count
    first_dirty_offset: Number
    segments_count: Count
    segments: list[LayoutSegment]
    blocks: list[LayoutBlock]


class HeaderModel(BaseModel):
    name: str = Field(examples=["trace"])
    value: str | None = Field(examples=["YQ=="], description="base64")


class FoundRecord(BaseModel):
    offset: Number
    timestamp: Millis
    key: Any = Field(examples=["c-7"])
    value: Any = Field(examples=[{"item": "lamp"}])
    headers: list[HeaderModel]


class FoundRecords(BaseModel):
    topic_name: TopicName
    partition_id: Number
    scanned: Count = Field(description="Records looked at.")
    next_before: int | None = Field(
        examples=[None], description="Give it as `before` to go on; null: the whole log was looked through."
    )
    data: list[FoundRecord]


class JobReport(BaseModel):
    """A run, as the job stored it; `facts` and `rows` differ from job to job."""

    job: str = Field(examples=["retention"])
    run_id: str = Field(examples=["5f3c1a2b9d04"])
    started_ms: Millis
    outcome: str = Field(examples=["done"], description="done, nothing to do, failed or stopped.")
    seconds: float = Field(examples=[1.5])
    mode: str = Field(examples=["online"])
    leader: Text
    planned: Count
    done: Count
    refused: Count
    records: Count
    bytes: Count
    files_removed: Count
    files_added: Count
    bytes_added: Count
    facts: dict[str, Any] = Field(examples=[{}])
    rows: list[dict[str, Any]] = Field(examples=[[]])
    notes: list[str] = Field(examples=[[]])
    error: str = Field(examples=[""])


class JobResource(V3Resource):
    job: str = Field(examples=["retention"])
    schedule: str = Field(examples=["*/5 * * * *"], description="Of `sluice jobs schedule`, in UTC; empty: none.")
    last: JobReport | None
    running: JobReport | None = Field(description="Began and has not ended, or was killed.")


class Work(BaseModel):
    name: str = Field(examples=["merges"])
    count: Count
    doc: Text


class JobList(Listed[JobResource]):
    service: list[Work] = Field(description="What the service did by itself since it started.")


class JobRunResource(V3Resource, JobReport): ...


class JobRunList(Listed[JobRunResource]): ...
