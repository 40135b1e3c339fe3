"""Bodies that are almost right: a decoder answers with a valid batch or one of our errors, and with nothing else."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.ingest import arrow_body, binary_v2, bodies, json_v2, json_v3
from sluice.ingest.json_scan import ObjectSplitter
from sluice.ingest.limits import IngestLimits
from sluice.ingest.partitioner import assign, split
from sluice.ingest.request import Decoded
from sluice.log_store.errors import ClientError, SluiceError
from sluice.log_store.records import MAX_TIMESTAMP_MS, RECORD_SCHEMA, micros_of
from tests.counts import FULL, FUZZ_BODIES
from tests.support.bodies import HEADER_LIST, NOW_MS, entries, ipc, mutations, v2

LIMITS = IngestLimits(max_body_bytes=1 << 16, max_records=500, max_arrow_records=500, max_arrow_batches=20)

JSON = [
    v2(b'{"key":"k","value":{"a":[1,2.5,"x\\u00e9"]},"partition":1,"timestamp":1750000000000}', b'{"value":null}'),
    v2(*[b'{"key":{"id": %d },"value":"text"}' % n for n in range(20)]),
    v2(
        b'{"headers":[{"name":"a","value":"QQ=="},{"name":"b"}],"value":1}',
        b'{"value":[' + b"[" * 50 + b"]" * 51 + b"}",
    ),
    v2('{"value":"é€😀"}'.encode()),
]
BINARY = [
    v2(b'{"key":"QUJD","value":"AP8=","partition":0}', b'{"value":null,"timestamp":5}'),
    v2(*[b'{"value":"e30="}'] * 20),
]
V3 = [
    b'{"partition_id":1,"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":{"a":[1]}},"timestamp":5}',
    b'{"value":{"type":"BINARY","data":"AP8="},"timestamp":"2024-01-02T03:04:05.678+01:00","headers":[{"name":"x"}]}',
]
BATCH = [entries(*[b'{"id":"%d",' % n + V3[n % 2][1:] for n in range(6)])]
_BYTES = pa.array([b"abc", None, b"", b"x" * 30] * 5, pa.binary())
_FULL = pa.table(
    {
        "value": _BYTES,
        "key": pa.array(["a", "b"] * 10).dictionary_encode(),
        "partition": pa.array([1, None] * 10, pa.int16()),
        "timestamp": pa.array(range(20), pa.timestamp("ns", tz="UTC")),
        "headers": pa.array([[{"name": "n", "value": b"v"}], None] * 10, HEADER_LIST),
    }
)
ARROW = [
    ipc(_FULL),
    ipc(_FULL, rows=7),
    ipc(_FULL, compression="zstd"),
    ipc(_FULL, compression="lz4"),
    ipc(pa.table({"value": _BYTES.cast(pa.binary_view()), "key": pa.array(["é"] * 20, pa.large_string())})),
    ipc(pa.table({"value": pa.array([b"abc"] * 20, pa.binary(3)), "timestamp": pa.array(range(20))})),
]


def check(decoded: Decoded) -> None:
    """What comes out is fit for the log: the right schema, valid memory, numbers in their bounds."""
    batch = decoded.batch
    batch.validate(full=True)
    assert batch.schema.equals(RECORD_SCHEMA)
    if batch.num_rows:
        micros = micros_of(batch.column("timestamp"))
        assert 0 <= int(micros.min()) <= int(micros.max()) <= MAX_TIMESTAMP_MS * 1000
        assert not (micros % 1000).any()
    for name in ("key", "value"):
        column = batch.column(name)
        assert len(column) == decoded.count
    try:
        placed = assign(batch, decoded.explicit_partitions, 3, 1)
    except ClientError:
        return
    assert sum(part.batch.num_rows for part in split(batch, placed).values()) == decoded.count


def decode_batch(body: bytes) -> Decoded:
    ids, partly = json_v3.decode_batch(body, now_ms=NOW_MS, limits=LIMITS)
    assert len(ids) == len(partly.indices) + len(partly.failures)
    return partly.decoded


def decode_stream(body: bytes) -> Decoded:
    splitter, objects = ObjectSplitter(LIMITS.max_object_bytes), []
    for at in range(0, len(body), 100):
        objects += splitter.feed(body[at : at + 100])
    splitter.finish()
    return json_v3.decode_records(objects, now_ms=NOW_MS, limits=LIMITS).decoded


DECODERS: dict[str, tuple[Callable[[bytes], Decoded], list[bytes]]] = {
    "json_v2": (lambda body: json_v2.decode(body, now_ms=NOW_MS, limits=LIMITS), JSON),
    "binary_v2": (lambda body: binary_v2.decode(body, now_ms=NOW_MS, limits=LIMITS), BINARY),
    "json_v3": (lambda body: json_v3.decode_record(body, now_ms=NOW_MS, limits=LIMITS).decoded, V3),
    "json_v3 batch": (decode_batch, BATCH),
    "json_v3 stream": (decode_stream, [b"\n".join(V3 * 3), b"".join(V3)]),
    "arrow": (lambda body: arrow_body.decode(body, now_ms=NOW_MS, limits=LIMITS), ARROW),
}


@pytest.mark.parametrize("name", DECODERS)
def test_only_our_errors_come_out(name: str) -> None:
    decode, corpus = DECODERS[name]
    for body in corpus:
        check(decode(body))
    good, lengths = 0, [1]
    for body in mutations(corpus, FUZZ_BODIES, zlib.crc32(name.encode())):
        try:
            decoded = decode(body)
        except ClientError as error:
            lengths.append(len(error.message))
            continue
        except Exception as error:
            raise AssertionError(f"{error!r} from {body!r}") from error
        check(decoded)
        good += 1
    assert 0 < min(lengths) <= max(lengths) < 1000
    assert good, "some mutations are harmless; if none is, nothing was decoded"


def _flips(body: bytes) -> list[bytes]:
    changes = (1, 0x80, 0xFF) if FULL else (0xFF,)
    return [body[:at] + bytes([body[at] ^ change]) + body[at + 1 :] for at in range(len(body)) for change in changes]


@pytest.mark.parametrize("number", range(len(ARROW)))
def test_no_changed_byte_of_an_arrow_stream_gets_through_unnoticed(number: int) -> None:
    """Every byte of small streams: metadata is where a wrong number would hurt most."""
    decode, _ = DECODERS["arrow"]
    for body in _flips(ARROW[number]):
        try:
            check(decode(body))
        except SluiceError:
            continue


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compressed_bodies(encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else lambda data: pa.compress(data, codec="zstd", asbytes=True)
    corpus = [pack(JSON[1] * 20), pack(b"") + pack(b"x" * 5000)]
    for body in mutations(corpus, FUZZ_BODIES, 7):
        try:
            assert len(bodies.decode_body(body, encoding, max_bytes=1 << 16)) <= 1 << 16
        except ClientError:
            continue


BOMBS = Path(__file__).parents[1] / "support" / "bombs.py"


def test_memory_stays_below_twice_the_body_limit() -> None:
    """Each bomb in turn, in a process of its own whose peak is measured (the bodies themselves are not counted)."""
    done = subprocess.run([sys.executable, str(BOMBS)], capture_output=True, text=True, check=True)
    growth = dict(line.split("\t") for line in done.stdout.splitlines())
    limit = int(growth.pop("limit"))
    assert len(growth) >= 10
    assert {name: int(peak) for name, peak in growth.items() if int(peak) > 2 * limit} == {}
