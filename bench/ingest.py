"""Bytes of a produce request to columns, on one core: what the write side costs before the log."""

from __future__ import annotations

import base64
import gc
import io
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa

from bench.data import batch
from bench.figures import Findings, at_least
from bench.harness import seconds
from sluice.ingest import arrow_body, binary_v2, bodies, json_v2, json_v3
from sluice.ingest.json_scan import ObjectSplitter
from sluice.ingest.partitioner import assign, murmur2, split

RECORDS, ARROW_RECORDS, ROUNDS = 1_000, 10_000, 15
NOW_MS = 1_750_000_000_000
JSON, KEYED, ARROW, PARSED = (
    "v2 JSON",
    "v2 JSON, key and timestamp",
    "Arrow",
    "msgspec parse into Python objects, nothing kept",
)

Work = Callable[[], object]


def run() -> Findings:
    findings = Findings(
        "ingest",
        f"{RECORDS:,} records of 100 B per JSON body, {ARROW_RECORDS:,} per Arrow body, one thread",
        {"records": RECORDS, "arrow_records": ARROW_RECORDS, "key": "17 B", "partitions": 8},
        notes=["decode only: no HTTP, no log", "all rates are records/s but that of the bodies, which is plain bytes"],
    )
    rates = _rates(_works())
    for name, rounds in rates.items():
        findings.add(
            name, "MB/s" if name.startswith("body") else "records/s", rounds, at_least(2.5e6) if name == JSON else None
        )
    findings.ratio(f"{JSON} / {PARSED}", rates[JSON], rates[PARSED], at_least(1))
    findings.ratio(f"{ARROW} / {JSON}", rates[ARROW], rates[JSON], at_least(3))
    return findings


def _works() -> dict[str, tuple[Work, float]]:
    values = [_order(n) for n in range(RECORDS)]
    keys = [b"customer-%08d" % n for n in range(ARROW_RECORDS)]
    plain = _v2(b'{"value":%s}' % value for value in values)
    keyed = _v2(
        b'{"key":"%s","value":%s,"timestamp":%d}' % (key, value, NOW_MS)
        for key, value in zip(keys, values, strict=False)
    )
    headed = _v2(b'{"value":%s,"headers":[{"name":"trace","value":"AAECAwQFBgc="}]}' % value for value in values)
    binary = _v2(b'{"value":"%s"}' % base64.b64encode(value) for value in values)
    objects = [
        b'{"key":{"type":"STRING","data":"%s"},"value":{"type":"JSON","data":%s}}' % (key, value)
        for key, value in zip(keys, values, strict=False)
    ]
    entries = b'{"entries":[' + b",".join(b'{"id":"%d",' % n + text[1:] for n, text in enumerate(objects)) + b"]}"
    single = _v2([b'{"value":%s}' % values[0]])
    rows = batch(ARROW_RECORDS)
    with_keys = rows.set_column(1, "key", pa.array(keys, pa.binary()))
    table = pa.table({"value": rows.column("value")})
    full = pa.table({"key": with_keys.column("key"), "value": rows.column("value"), "timestamp": rows.column(0)})
    placed = assign(with_keys, None, 8, 0)
    stream = b"\n".join(objects)

    def decoded_stream() -> object:
        return json_v3.decode_records(ObjectSplitter(1 << 20).feed(stream), now_ms=NOW_MS)

    megabytes = len(plain) / 1e6
    return {
        PARSED: (partial(msgspec.json.decode, plain), RECORDS),
        JSON: (partial(json_v2.decode, plain, now_ms=NOW_MS), RECORDS),
        KEYED: (partial(json_v2.decode, keyed, now_ms=NOW_MS), RECORDS),
        "v2 JSON, one header": (partial(json_v2.decode, headed, now_ms=NOW_MS), RECORDS),
        "v2 JSON, one record": (partial(json_v2.decode, single, now_ms=NOW_MS), 1),
        "v2 binary": (partial(binary_v2.decode, binary, now_ms=NOW_MS), RECORDS),
        "v3 stream, split and decoded": (decoded_stream, RECORDS),
        "v3 batch": (partial(json_v3.decode_batch, entries, now_ms=NOW_MS), RECORDS),
        ARROW: (partial(arrow_body.decode, _ipc(table, None), now_ms=NOW_MS), ARROW_RECORDS),
        "Arrow, key and timestamp": (partial(arrow_body.decode, _ipc(full, None), now_ms=NOW_MS), ARROW_RECORDS),
        "Arrow, zstd buffers": (partial(arrow_body.decode, _ipc(full, "zstd"), now_ms=NOW_MS), ARROW_RECORDS),
        "murmur2": (partial(murmur2, with_keys.column("key")), ARROW_RECORDS),
        "assign by key": (partial(assign, with_keys, None, 8, 0), ARROW_RECORDS),
        "assign in turn": (partial(assign, rows, None, 8, 0), ARROW_RECORDS),
        "split over 8": (partial(split, with_keys, placed), ARROW_RECORDS),
        "split, one partition": (partial(split, with_keys, np.zeros(ARROW_RECORDS, np.int32)), ARROW_RECORDS),
        "body gzip": (partial(bodies.decode_body, _packed(plain, "gzip"), "gzip"), megabytes),
        "body zstd": (partial(bodies.decode_body, _packed(plain, "zstd"), "zstd"), megabytes),
    }


def _order(number: int) -> bytes:
    """Like bench.data's, but JSON: no number begins with 0."""
    text = b'{"order":%d,"customer":"c%03d","cents":%d,"status":"shipped","note":"' % (
        10**8 + number,
        number,
        7 * number,
    )
    return text.ljust(98, b"x") + b'"}'


def _v2(records: Iterable[bytes]) -> bytes:
    return b'{"records":[' + b",".join(records) + b"]}"


def _ipc(table: pa.Table, compression: str | None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _packed(body: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(body)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _rates(works: dict[str, tuple[Work, float]]) -> dict[str, list[float]]:
    """Rounds of about 30 ms each, in turn, so that all met the same machine. Collecting garbage is part of the work."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    times = {name: max(3, int(0.03 / _once(work))) for name, (work, _) in works.items()}
    for _ in range(ROUNDS):
        for name, (work, records) in works.items():
            gc.collect()
            rates[name].append(records * times[name] / seconds(partial(_repeat, work, times[name])))
    return rates


def _once(work: Work) -> float:
    work()
    return min(seconds(work) for _ in range(3))


def _repeat(work: Work, times: int) -> None:
    for _ in range(times):
        work()
