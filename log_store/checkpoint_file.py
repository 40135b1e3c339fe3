"""The Parquet file of a Delta checkpoint, written from the state that the leader holds anyway.

Delta's classic format (version 1, one file): one action per row, each kind in a column of its own. delta-rs would read
every commit since the last checkpoint again, four times, to arrive at the same rows (docs/adr/0012).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sluice.log_store.delta_log import TXN_END, TXN_EPOCH, TXN_START, DataFile, TableIdentity

_TEXTS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _TEXTS),
    ]
)
_REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", _TEXTS),
    ]
)
_PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
SCHEMA = pa.schema(
    [("txn", _TXN), ("add", _ADD), ("remove", _REMOVE), ("metaData", _METADATA), ("protocol", _PROTOCOL)]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """A partition at one version, as far as a Delta checkpoint tells of it."""

    version: int
    epoch: int
    end: int
    log_start: int
    identity: TableIdentity
    files: Sequence[DataFile]
    removed: Mapping[str, int]
    """Tombstones: files that are still there and when they were removed. Once they are deleted nobody asks for them."""

    @property
    def actions(self) -> int:
        return 5 + len(self.files) + len(self.removed)


def encode_checkpoint(content: CheckpointContent) -> bytes:
    protocol, metadata = (next(iter(action.values())) for action in content.identity.to_actions())
    txns = [
        {"appId": app_id, "version": value, "lastUpdated": None}
        for app_id, value in ((TXN_EPOCH, content.epoch), (TXN_END, content.end), (TXN_START, content.log_start))
    ]
    parts = [
        _rows("protocol", pa.array([protocol], _PROTOCOL)),
        _rows("metaData", pa.array([_with_maps_as_pairs(metadata)], _METADATA)),
        _rows("txn", pa.array(txns, _TXN)),
        _rows("remove", _removes(content.removed)),
        _rows("add", _adds(content.files)),
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.concat_tables(parts),
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def encode_hint(content: CheckpointContent, size_in_bytes: int) -> bytes:
    """`_last_checkpoint`."""
    return msgspec.json.encode(
        {
            "version": content.version,
            "size": content.actions,
            "sizeInBytes": size_in_bytes,
            "numOfAddFiles": len(content.files),
        }
    )


def _rows(kind: str, actions: pa.StructArray) -> pa.Table:
    """Rows that hold these actions and nothing else."""
    columns = [actions if field.name == kind else pa.nulls(len(actions), field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _adds(files: Sequence[DataFile]) -> pa.StructArray:
    tags = [file.stored_tags() for file in files]
    columns = [
        _texts(quote(file.path) for file in files),
        _maps([{}] * len(files)),
        _numbers(file.size for file in files),
        _numbers(file.modified_ms for file in files),
        _false(len(files)),  # a checkpoint changes no data, whatever the commits in it did
        _texts(file.stats() for file in files),
        _maps(tags),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _removes(removed: Mapping[str, int]) -> pa.StructArray:
    columns = [_texts(map(quote, removed)), _numbers(removed.values()), _false(len(removed))]
    return pa.StructArray.from_arrays(columns, fields=list(_REMOVE))


def _maps(entries: Sequence[Mapping[str, str]]) -> pa.MapArray:
    ends = accumulate(map(len, entries), initial=0)
    keys = _texts(key for entry in entries for key in entry)
    values = _texts(value for entry in entries for value in entry.values())
    return pa.MapArray.from_arrays(pa.array(list(ends), pa.int32()), keys, values)


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array(list(values), pa.string())


def _numbers(values: Iterable[int]) -> pa.Array:
    return pa.array(list(values), pa.int64())


def _false(count: int) -> pa.Array:
    return pa.array([False] * count, pa.bool_())


def _with_maps_as_pairs(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """As pyarrow wants the values of map columns."""
    form = metadata["format"]
    return {
        **metadata,
        "format": {"provider": form["provider"], "options": list(form["options"].items())},
        "configuration": list(metadata["configuration"].items()),
    }
