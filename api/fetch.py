"""Reads: the stateless long-poll fetch, offsets by time.

Rows of the tail cache are served on the event loop, files are read by a few threads, and a poll that waits is a
future in `waiting.Waiting`: it costs no thread and is woken by the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from sluice.api.appending import LARGE_BYTES
from sluice.api.errors import JSON
from sluice.api.limits import whole_number
from sluice.api.produce import ARROW, partition_number
from sluice.api.quotas import count_fetched, sit_out
from sluice.api.routing import RawRoute
from sluice.api.service import Service, service_of
from sluice.api.waiting import while_connected
from sluice.log_store.errors import InvalidRecord, InvalidRequest
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import Fetched, FoundOffset, PartitionReads
from sluice.log_store.reader import Rows
from sluice.log_store.records import STORED_SCHEMA, micros_of
from sluice.log_store.values import PartitionRef

DEFAULT_WAIT_MS = 500
FENCED_LOOK_S = 1.0
"""How often a poll of a fenced service looks for what the new leader commits: nobody wakes it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANY = msgspec.json.Decoder(msgspec.Raw)


class Asked(msgspec.Struct, frozen=True):
    offset: int
    max_records: int
    max_bytes: int
    min_bytes: int
    max_wait_s: float
    format: str
    """json, string, binary, or arrow."""


class HeaderOut(msgspec.Struct, gc=False):
    name: str
    value: bytes | None


class RecordOut(msgspec.Struct, gc=False):
    offset: int
    timestamp: int
    key: msgspec.Raw | str | bytes | None
    value: msgspec.Raw | str | bytes | None
    headers: list[HeaderOut]


class FetchOut(msgspec.Struct):
    topic_name: str
    partition_id: int
    high_watermark: int
    log_start_offset: int
    next_offset: int
    data: list[RecordOut]


async def fetch(request: Request) -> Response:
    service, topic, partition = await _opened(request)
    asked = asked_of(request.query_params, service, arrow=request.scope.get("sluice.media") == ARROW)
    begun = service.log.runtime.clock.boottime()
    throttle_ms = await sit_out(request, service, topic, asked.max_wait_s)
    if throttle_ms:
        found = Fetched(partition.high_watermark, partition.log_start, Rows([], asked.offset))
    else:
        found = await _wait_and_read(request, service, topic, partition, asked, begun)
    rows = found.rows
    size = sum(batch.nbytes for batch in rows.batches)
    content = await _content(service, partition, asked, found, size)
    service.metrics.fetched(topic, rows.count, size)
    throttle_ms = throttle_ms or count_fetched(request, service, topic, len(content))
    if throttle_ms and asked.format != "arrow":
        content = content[:-1] + b',"throttle_time_ms":%d}' % throttle_ms
    return Response(content, 200, head_of(found), ARROW if asked.format == "arrow" else JSON)


def head_of(found: Fetched) -> dict[str, str]:
    return {
        "Sluice-High-Watermark": str(found.high_watermark),
        "Sluice-Log-Start-Offset": str(found.log_start),
        "Sluice-Next-Offset": str(found.rows.next_offset),
    }


async def _opened(request: Request) -> tuple[Service, str, PartitionLog]:
    service = service_of(request)
    if "c" in request.path_params:
        service.check_cluster(request.path_params["c"])
    topic, number = request.path_params["t"], partition_number(request.path_params) or 0
    partition = service.log.partition(topic, number)
    if not partition.opened:
        await service.reading(partition.open)
    return service, topic, partition


def asked_of(query: Mapping[str, str], service: Service, *, arrow: bool) -> Asked:
    settings = service.settings
    most = service.log.settings.log.read_max_bytes
    offset = whole_number(query, "offset")
    if offset is None:
        raise InvalidRequest("offset: is missing", field="offset")
    wait_ms = whole_number(query, "max_wait_ms", DEFAULT_WAIT_MS) or 0
    form = query.get("format", "json")
    if form not in ("json", "string", "binary"):
        raise InvalidRequest("format: must be json, string or binary", field="format")
    return Asked(
        offset=offset,
        max_records=whole_number(query, "max_records", 500, low=1) or 1,
        max_bytes=min(whole_number(query, "max_bytes", 1 << 20, low=1) or 1, most),
        min_bytes=min(whole_number(query, "min_bytes", 1) or 0, most),
        max_wait_s=min(wait_ms, settings.fetch_max_wait_ms) / 1000,
        format="arrow" if arrow else form,
    )


async def _content(service: Service, partition: PartitionLog, asked: Asked, found: Fetched, size: int) -> bytes:
    """The body. Polls that a commit woke up together mostly ask for the same: it is made once for all of them."""
    ref, rows = partition.ref, found.rows
    same = (ref.folder, asked.format, asked.offset, rows.next_offset, found.high_watermark, found.log_start, rows.count)
    if service.last_answer[0] == same:
        return service.last_answer[1]
    if size >= LARGE_BYTES:
        return await service.reading(partial(encode, ref, asked, found))
    service.last_answer = (same, encode(ref, asked, found))
    return service.last_answer[1]


async def _wait_and_read(
    request: Request, service: Service, topic: str, partition: PartitionLog, asked: Asked, begun: float
) -> Fetched:
    """Read; while there is less than was asked for, wait for the next commit and read again."""
    clock, log = service.log.runtime.clock, service.log
    deadline = begun + asked.max_wait_s
    while True:
        found = await _read(service, topic, partition, asked)
        left = deadline - clock.boottime()
        if enough(asked, found) or left <= 0 or service.waiting.stopping:
            return found
        wait = min(left, FENCED_LOOK_S) if log.fenced else left
        await while_connected(request.receive, service.waiting.past(partition, found.high_watermark, wait))


