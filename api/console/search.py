"""Records of one key, the newest first: a bounded look through a partition's files, of which only keys are read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sluice.ingest.json_text import compact
from sluice.ingest.partitioner import murmur2_of
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import PartitionReads

MOST_FILES = 2_000
"""Of one answer, however small they are: opening one costs more than reading a thousand keys."""
WINDOW_FILES, WINDOW_RECORDS = 64, 100_000
_COLUMNS = ["offset", "key"]


class Found(NamedTuple):
    offsets: list[int]
    """Newest first."""
    scanned: int
    next_before: int | None
    """Where an older search goes on; None: the whole log was looked through."""


def key_bytes(text: str, form: str) -> bytes:
    """The key as it is stored: JSON without white space outside strings, text, or base64 of bytes."""
    if form == "string":
        return text.encode()
    try:
        if form == "binary":
            return base64.b64decode(text, validate=True)
        msgspec.json.decode(text)
        return compact(text.encode())
    except (msgspec.DecodeError, binascii.Error, ValueError):
        rule = "base64" if form == "binary" else 'JSON: a string stands in quotes, as in "c-7"'
        raise InvalidRequest(f"key: must be {rule}", field="key") from None


def partition_of(key: bytes, partitions: int) -> int:
    """Where Kafka's default partitioner puts it."""
    return (murmur2_of(key) & 0x7FFFFFFF) % partitions


def search(partition: PartitionLog, key: bytes, *, before: int | None, most: int, max_scan: int) -> Found:
    """In a thread. Stops when it has enough, or has looked at enough."""
    reads = PartitionReads(partition)
    files, count, log_start, end = partition.view()
    stop = end if before is None else min(before, end)
    left = [file for file in files[:count] if file.base_offset < stop and file.end_offset > log_start]
    found: list[int] = []
    scanned = opened = 0
    while left and len(found) < most and scanned < max_scan and opened < MOST_FILES:
        window = _newest(left)
        del left[len(left) - len(window) :]
        opened += len(window)
        start = max(window[0].base_offset, log_start)
        hits, seen = _hits(reads, key, start, min(window[-1].end_offset, stop))
        found += reversed(hits)
        scanned += seen
        stop = start
    if len(found) > most:
        return Found(found[:most], scanned, found[most - 1])
    return Found(found, scanned, stop if left else None)


def _newest(files: Sequence[DataFile]) -> Sequence[DataFile]:
    taken = records = 0
    for file in reversed(files):
        if taken and (taken >= WINDOW_FILES or records + file.records > WINDOW_RECORDS):
            break
        taken += 1
        records += file.records
    return files[len(files) - taken :]


def _hits(reads: PartitionReads, key: bytes, start: int, end: int) -> tuple[list[int], int]:
    wanted, hits, seen = pa.scalar(key, pa.binary()), [], 0
    for batch in reads.scan(start, end, columns=_COLUMNS, readahead=0):
        seen += batch.num_rows
        same = pc.equal(batch.column("key").cast(pa.binary()), wanted)
        hits += batch.column("offset").filter(same).to_pylist()
    return hits, seen
