"""v2 produce: `POST /topics/{t}` and `POST /topics/{t}/partitions/{p}`.

The hot path of the service: plain Starlette routes, no models, JSON by msgspec.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from sluice.api.appending import LARGE_BYTES, LARGE_COLUMNS, Outcome, Target, append, limits_of
from sluice.api.errors import JSON, UnsupportedMediaType, body_of, headers_of, status_of
from sluice.api.limits import patiently, received, whole_number
from sluice.api.offsets_text import RecordOffset, offsets_list
from sluice.api.routing import RawRoute
from sluice.api.service import Service, service_of
from sluice.ingest import arrow_body, binary_v2, json_v2
from sluice.ingest.bodies import decode_body
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import MAX_PARTITION, Decoded
from sluice.log_store.errors import InvalidRequest, SluiceError, UnknownTopicOrPartition
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.values import ProducerStamp

ARROW = arrow_body.CONTENT_TYPE
INT_MAX, HOUR_MS = 2**31 - 1, 3_600_000
STAMP_HEADERS = ("sluice-producer-id", "sluice-producer-epoch", "sluice-sequence")


class Decoder(Protocol):
    def __call__(self, body: bytes, *, now_ms: int, limits: IngestLimits) -> Decoded: ...


_DECODERS: Mapping[str, Decoder] = {
    "application/vnd.kafka.json.v2+json": json_v2.decode,
    "application/json": json_v2.decode,
    "": json_v2.decode,
    "application/vnd.kafka.binary.v2+json": binary_v2.decode,
    ARROW: arrow_body.decode,
}


class PartSummary(msgspec.Struct, gc=False, omit_defaults=True):
    partition: int
    base_offset: int
    count: int
    duplicate: bool = False
    """The records were in the log already; this is where."""
    error_code: int | None = None
    error: str | None = None


async def produce(request: Request) -> Response:
    service = service_of(request)
    return await patiently(request, service, _produce(request, service))


async def _produce(request: Request, service: Service) -> Response:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    decoder = _DECODERS.get(media)
    if decoder is None:
        known = ", ".join(filter(None, _DECODERS))
        raise UnsupportedMediaType(f"Content-Type: must be one of {known}", field="Content-Type")
    query: Mapping[str, str] = request.query_params if request.scope["query_string"] else {}
    summary = wants_summary(query.get("response"), media)
    number = partition_number(request.path_params)
    stamp = stamp_of(request.headers, topic_mode=number is None)
    target = Target(request.path_params["t"], number, acks_of(query), timeout_of(query, service), stamp)
    encoding = request.headers.get("content-encoding")
    async with received(request, service) as sent:
        small = encoding is None and len(sent) < (LARGE_COLUMNS if media == ARROW else LARGE_BYTES)
        limits = service.limits if small else limits_of(service, target.topic)

        def decode() -> tuple[Decoded, ProducerStamp | None]:
            return _decode(decoder, sent, encoding, service, limits, stamp)

        decoded, whole_stamp = decode() if small else await service.reading(decode)
        outcome = await append(service, replace(target, stamp=whole_stamp), decoded)
    if outcome.all_failed and outcome.first_error is not None:
        request.scope["sluice.error"] = outcome.first_error.error
    return answer(outcome, summary)


def _decode(
    decoder: Decoder,
    sent: bytes,
    encoding: str | None,
    service: Service,
    limits: IngestLimits,
    stamp: ProducerStamp | None,
) -> tuple[Decoded, ProducerStamp | None]:
    body = decode_body(sent, encoding, max_bytes=limits.max_body_bytes)
    decoded = decoder(body, now_ms=service.log.runtime.clock.wall_ms(), limits=limits)
    if stamp is not None and stamp.topic_mode:
        # What tells a repeat from another request with its number.
        stamp = replace(stamp, crc=zlib.crc32(body), body_count=decoded.count)
    return decoded, stamp


# --- what the request says -----------------------------------------------------------------------


def wants_summary(given: str | None, media: str) -> bool:
    if given is None:
        return media == ARROW
    if given not in ("summary", "full"):
        raise InvalidRequest("response: must be summary or full", field="response")
    return given == "summary"


def partition_number(path: Mapping[str, Any]) -> int | None:
    text = path.get("p")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= MAX_PARTITION):
        raise UnknownTopicOrPartition(f"{text[:40]!r} is no partition number", partition=text[:40])
    return int(text)


def acks_of(query: Mapping[str, str]) -> Acks | None:
    given = query.get("acks")
    return None if given is None else Acks.parse(given)


def timeout_of(query: Mapping[str, str], service: Service) -> float:
    ms = whole_number(query, "timeout_ms", service.settings.request_timeout_ms, low=1, high=HOUR_MS)
    return (ms or 0) / 1000


def stamp_of(headers: Mapping[str, str], *, topic_mode: bool) -> ProducerStamp | None:
    """The idempotent producer's stamp: all three headers or none."""
    if STAMP_HEADERS[0] not in headers and not any(name in headers for name in STAMP_HEADERS):
        return None
    producer_id = whole_number(headers, "sluice-producer-id")
    epoch = whole_number(headers, "sluice-producer-epoch", high=INT_MAX)
    sequence = whole_number(headers, "sluice-sequence", high=INT_MAX)
    if producer_id is None or epoch is None or sequence is None:
        raise InvalidRequest(
            "Sluice-Producer-Id, Sluice-Producer-Epoch and Sluice-Sequence: must be given together", field="headers"
        )
    stamp = ProducerStamp(producer_id, epoch, sequence)
    if stamp.topic_mode != topic_mode:
        made_for = "topic" if stamp.topic_mode else "partition"
        raise InvalidRequest(
            f"Sluice-Producer-Id: {producer_id} is a producer of mode {made_for}, send to a {made_for}",
            field="Sluice-Producer-Id",
        )
    return stamp


