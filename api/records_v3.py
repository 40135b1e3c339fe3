"""v3 produce: `…/records` (one object, or concatenated objects with one report each) and `…/records:batch`.

A record that is wrong does not harm the others, unless the request has a producer's number: a repeat must find the
same records, so such a request is stored whole or refused. A body with a length is taken whole; a chunked one is
answered while it arrives, piece by piece, so it may be as long as its sender likes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from sluice.api.appending import LARGE_BYTES, Target, append, limits_of, topic_of
from sluice.api.errors import JSON, UnsupportedMediaType, body_of, headers_of, status_of
from sluice.api.limits import note_refusals, patiently, received, streamed
from sluice.api.produce import acks_of, stamp_of, timeout_of
from sluice.api.quotas import admit_produce
from sluice.api.routing import RawRoute
from sluice.api.service import Service, service_of
from sluice.ingest.bodies import decode_body
from sluice.ingest.json_scan import ObjectSplitter
from sluice.ingest.json_v3 import decode_batch, decode_records
from sluice.ingest.limits import IngestLimits
from sluice.ingest.request import NOT_GIVEN, Decoded, PartlyDecoded, refuse_empty
from sluice.ingest.validate import validate
from sluice.log_store.errors import (
    ClientError,
    InvalidRequest,
    RecordListTooLarge,
    SluiceError,
    UnknownTopicOrPartition,
)
from sluice.log_store.pending import Acks
from sluice.log_store.records import micros_of

_PIECE_BYTES = 1 << 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Json = dict[str, Any]
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Stored:
    partition: int
    offset: int
    """-1: nobody waited for it (acks=0), or it is a repeat of something so old that it is forgotten."""
    acked: bool = True
    duplicate: bool = False


class _Duplex(StreamingResponse):
    """Answers while the body still arrives: nobody but the handler may take pieces of it off the connection."""

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await super().__call__(scope, _nothing, send)


async def _nothing() -> Message:
    """A client that goes away is noticed where its body is read."""
    never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return await never


async def records(request: Request) -> Response:
    service, target = await _target(request)
    if "content-length" not in request.headers:
        if target.stamp is not None:
            raise InvalidRequest(
                "Sluice-Sequence: numbers a request, and a stream is none: send a Content-Length",
                field="Sluice-Sequence",
            )
        return _Duplex(_reports_of_stream(request, service, target), media_type=JSON)
    return await patiently(request, service, _whole_records(request, service, target))


async def _whole_records(request: Request, service: Service, target: Target) -> Response:
    async with received(request, service) as sent:
        body = await _plain(request, service, sent)
        partly = await _decoded(service, target, body, _decode_whole)
        found = await _append_partly(service, _numbered(target, body, partly), partly)
    note_refusals(request, found.values())
    if len(found) == 1 and isinstance(found[0], SluiceError):
        raise found[0]
    if all(isinstance(one, SluiceError) for one in found.values()):
        return _all_failed(request, found)
    return Response(b"\n".join(_reports(service, target, partly, found)), _status(found, whole=200), media_type=JSON)


async def records_batch(request: Request) -> Response:
    service, target = await _target(request)
    return await patiently(request, service, _batch(request, service, target))


async def _batch(request: Request, service: Service, target: Target) -> Response:
    async with received(request, service) as sent:
        body = await _plain(request, service, sent)
        ids, partly = await _decoded(service, target, body, decode_batch)
        found = await _append_partly(service, _numbered(target, body, partly), partly)
    note_refusals(request, found.values())
    successes: list[Json] = []
    failures: list[Json] = []
    for index, name in enumerate(ids):
        report = _report(service, target, partly, found, index)
        (failures if isinstance(found[index], SluiceError) else successes).append({"id": name, **report})
    content = msgspec.json.encode({"successes": successes, "failures": failures})
    return Response(content, _status(found, whole=207), media_type=JSON)


def _status(found: Mapping[int, Stored | SluiceError], *, whole: int) -> int:
    """`whole` where nothing failed, but 202 where nobody waited."""
    if any(isinstance(one, SluiceError) for one in found.values()):
        return 207
    return whole if any(isinstance(one, Stored) and one.acked for one in found.values()) else 202


def _all_failed(request: Request, found: Mapping[int, Stored | SluiceError]) -> Response:
    """The first error, as the body of every refusal, and with it a report for each record."""
    errors = [error for _, error in sorted(found.items()) if isinstance(error, SluiceError)]
    request.scope["sluice.error"] = errors[0].error
    told: Json = msgspec.to_builtins(body_of(errors[0])) | {"reports": [body_of(error) for error in errors]}
    return Response(msgspec.json.encode(told), status_of(errors[0])[0], headers_of(errors[0]), JSON)


def _numbered(target: Target, body: bytes, partly: PartlyDecoded) -> Target:
    """With what tells a repeat from another request of its number (R-9)."""
    if target.stamp is None:
        return target
    for failure in partly.failures:
        raise failure.error
    return replace(target, stamp=replace(target.stamp, crc=zlib.crc32(body), body_count=partly.decoded.count))


class _Decode(Protocol[_T_co]):
    def __call__(self, body: bytes, *, now_ms: int, limits: IngestLimits) -> _T_co: ...


async def _decoded(service: Service, target: Target, body: bytes, decode: _Decode[_T]) -> _T:
    small = len(body) < LARGE_BYTES
    limits = service.limits if small else limits_of(service, target.topic)

    def work() -> _T:
        return decode(body, now_ms=service.log.runtime.clock.wall_ms(), limits=limits)

    return work() if small else await service.reading(work)


def _decode_whole(body: bytes, *, now_ms: int, limits: IngestLimits) -> PartlyDecoded:
    splitter = ObjectSplitter(limits.max_object_bytes)
    objects: list[bytes] = []
    for start in range(0, len(body), _PIECE_BYTES):
        objects += splitter.feed(body[start : start + _PIECE_BYTES])
        if len(objects) > limits.max_records:  # before all of a body that is nothing but braces is taken apart
            raise RecordListTooLarge(f"records: must not be more than {limits.max_records}", field="records")
    splitter.finish()
    refuse_empty(len(objects), "records")
    return decode_records(objects, now_ms=now_ms, limits=limits)


async def _target(request: Request) -> tuple[Service, Target]:
    service = service_of(request)
    service.check_cluster(request.path_params["c"])
    media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if media != JSON:
        raise UnsupportedMediaType(f"Content-Type: must be {JSON}", field="Content-Type")
    admit_produce(request, service)
    meta = await topic_of(service, request.path_params["t"])
    query = request.query_params
    stamp = stamp_of(request.headers, topic_mode=True)
    return service, Target(meta.name, None, acks_of(query), timeout_of(query, service), stamp)


async def _plain(request: Request, service: Service, sent: bytes) -> bytes:
    encoding = request.headers.get("content-encoding")
    if encoding is None:
        return sent
    return await service.reading(lambda: decode_body(sent, encoding, max_bytes=service.limits.max_body_bytes))


async def _reports_of_stream(request: Request, service: Service, target: Target) -> AsyncIterator[bytes]:
    splitter = ObjectSplitter(service.limits.max_object_bytes)
    try:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise InvalidRequest("Content-Encoding: a stream of records must be plain", field="Content-Encoding")
        async for piece in streamed(request, service):
            if objects := splitter.feed(piece):
                service.access.enter(request.scope)  # a stream may outlive its token
                now_ms = service.log.runtime.clock.wall_ms()
                partly = decode_records(objects, now_ms=now_ms, limits=service.limits)
                found = await _append_partly(service, target, partly)
                yield b"\n".join([*_reports(service, target, partly, found), b""])
            if service.waiting.stopping:
                return
        splitter.finish()
    except SluiceError as error:
        yield msgspec.json.encode(body_of(error))  # the stream cannot be followed any further
    except ClientDisconnect:
        return


# --- append what can be appended -----------------------------------------------------------------


async def _append_partly(service: Service, target: Target, partly: PartlyDecoded) -> dict[int, Stored | SluiceError]:
    """What became of each record, by its place in the request."""
    found: dict[int, Stored | SluiceError] = {failure.index: failure.error for failure in partly.failures}
    if not partly.decoded.count:
        return found
    places = np.array(partly.indices)
    try:
        return found | await _append(service, target, partly.decoded, places)
    except ClientError:
        if target.stamp is not None:
            raise
        bad = _judge(service, target, partly.decoded)
    found |= {int(places[index]): error for index, error in bad.items()}
    good = np.array([index for index in range(partly.decoded.count) if index not in bad], np.int64)
    if len(good):
        wished = partly.decoded.explicit_partitions
        rest = Decoded(partly.decoded.batch.take(pa.array(good)), None if wished is None else wished[good])
        try:
            found |= await _append(service, target, rest, places[good])
        except SluiceError as error:
            found |= {int(place): error for place in places[good]}
    return found


async def _append(
    service: Service, target: Target, decoded: Decoded, places: np.ndarray[Any, np.dtype[np.int64]]
) -> dict[int, Stored | SluiceError]:
    outcome = await append(service, target, decoded)
    found: dict[int, Stored | SluiceError] = {}
    if outcome.below_window:
        found = {place: Stored(-1, -1, duplicate=True) for place in places.tolist()}
    acked = outcome.acks is not Acks.NONE
    for number, part in outcome.parts.items():
        result = part.result
        for rank, place in enumerate(places[part.indices].tolist()):
            if isinstance(result, SluiceError):
                found[place] = result
            else:
                found[place] = Stored(number, result.base_offset + rank if acked else -1, acked, result.duplicate)
    return found


def _judge(service: Service, target: Target, decoded: Decoded) -> Mapping[int, SluiceError]:
    """Which records are to blame for a refusal, one by one."""
    meta = service.log.topic(target.topic)
    config, now_ms = meta.config(), service.log.runtime.clock.wall_ms()
    bad: dict[int, SluiceError] = {}
    for index in range(decoded.count):
        wished = NOT_GIVEN if decoded.explicit_partitions is None else int(decoded.explicit_partitions[index])
        try:
            if wished != NOT_GIVEN:
                meta.partition(wished)
            validate(decoded.batch.slice(index, 1), config, now_ms)
        except (ClientError, UnknownTopicOrPartition) as error:
            bad[index] = error
    return bad


# --- reports -------------------------------------------------------------------------------------


def _reports(
    service: Service, target: Target, partly: PartlyDecoded, found: Mapping[int, Stored | SluiceError]
) -> list[bytes]:
    return [msgspec.json.encode(_report(service, target, partly, found, index)) for index in sorted(found)]


def _report(
    service: Service, target: Target, partly: PartlyDecoded, found: Mapping[int, Stored | SluiceError], index: int
) -> Json:
    stored = found[index]
    if isinstance(stored, SluiceError):
        told: Json = msgspec.to_builtins(body_of(stored))
        return told
    row = partly.indices.index(index) if partly.failures else index
    batch = partly.decoded.batch
    ms = int(micros_of(batch.column("timestamp").slice(row, 1))[0]) // 1000
    report: Json = {
        "error_code": 200,
        "cluster_id": service.log.cluster_id,
        "topic_name": target.topic,
        "partition_id": stored.partition,
        "offset": stored.offset,
        "timestamp": (_EPOCH + timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z"),
        "key": _described(batch, "key", row, partly.key_types[row]),
        "value": _described(batch, "value", row, partly.value_types[row]),
    }
    return report | {"duplicate": True} if stored.duplicate else report


def _described(batch: pa.RecordBatch, column: str, row: int, kind: str | None) -> Json | None:
    if kind is None:
        return None
    return {"type": kind, "size": pc.binary_length(batch.column(column)[row]).as_py() or 0}


_TOPIC = "/v3/clusters/{c}/topics/{t}"
ROUTES = [RawRoute("POST", f"{_TOPIC}/records", records), RawRoute("POST", f"{_TOPIC}/records:batch", records_batch)]