def enough(asked: Asked, found: Fetched) -> bool:
    """The size of the rows counts, as Kafka counts the bytes it sends; a full answer need not wait for more."""
    if found.rows.count >= asked.max_records:
        return True
    size: int = sum(batch.nbytes for batch in found.rows.batches)
    return size >= min(asked.min_bytes, asked.max_bytes)


async def _read(service: Service, topic: str, partition: PartitionLog, asked: Asked) -> Fetched:
    log = service.log
    log.catalog.state.get(topic, partition.ref.topic_id)  # a poll that waited may find its topic gone
    work = partial(
        PartitionReads(partition).fetch, asked.offset, max_records=asked.max_records, max_bytes=asked.max_bytes
    )
    at_the_end = asked.offset >= partition.high_watermark
    if not log.fenced and (at_the_end or log.runtime.tails.get(partition.ref.folder, asked.offset)):
        return work()
    return await service.reading(work)


# --- answers -------------------------------------------------------------------------------------


def encode(ref: PartitionRef, asked: Asked, found: Fetched) -> bytes:
    return _arrow(found) if asked.format == "arrow" else _json(ref.topic, ref.partition, found, asked.format)


def _arrow(found: Fetched) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, STORED_SCHEMA) as writer:
        for batch in found.rows.batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _json(topic: str, number: int, found: Fetched, form: str) -> bytes:
    data = [record for batch in found.rows.batches for record in records_out(batch, form)]
    answer = FetchOut(topic, number, found.high_watermark, found.log_start, found.rows.next_offset, data)
    return msgspec.json.encode(answer)


def records_out(batch: pa.RecordBatch, form: str) -> Iterator[RecordOut]:
    shown = {"json": _as_json, "string": _as_string, "binary": _as_binary}[form]
    columns = zip(
        batch.column("offset").to_pylist(),
        (micros_of(batch.column("timestamp")) // 1000).tolist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        batch.column("headers").to_pylist(),
        strict=True,
    )
    for offset, ms, key, value, headers in columns:
        try:
            yield RecordOut(
                offset, ms, shown(key), shown(value), [HeaderOut(h["key"], h["value"]) for h in headers or ()]
            )
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InvalidRecord(
                f"the record at offset {offset} is no {form}: ask for format=binary", field="format"
            ) from None


def _as_json(data: bytes | None) -> msgspec.Raw | None:
    if data is None:
        return None
    data.decode()  # the parser skips strings without looking at their bytes
    _ANY.decode(data)
    return msgspec.Raw(data)


def _as_string(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _as_binary(data: bytes | None) -> bytes | None:
    return data


# --- offsets -------------------------------------------------------------------------------------


async def offset_at(request: Request) -> Response:
    """`at=earliest|latest|max_timestamp|<ms>|<RFC 3339>`; Confluent's `offset_type=earliest_and_latest` as well."""
    service, topic, partition = await _opened(request)
    reads, at = PartitionReads(partition), request.query_params.get("at", "latest")
    base = {"topic_name": topic, "partition_id": partition.ref.partition}
    kind = request.query_params.get("offset_type")
    if kind not in (None, "earliest_and_latest"):
        raise InvalidRequest("offset_type: must be earliest_and_latest", field="offset_type")
    if kind is not None:
        low, high = await service.reading(lambda: (reads.earliest(), reads.latest()))
        return _answer(base | {"earliest_offset": low.offset, "latest_offset": high.offset})
    found = await service.reading(_lookup(reads, at))
    return _answer(base | {"offset": found.offset, "timestamp": found.timestamp_ms})


def _lookup(reads: PartitionReads, at: str) -> Callable[[], FoundOffset]:
    named = {"earliest": reads.earliest, "latest": reads.latest, "max_timestamp": reads.max_timestamp}
    if at in named:
        return named[at]
    return partial(reads.at_time, _ms(at))


def _ms(at: str) -> int:
    if at.isascii() and at.isdecimal() and len(at) <= 18:
        return int(at)
    try:
        # A "+" of the zone that was not escaped arrives as a space.
        moment = datetime.fromisoformat(at.replace(" ", "+") if "T" in at else at)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequest(
            "at: must be earliest, latest, max_timestamp, milliseconds or an RFC 3339 time with its zone", field="at"
        )
    return (moment - _EPOCH) // timedelta(milliseconds=1)


async def v2_offsets(request: Request) -> Response:
    service, _, partition = await _opened(request)
    reads = PartitionReads(partition)
    low, high = await service.reading(lambda: (reads.earliest(), reads.latest()))
    return _answer({"beginning_offset": low.offset, "end_offset": high.offset})


def _answer(content: dict[str, object]) -> Response:
    return Response(msgspec.json.encode(content), 200, media_type=JSON)


_PARTITION = "/v3/clusters/{c}/topics/{t}/partitions/{p}"
ROUTES = [
    RawRoute("GET", f"{_PARTITION}/records", fetch),
    RawRoute("GET", f"{_PARTITION}/offset", offset_at),
    RawRoute("GET", "/topics/{t}/partitions/{p}/offsets", v2_offsets),
]
