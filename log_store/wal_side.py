"""Files beside the log, in its format: entries parked for later, and entries cut off and kept for people (R-2)."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from sluice.log_store.errors import StorageError
from sluice.log_store.os_files import explain
from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.log_store.wal_files import TEMPORARY, sync_folder, write_all
from sluice.log_store.wal_format import FileEncoder, FileHeader, Kind, encode_batch, encode_note
from sluice.log_store.wal_recovery import PARKED_SEQ
from sluice.log_store.wal_values import WalBatch

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_NAME_CHARS = 120  # of a topic's name; the whole must stay below 255


def write_side_file(
    folder: Path, uuid: bytes, ref: PartitionRef, batches: Iterable[WalBatch], note: Mapping[str, object]
) -> tuple[Path, OffsetRange]:
    """A new file with the batches and, as its signature, the note; it has its name only once it is on disk.

    Batches are written one at a time: they may come straight from `Wal.read`.
    """
    temporary = folder / f"{secrets.token_hex(8)}{TEMPORARY}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            offsets = _write(fd, FileEncoder(FileHeader(uuid, PARKED_SEQ, 0, 0)), ref, batches, note)
            os.fsync(fd)
        finally:
            os.close(fd)
        topic = _UNSAFE.sub("_", ref.topic)[:_NAME_CHARS]
        path = folder / f"{topic}-{ref.partition}-{offsets.start:020}-{temporary.stem}.wal"
        temporary.rename(path)
        sync_folder(folder)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageError(f"cannot keep entries of {ref.tp} in {folder}: {explain(error)}") from error
        raise
    return path, offsets


def _write(
    fd: int, encoder: FileEncoder, ref: PartitionRef, batches: Iterable[WalBatch], note: Mapping[str, object]
) -> OffsetRange:
    start, end, count, written = None, 0, 0, 0
    for batch in batches:
        if (batch.ref.topic_id, batch.ref.partition) != (ref.topic_id, ref.partition):
            raise ValueError(f"a batch of {batch.ref.tp} among those of {ref.tp}")
        encoder.batch(0, ref, encode_batch(batch), memoryview(batch.payload).cast("B"))
        write_all(fd, encoder.drain(), written)
        written = encoder.position
        start = batch.base_offset if start is None else min(start, batch.base_offset)
        end, count = max(end, batch.end_offset), count + 1
    if start is None:
        raise ValueError(f"no entries of {ref.tp} to keep")
    encoder.entry(Kind.NOTE, encode_note({**note, "entries": count, "start": start, "end": end}))
    write_all(fd, encoder.drain(), written)
    return OffsetRange(start, end)
