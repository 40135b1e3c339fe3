"""What a backup is: a manifest that names every file of one state of a root, with sizes and checksums. Pure.

::

    <target>/
      backups.json                          which cluster is kept here, written once
      manifests/<id>.json                   one backup each, written last and by put-if-absent
      topics/<topic>/<partition>/<name>     data files under their own names, which are unique for ever (I-4)
      topics/<topic>/<partition>/log/<name>.<crc>     log files at the version of a backup

A manifest is the whole truth: files that no manifest names are rests of an interrupted backup, or waiting for one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from sluice.log_store.errors import CorruptData, UnsupportedFormat
from sluice.log_store.values import PartitionRef

FORMAT = 1
MANIFESTS = "manifests"
OWNER_FILE = "backups.json"
_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}")


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    """Where it belongs, below the root."""
    size: int
    crc: int
    """CRC-32 of all its bytes."""
    stored: str = ""
    """Where it lies in the backup; its path if this is empty."""

    @property
    def place(self) -> str:
        return self.stored or self.path


class PartitionCopy(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: str
    partition: int
    folder: str
    version: int
    epoch: int
    log_start: int
    end: int
    records: int
    data: tuple[StoredFile, ...]
    log: tuple[StoredFile, ...]

    @property
    def ref(self) -> PartitionRef:
        return PartitionRef(self.topic, self.topic_id, self.partition, self.folder)

    @property
    def files(self) -> tuple[StoredFile, ...]:
        return (*self.data, *self.log)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    id: str
    cluster_id: str
    root: str
    created_ms: int
    epoch: int
    """Newest claim of the cluster when the backup was made: a restored root goes on above it."""
    partitions: tuple[PartitionCopy, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(file.size for partition in self.partitions for file in partition.files)

    @property
    def files(self) -> int:
        return sum(len(partition.files) for partition in self.partitions)


def backup_id(created_ms: int, unique: str) -> str:
    """Sorts by time, to the millisecond."""
    moment = datetime.fromtimestamp(created_ms // 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}{created_ms % 1000:03d}Z-{unique[:8]}"


def is_backup_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def manifest_path(identifier: str) -> str:
    return f"{MANIFESTS}/{identifier}.json"


def encode_manifest(manifest: Manifest) -> bytes:
    """Like a state snapshot: a checksum, then one line of JSON."""
    text = msgspec.json.encode(manifest)
    return b"%08x\n" % zlib.crc32(text) + text + b"\n"


def decode_manifest(data: bytes, name: str) -> Manifest:
    crc, _, text = data.partition(b"\n")
    if crc != b"%08x" % zlib.crc32(text.removesuffix(b"\n")):
        raise CorruptData(f"the manifest {name} fails its checksum", file=name)
    try:
        body = msgspec.json.decode(text)
        if body["format"] > FORMAT:
            raise UnsupportedFormat(f"the manifest {name} has format {body['format']}: it needs a newer Sluice")
        return msgspec.convert(body, Manifest)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise CorruptData(f"the manifest {name} cannot be read: {error}", file=name) from error


def referenced(manifests: Iterable[Manifest]) -> set[str]:
    """Every place in the target that one of the backups needs."""
    return {file.place for manifest in manifests for copy in manifest.partitions for file in copy.files}


def to_prune(ids: Sequence[str], keep: int) -> list[str]:
    """All but the newest `keep`."""
    return sorted(ids)[: max(0, len(ids) - keep)]
