"""Delta actions to JSON and back: the one file that knows the protocol's field names.

A commit of ours begins with `commitInfo`, which carries a checksum of the whole file at a fixed place, a unique id
(I-2) and, under `sluice`, what recovery needs beside the standard actions (docs/protocol.md section 3).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from sluice.log_store.errors import CorruptCommit, UnsupportedFormat
from sluice.log_store.parquet import EncodedFile
from sluice.log_store.records import SPARK_SCHEMA

FORMAT = 1
TXN_EPOCH, TXN_END, TXN_START = "sluice.epoch", "sluice.end", "sluice.start"

_CRC_PREFIX = b'{"commitInfo":{"sluiceCrc":"'
_CRC_AT = len(_CRC_PREFIX)
_NO_CRC = b"00000000"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def commit_path(folder: str, version: int) -> str:
    return f"{folder}/_delta_log/{version:020d}.json"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live Parquet file of a partition, as its `add` action describes it."""

    path: str
    size: int
    base_offset: int
    end_offset: int
    """Exclusive: last offset + 1."""
    records: int
    min_ms: int
    max_ms: int
    modified_ms: int
    file_crc: int | None = None
    footer_crc: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str, encoded: EncodedFile, modified_ms: int, tags: Mapping[str, str] | None = None) -> DataFile:
        return cls(
            path=path,
            size=encoded.size,
            base_offset=encoded.base_offset,
            end_offset=encoded.last_offset + 1,
            records=encoded.records,
            min_ms=encoded.min_ms,
            max_ms=encoded.max_ms,
            modified_ms=modified_ms,
            file_crc=encoded.file_crc,
            footer_crc=encoded.footer_crc,
            tags=dict(tags or {}),
        )

    def stored_tags(self) -> dict[str, str]:
        """With the checksums, which are tags too."""
        tags = dict(self.tags)
        if self.file_crc is not None and self.footer_crc is not None:
            tags |= {"sluice.crc": f"{self.file_crc:08x}", "sluice.footer": f"{self.footer_crc:08x}"}
        return tags

    def stats(self) -> str:
        bounds_low = {"offset": self.base_offset, "timestamp": _iso(self.min_ms)}
        bounds_high = {"offset": self.end_offset - 1, "timestamp": _iso(self.max_ms)}
        # Without nullCount Spark skips no file at all (I-12).
        stats = {
            "numRecords": self.records,
            "minValues": bounds_low,
            "maxValues": bounds_high,
            "nullCount": {"offset": 0, "timestamp": 0},
        }
        return _encode(stats).decode()

    def to_action(self, *, data_change: bool) -> dict[str, Any]:
        return {
            "path": quote(self.path),
            "partitionValues": {},
            "size": self.size,
            "modificationTime": self.modified_ms,
            "dataChange": data_change,
            "stats": self.stats(),
            "tags": self.stored_tags(),
        }

    @classmethod
    def from_action(cls, add: Mapping[str, Any]) -> DataFile:
        path = unquote(add["path"])
        try:
            stats = _decode(add["stats"])
            low, high = stats["minValues"], stats["maxValues"]
            tags = {key: value for key, value in dict(add.get("tags") or {}).items() if value is not None}
            crc, footer = tags.pop("sluice.crc", None), tags.pop("sluice.footer", None)
            return cls(
                path=path,
                size=add["size"],
                base_offset=low["offset"],
                end_offset=high["offset"] + 1,
                records=stats["numRecords"],
                min_ms=_from_iso(low["timestamp"]),
                max_ms=_from_iso(high["timestamp"]),
                modified_ms=add["modificationTime"],
                file_crc=None if crc is None else int(crc, 16),
                footer_crc=None if footer is None else int(footer, 16),
                tags=tags,
            )
        except (KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
            raise CorruptCommit(f"the add action of {path} has no usable statistics: {error!r}", file=path) from error


def _interval(seconds: int) -> str:
    return f"interval {seconds} seconds" if seconds % 60 else f"interval {seconds // 60} minutes"


def _iso(ms: int) -> str:
    seconds, millis = divmod(ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


def _from_iso(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """What version 0 says about the table (I-5, R-8, R-14)."""

    table_id: str
    topic: str
    topic_id: str
    partition: int
    created_ms: int
    format: int = FORMAT
    tombstones_s: int = field(default=20 * 60, compare=False, repr=False)
    """A little longer than removed files stay: nobody needs to know of them for longer."""
    stored: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The `metaData` it was read from: checkpoints repeat that, not what this version of Sluice would write today."""

    def to_actions(self) -> list[dict[str, Any]]:
        """`protocol` and `metaData`."""
        metadata = self._new_metadata() if self.stored is None else self.stored
        return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]

    def _new_metadata(self) -> dict[str, Any]:
        configuration = {
            "delta.isolationLevel": "WriteSerializable",
            # Checkpoints carry a tombstone for every file removed within this time; the default is a week of them.
            "delta.deletedFileRetentionDuration": _interval(self.tombstones_s),
            "sluice.format": str(self.format),
            "sluice.topic": self.topic,
            "sluice.topic.id": self.topic_id,
            "sluice.partition": str(self.partition),
        }
        return {
            "id": self.table_id,
            "name": f"{self.topic}-{self.partition}",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _encode(SPARK_SCHEMA).decode(),
            "partitionColumns": [],
            "configuration": configuration,
            "createdTime": self.created_ms,
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> TableIdentity:
        configuration = dict(metadata.get("configuration") or {})
        try:
            identity = cls(
                table_id=metadata["id"],
                topic=configuration["sluice.topic"],
                topic_id=configuration["sluice.topic.id"],
                partition=int(configuration["sluice.partition"]),
                created_ms=metadata.get("createdTime") or 0,
                format=int(configuration["sluice.format"]),
                stored=metadata,
            )
        except (KeyError, ValueError) as error:
            raise CorruptCommit(f"the table's metaData is not Sluice's: {error!r}") from error
        if identity.format > FORMAT:
            raise UnsupportedFormat(
                f"{identity.topic}-{identity.partition} is stored in format {identity.format}; "
                f"this version of Sluice reads up to {FORMAT}. Upgrade Sluice to open it."
            )
        return identity


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a partition table, parsed and checked."""

    version: int
    commit_id: str | None
    """Our unique id; None for a commit that Sluice did not write."""
    timestamp_ms: int
    details: Mapping[str, Any]
    """The `sluice` object of commitInfo; empty for a foreign commit."""
    adds: tuple[DataFile, ...] = ()
    removes: tuple[str, ...] = ()
    txns: Mapping[str, int] = field(default_factory=dict)
    identity: TableIdentity | None = None
    changes_table: bool = False
    """True when it carries `protocol` or `metaData`."""
    engine: str = ""

    @property
    def ours(self) -> bool:
        return self.commit_id is not None


def encode_commit(
    *,
    commit_id: str,
    timestamp_ms: int,
    operation: str,
    details: Mapping[str, Any],
    epoch: int,
    end_offset: int,
    log_start: int,
    adds: Iterable[DataFile] = (),
    removes: Iterable[DataFile] = (),
    identity: TableIdentity | None = None,
    data_change: bool = True,
) -> bytes:
    """The bytes of one commit. Equal arguments give equal bytes: a version in doubt is retried with them (R-4)."""
    removed = list(removes)
    info = {
        "sluiceCrc": _NO_CRC.decode(),
        "timestamp": timestamp_ms,
        "operation": operation,
        "operationParameters": {},
        "isBlindAppend": not removed,
        "engineInfo": "sluice",
        "txnId": commit_id,
        "sluice": details,
    }
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    if identity is not None:
        actions += identity.to_actions()
    actions += [{"add": file.to_action(data_change=data_change)} for file in adds]
    actions += [{"remove": _remove_action(file, timestamp_ms, data_change)} for file in removed]
    for app_id, value in ((TXN_EPOCH, epoch), (TXN_END, end_offset), (TXN_START, log_start)):
        actions.append({"txn": {"appId": app_id, "version": value, "lastUpdated": timestamp_ms}})
    text = b"".join(_encode(action) + b"\n" for action in actions)
    return text[:_CRC_AT] + b"%08x" % zlib.crc32(text) + text[_CRC_AT + len(_NO_CRC) :]


def _remove_action(file: DataFile, timestamp_ms: int, data_change: bool) -> dict[str, Any]:
    return {
        "path": quote(file.path),
        "deletionTimestamp": timestamp_ms,
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": file.size,
    }


def decode_commit(version: int, data: bytes) -> Commit:
    """Parse and check one commit; anything cut, empty or garbled raises CorruptCommit (I-10)."""
    if not data:
        raise CorruptCommit(f"version {version} is empty", version=version)
    ours = data.startswith(_CRC_PREFIX)
    if ours:
        stored = data[_CRC_AT : _CRC_AT + len(_NO_CRC)]
        blank = data[:_CRC_AT] + _NO_CRC + data[_CRC_AT + len(_NO_CRC) :]
        if b"%08x" % zlib.crc32(blank) != stored:
            raise CorruptCommit(f"version {version} fails its checksum", version=version)
    try:
        actions = [_decode(line) for line in data.splitlines() if line.strip()]
        commit = _assemble(version, actions, ours)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise CorruptCommit(f"version {version} cannot be parsed: {error!r}", version=version) from error
    # Nobody else writes these: it is one of ours whose first line is damaged, not a stranger's to be stepped over.
    if not ours and not commit.txns.keys().isdisjoint((TXN_EPOCH, TXN_END, TXN_START)):
        raise CorruptCommit(f"version {version} has lost its checksum", version=version)
    return commit


def _assemble(version: int, actions: list[dict[str, Any]], ours: bool) -> Commit:
    info: dict[str, Any] = {}
    adds: list[DataFile] = []
    removes: list[str] = []
    txns: dict[str, int] = {}
    metadata: dict[str, Any] | None = None
    changes_table = False
    for action in actions:
        if "add" in action:
            # A foreign file may carry no statistics of ours: it is reported as foreign, not parsed.
            if ours:
                adds.append(DataFile.from_action(action["add"]))
            else:
                adds.append(_foreign_file(action["add"]))
        elif "remove" in action:
            removes.append(unquote(action["remove"]["path"]))
        elif "txn" in action:
            txns[action["txn"]["appId"]] = action["txn"]["version"]
        elif "commitInfo" in action:
            info = action["commitInfo"]
        elif "metaData" in action:
            metadata, changes_table = action["metaData"], True
        elif "protocol" in action:
            changes_table = True
    return Commit(
        version=version,
        commit_id=info.get("txnId") if ours else None,
        timestamp_ms=info.get("timestamp", 0),
        details=info.get("sluice") or {},
        adds=tuple(adds),
        removes=tuple(removes),
        txns=txns,
        identity=TableIdentity.from_metadata(metadata) if metadata is not None and ours else None,
        changes_table=changes_table,
        engine=str(info.get("engineInfo", "an unknown engine")),
    )


def _foreign_file(add: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=unquote(add["path"]),
        size=add["size"],
        base_offset=-1,
        end_offset=-1,
        records=-1,
        min_ms=-1,
        max_ms=-1,
        modified_ms=add["modificationTime"],
    )