# --- what the answer says ------------------------------------------------------------------------


def answer(outcome: Outcome, summary: bool) -> Response:
    listed: dict[str, Any] = {"partitions": _summaries(outcome)} if summary else {"offsets": _offsets(outcome)}
    status, headers = 202 if outcome.acks is Acks.NONE else 200, None
    error = outcome.first_error
    if outcome.duplicate:
        listed["duplicate"] = True
    if error is not None and outcome.all_failed:
        status, headers = status_of(error, v2=True)[0], headers_of(error)
        listed |= msgspec.to_builtins(body_of(error, v2=True))
    return Response(msgspec.json.encode(listed), status, headers, JSON)


def _offsets(outcome: Outcome) -> list[RecordOffset] | msgspec.Raw:
    """One per record, in the order of the request."""
    if outcome.parts and outcome.first_error is None and outcome.acks is not Acks.NONE:
        return _all_offsets(outcome)
    found = [RecordOffset(-1, -1)] * outcome.count
    for number, part in outcome.parts.items():
        result = part.result
        if isinstance(result, SluiceError):
            failed = RecordOffset(number, -1, status_of(result, v2=True)[1], f"{result.error}: {result.message}")
            offsets = [failed] * len(part.indices)
        elif outcome.acks is Acks.NONE:
            offsets = [RecordOffset(number, -1)] * len(part.indices)
        else:
            base = result.base_offset
            offsets = [RecordOffset(number, offset) for offset in range(base, base + len(part.indices))]
        for index, offset in zip(part.indices.tolist(), offsets, strict=True):
            found[index] = offset
    return found


def _all_offsets(outcome: Outcome) -> msgspec.Raw:
    """Without a loop over records."""
    partitions = np.full(outcome.count, -1, np.int64)
    offsets = np.full(outcome.count, -1, np.int64)
    for number, part in outcome.parts.items():
        if isinstance(part.result, AppendResult):
            partitions[part.indices] = number
            offsets[part.indices] = np.arange(part.result.base_offset, part.result.base_offset + len(part.indices))
    return msgspec.Raw(offsets_list(partitions, offsets))


def _summaries(outcome: Outcome) -> list[PartSummary]:
    found = []
    for number, part in sorted(outcome.parts.items()):
        count, result = len(part.indices), part.result
        if isinstance(result, SluiceError):
            text = f"{result.error}: {result.message}"
            found.append(PartSummary(number, -1, count, error_code=status_of(result, v2=True)[1], error=text))
        else:
            base = -1 if outcome.acks is Acks.NONE else result.base_offset
            found.append(PartSummary(number, base, count, result.duplicate))
    return found


ROUTES = [
    RawRoute("POST", "/topics/{t}", produce),
    RawRoute("POST", "/topics/{t}/partitions/{p}", produce),
]
