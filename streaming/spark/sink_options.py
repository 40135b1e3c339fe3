"""The options of the sink. Names and meaning of Spark's Kafka sink where it has them, and a few of our own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.sinks import JOB_PREFIX, MAX_BATCH, check_query_id
from sluice.streaming.spark.address import ADDRESS_OPTIONS, STORAGE_PREFIX, Address
from sluice.streaming.spark.option_values import OptionValues, wrong

logger = logging.getLogger("sluice.spark")

KIB, MIB = 1 << 10, 1 << 20
PART_BYTES = 8 * MIB
COMMIT_TIMEOUT_MS, UPLOAD_TIMEOUT_MS = 15 * 60_000, 2 * 60_000
SINK_OPTIONS = (
    *ADDRESS_OPTIONS,
    "topic",
    "includeHeaders",
    "query.id",
    "batch.id",
    "upload.part.bytes",
    "upload.timeout.ms",
    "commit.timeout.ms",
    "checkpointLocation",
)
IGNORED_PREFIXES = ("kafka.",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    address: Address
    """With `path` the tasks write to storage, else through the service. The commit always goes to the service."""
    topic: str | None
    include_headers: bool
    query_id: str | None
    """Of a batch write that names itself. None: the id in the checkpoint of a stream, or one of its own for a job."""
    batch_id: int | None
    part_bytes: int
    upload_timeout_s: float
    commit_timeout_s: float

    @property
    def server(self) -> str:
        return self.address.server or ""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool, environ: Mapping[str, str]) -> SinkOptions:
        values = OptionValues(given, SINK_OPTIONS, (STORAGE_PREFIX, *IGNORED_PREFIXES))
        for name in values.family("kafka."):
            logger.warning("option 'kafka.%s' means nothing to a sink of Sluice and is ignored", name)
        query_id, batch_id = _own_ids(values, streaming=streaming)
        address = Address.parse(values, environ)
        if address.server is None:
            raise wrong("server", "the sink needs the address of the service, which appends what the tasks wrote")
        return cls(
            address=address,
            topic=values.text("topic"),
            include_headers=values.flag("includeHeaders", default=True),
            query_id=query_id,
            batch_id=batch_id,
            part_bytes=values.whole("upload.part.bytes", minimum=64 * KIB, maximum=32 * MIB) or PART_BYTES,
            upload_timeout_s=(values.duration_ms("upload.timeout.ms", minimum=1) or UPLOAD_TIMEOUT_MS) / 1000,
            commit_timeout_s=(values.duration_ms("commit.timeout.ms", minimum=1) or COMMIT_TIMEOUT_MS) / 1000,
        )


def _own_ids(values: OptionValues, *, streaming: bool) -> tuple[str | None, int | None]:
    if streaming:
        _refuse_own_ids(values)
        return None, None
    query_id, batch_id = values.text("query.id"), values.whole("batch.id", minimum=0, maximum=MAX_BATCH)
    if query_id is not None:
        try:
            check_query_id(query_id)
        except InvalidRequest as error:
            raise wrong("query.id", error.message) from None
        if query_id.startswith(JOB_PREFIX):
            raise wrong("query.id", f"must not begin with {JOB_PREFIX!r}: such ids are forgotten after a day")
    if (query_id is None) != (batch_id is None):
        raise wrong(
            "query.id" if query_id is None else "batch.id", "a batch write needs both 'query.id' and 'batch.id'"
        )
    return query_id, batch_id


def _refuse_own_ids(values: OptionValues) -> None:
    """Numbers of batches mean something within one checkpoint only, so its id is the only name that goes with them."""
    if values.text("query.id") is not None:
        raise wrong(
            "query.id",
            "is for batch writes; a streaming query has the id in its checkpoint. A new checkpoint numbers its batches "
            "from 0 again: under the name of an older one they would count as repeats, and their rows would be lost",
        )
    if values.text("batch.id") is not None:
        raise wrong("batch.id", "is for batch writes; a streaming query numbers its batches itself")
