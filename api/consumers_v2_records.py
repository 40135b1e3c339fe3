"""Records in v2 answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sluice.api.consumers_v2_instance import Found
from sluice.api.consumers_v2_models import WrongFormat
from sluice.api.fetch import HeaderOut, records_out
from sluice.api.quotas import count_fetched
from sluice.api.service import service_of

FORMATS = ("json", "binary")
LARGE = 256 << 10
"""Bytes of records that are encoded by a thread, so that the loop goes on."""


class V2Record(msgspec.Struct, gc=False):
    """Confluent's members first; timestamp and headers are ours."""

    topic: str
    key: msgspec.Raw | str | bytes | None
    value: msgspec.Raw | str | bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: list[HeaderOut]


def media_of(form: str) -> str:
    return f"application/vnd.kafka.{form}.v2+json"


def check_accept(request: Request, form: str) -> str:
    """The type to answer with. 40601 when another embedded format is asked for than the instance was made with."""
    asked: str | None = request.scope.get("sluice.media")
    if asked in {media_of(other) for other in FORMATS if other != form}:
        raise WrongFormat(f"Accept: this instance was made with format {form}", field="Accept")
    return asked or media_of(form)


async def answer(request: Request, found: Sequence[Found], form: str, media: str) -> Response:
    service = service_of(request)
    sizes = [sum(batch.nbytes for batch in one.rows.rows.batches) for one in found]
    for one, size in zip(found, sizes, strict=True):
        service.metrics.fetched(one.where.topic, one.rows.rows.count, size)
        count_fetched(request, service, one.where.topic, size)
    work = partial(_encoded, found, form)
    content = await service.reading(work) if sum(sizes) >= LARGE else work()
    return Response(content, media_type=media)


def _encoded(found: Sequence[Found], form: str) -> bytes:
    return msgspec.json.encode(
        [
            V2Record(one.where.topic, row.key, row.value, one.where.partition, row.offset, row.timestamp, row.headers)
            for one in found
            for batch in one.rows.rows.batches
            for row in records_out(batch, form)
        ]
    )
