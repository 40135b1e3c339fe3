"""Bodies and answers of the sink calls, as OpenAPI shows them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from sluice.api.models import Body, Int64, TopicName
from sluice.log_store.sinks import MAX_PARTS

QueryId = Annotated[str, Field(examples=["3f0c7e54-8d5e-4c2f-9b1a-0d6a4f5e2c11"])]


class StagedPart(Body):
    name: str = Field(
        max_length=170,
        description="As it was uploaded: `….http.arrows` through the service, `….direct.arrows` to storage.",
        examples=["00000-0-5f3c1a2b-00000.http.arrows"],
    )
    topic: TopicName
    rows: int = Field(ge=1, le=2**31 - 1, examples=[1000])
    size: Int64 = Field(description="Bytes.")
    crc: int = Field(ge=0, le=2**32 - 1, description="CRC-32 of its bytes.", examples=[0])


class CommitSinkBatch(Body):
    """The parts of the attempts that won, in the order of their tasks."""

    parts: list[StagedPart] = Field(max_length=MAX_PARTS, fail_fast=True)


class SinkBatchResult(BaseModel):
    query_id: QueryId
    batch_id: int = Field(examples=[7])
    records: int = Field(description="Records that this call appended.", examples=[1000])
    duplicate: bool = Field(description="Nothing was appended: all of it was in the log already.", examples=[False])


class SinkResource(BaseModel):
    query_id: QueryId
    last_batch_id: int | None = Field(
        description="The newest batch that is in the log as a whole; null: none is known.", examples=[7]
    )


class DroppedBatch(BaseModel):
    query_id: QueryId
    batch_id: int = Field(examples=[7])
    dropped: bool = Field(
        description="False: a commit has named its parts, so they are kept until it is complete; or nobody has staged "
        "or committed anything of the query through the service.",
        examples=[True],
    )
