"""Bodies made to become large, each given to its decoder in a child process; prints how far the peak rose."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import resource
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from sluice.ingest import arrow_body, binary_v2, bodies, json_v2, json_v3
from sluice.ingest.json_scan import ObjectSplitter
from sluice.ingest.limits import IngestLimits
from sluice.log_store.errors import SluiceError

LIMIT = 32 << 20
LIMITS = IngestLimits(max_body_bytes=LIMIT)


def filled(head: bytes, unit: bytes, tail: bytes) -> bytes:
    return head + unit * ((LIMIT - len(head) - len(tail)) // len(unit) - 1) + unit.rstrip(b",") + tail


def ipc(table: pa.Table, compression: str | None = None, rows: int | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=False)
    ) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue()


def v2(body: bytes) -> object:
    return json_v2.decode(body, now_ms=1, limits=LIMITS)


def binary(body: bytes) -> object:
    return binary_v2.decode(body, now_ms=1, limits=LIMITS)


def batch(body: bytes) -> object:
    return json_v3.decode_batch(body, now_ms=1, limits=LIMITS)


def arrow(body: bytes) -> object:
    return arrow_body.decode(body, now_ms=1, limits=LIMITS)


def stream(body: bytes) -> object:
    splitter = ObjectSplitter(LIMITS.max_object_bytes)
    return [splitter.feed(body[at : at + (1 << 16)]) and None for at in range(0, len(body), 1 << 16)]


def folded() -> bytes:
    long = pa.array([b"x" * (LIMIT // 4)])
    return ipc(pa.table({"value": pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int8)), long)}))


def views() -> bytes:
    long = b"x" * (LIMIT // 4)
    rows = np.array([[len(long), 0x78787878, 0, 0]] * 100_000, np.int32)
    column = pa.Array.from_buffers(pa.binary_view(), len(rows), [None, pa.py_buffer(rows), pa.py_buffer(long)])
    return ipc(pa.table({"value": column}))


BOMBS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], object]]] = {
    "gzip": (lambda: gzip.compress(bytes(1 << 20)) * 4096, lambda b: bodies.decode_body(b, "gzip", max_bytes=LIMIT)),
    "zstd": (
        lambda: pa.compress(bytes(1 << 30), codec="zstd", asbytes=True),
        lambda b: bodies.decode_body(b, "zstd", max_bytes=LIMIT),
    ),
    "tiny records": (lambda: filled(b'{"records":[', b"{},", b"]}"), v2),
    "records with braces": (lambda: filled(b'{"records":[', b'{"value":{}},', b"]}"), v2),
    "one wide value": (lambda: filled(b'{"records":[{"value":[', b"[],", b"]}]}"), v2),
    "one long string": (lambda: filled(b'{"records":[{"value":"', b"x", b'"}]}'), v2),
    "one spaced key": (lambda: filled(b'{"records":[{"key":[', b"1 ,", b"]}]}"), v2),
    "open brackets": (lambda: b'{"records":[{"value":' + b"[" * (LIMIT - 100), v2),
    "tiny headers": (lambda: filled(b'{"records":[{"headers":[', b'{"name":""},', b"]}]}"), v2),
    "long number": (lambda: filled(b'{"records":[{"timestamp":', b"9", b"}]}"), v2),
    "unknown name": (lambda: filled(b'{"records":[{"', b"x", b'":1}]}'), v2),
    "unknown wide name": (lambda: filled(b'{"records":[{"\xf0\x9f\x98\x80', b"x", b'" : 1}]}'), v2),
    "unknown escaped name": (lambda: filled(b'{"records":[{"', b'\\"\\u00e9\\\\', b'":1}]}'), v2),
    "wide header name": (lambda: filled(b'{"records":[{"headers":[{"name":"\xf0\x9f\x98\x80', b"x", b'"}]}]}'), v2),
    "many headers": (
        lambda: filled(b'{"records":[', b'{"headers":[' + b",".join([b'{"name":""}'] * 99) + b"]},", b"]}"),
        v2,
    ),
    "long string of a v3 entry": (
        lambda: filled(b'{"entries":[{"id":"a","value":{"type":"STRING","data":"\xf0\x9f\x98\x80', b"x", b'"}}]}'),
        batch,
    ),
    "not utf-8": (lambda: filled(b'{"records":[{"value":"', b"\xc3\xa9", b'\xff"}]}'), v2),
    "tiny binary records": (lambda: filled(b'{"records":[', b"{},", b"]}"), binary),
    "one long base64": (lambda: filled(b'{"records":[{"value":"', b"QUJD", b'"}]}'), binary),
    "tiny entries": (lambda: filled(b'{"entries":[', b"{},", b"]}"), batch),
    "numbers for entries": (lambda: filled(b'{"entries":[', b"0,", b"]}"), batch),
    "endless object": (lambda: filled(b'{"a":"', b"x", b""), stream),
    "many objects": (lambda: filled(b"", b"{}", b""), stream),
    "arrow zstd": (lambda: ipc(pa.table({"value": pa.array([bytes(1 << 28)])}), "zstd"), arrow),
    "arrow dictionary": (folded, arrow),
    "arrow views": (views, arrow),
    "arrow tombstones": (lambda: ipc(pa.table({"value": pa.nulls(100_000_000)})), arrow),
    "arrow tiny batches": (lambda: ipc(pa.table({"value": ["x"] * 20_000}), rows=1), arrow),
}


def peak(make: Callable[[], bytes], decode: Callable[[bytes], object]) -> int:
    """Bytes by which decoding raised the peak of a fresh process."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        body = make()
        # Forget how much making it took: writing 5 resets the peak of this process (Linux).
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
        before = status("VmRSS")
        with contextlib.suppress(SluiceError):
            decode(body)
        os.write(writes, str(status("VmHWM") - before).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    _, code = os.waitpid(child, 0)
    return int(text) if code == 0 and text else 1 << 60


def warm_up() -> None:
    """What is imported at first use (pandas, by Arrow) is not what a body costs."""
    v2(b'{"records":[{"key":"k","value":1,"headers":[{"name":"a"}]}]}')
    binary(b'{"records":[{"value":"QUJD"}]}')
    batch(b'{"entries":[{"id":"a"}]}')
    arrow(ipc(pa.table({"value": ["a"], "headers": pa.array([[{"name": "a", "value": b""}]])})))


def status(name: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    pa.set_memory_pool(pa.system_memory_pool())  # gives memory back at once, so that making a body leaves no slack
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warm_up()
    print(f"limit\t{LIMIT}")
    for name, (make, decode) in BOMBS.items():
        print(f"{name}\t{peak(make, decode)}", flush=True)
