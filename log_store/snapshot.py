"""Load a partition from storage and follow it version by version: shared by leader, readers and Spark executors.

Opening reads the newest pair of state snapshot and Delta checkpoint, then GETs n+1, n+2, … until there is none. A
listing never decides where the log ends, because it is no snapshot while files are being added; on an
object store it only tells which versions can be fetched side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.log_store.delta_log import (
    TXN_END,
    TXN_EPOCH,
    TXN_START,
    DataFile,
    TableIdentity,
    commit_path,
    decode_commit,
)
from sluice.log_store.errors import CorruptCommit, IntegrityError, UnsupportedFormat
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.store import Store, StoreNotFound

FETCHES_AT_ONCE = 8

# What a damaged snapshot or checkpoint may raise; pyarrow answers damaged pages with OSError.
_DAMAGED = (
    StoreNotFound,
    IntegrityError,
    msgspec.DecodeError,
    KeyError,
    TypeError,
    ValueError,
    pa.ArrowException,
    OSError,
)


@dataclass(slots=True)
class Loaded:
    state: PartitionState
    problem: IntegrityError | None = None
    """Why the state stops where it does, when that is not simply the end of the log."""
    checkpoint: int = -1
    """Version of the checkpoint it was built on."""


def state_path(folder: str, version: int) -> str:
    return f"{folder}/_sluice/state-{version:020d}.json"


def checkpoint_path(folder: str, version: int) -> str:
    return f"{folder}/_delta_log/{version:020d}.checkpoint.parquet"


def load(store: Store, folder: str) -> Loaded:
    """The newest state of a partition; a missing table is an empty partition (R-8)."""
    state = _from_checkpoint(store, folder) or PartitionState()
    checkpoint = state.version
    return Loaded(state, follow(store, folder, state, _fetch_ahead(store, folder, checkpoint)), checkpoint)


def _fetch_ahead(store: Store, folder: str, version: int) -> dict[int, bytes]:
    """Later versions, fetched side by side where each request costs a round trip."""
    if not store.durable_puts:
        return {}
    listing = store.list(f"{folder}/_delta_log", after=f"{max(version, 0):020d}.json" if version >= 0 else None)
    numbers = [int(item.name[:20]) for item in listing if item.name[20:] == ".json" and item.name[:20].isdigit()]
    later = [number for number in numbers if number > version]
    if len(later) < 2:
        return {}
    with ThreadPoolExecutor(FETCHES_AT_ONCE, thread_name_prefix="sluice-open") as pool:
        bodies = pool.map(lambda number: _get_or_none(store, commit_path(folder, number)), later)
        return {number: body for number, body in zip(later, bodies, strict=True) if body is not None}


def _get_or_none(store: Store, path: str) -> bytes | None:
    try:
        return store.get(path)
    except StoreNotFound:
        return None


def follow(
    store: Store, folder: str, state: PartitionState, fetched: Mapping[int, bytes] | None = None
) -> IntegrityError | None:
    """Apply every later version to `state`; returns why it stopped early, if it did.

    A version can be missing because the log before it was cleaned away under a slow reader: then there is a newer
    checkpoint, and the caller's state is behind it. `reload_needed` tells.
    """
    while True:
        version = state.version + 1
        data = (fetched or {}).get(version) or _get_or_none(store, commit_path(folder, version))
        if data is None:
            return None
        try:
            state.apply(decode_commit(version, data))
        except UnsupportedFormat:
            raise
        except IntegrityError as problem:
            return problem


def last_checkpoint(store: Store, folder: str) -> int:
    """The version named by `_last_checkpoint`, or -1. It is a hint: a damaged one is treated as absent."""
    try:
        return int(msgspec.json.decode(store.get(f"{folder}/_delta_log/_last_checkpoint"))["version"])
    except (StoreNotFound, msgspec.DecodeError, KeyError, TypeError, ValueError):
        return -1


def reload_needed(store: Store, folder: str, state: PartitionState) -> bool:
    """Has the log moved past `state` by a checkpoint whose predecessors may be gone?

    The hint may have been set back, as `_from_checkpoint` says. Where not even the version of `state` is left, the log
    was cleaned beyond it all the same: whoever looked only for the next one would take this for the end.
    """
    if last_checkpoint(store, folder) > state.version:
        return True
    try:
        if state.version >= 0:
            store.stat(commit_path(folder, state.version))
    except StoreNotFound:
        return True
    return False


def _from_checkpoint(store: Store, folder: str) -> PartitionState | None:
    """From the newest good pair. The hint alone is not enough: a leader that was stopped while it wrote a checkpoint
    sets it back when it comes to life, below versions that its successor has cleaned away (R-3)."""
    prefix, suffix = "state-", ".json"
    names = [item.name for item in store.list(f"{folder}/_sluice")]
    found = {int(n[len(prefix) : -len(suffix)]) for n in names if n.startswith(prefix) and n.endswith(suffix)}
    for version in sorted({*found, last_checkpoint(store, folder)}, reverse=True):
        if version >= 0 and (state := try_checkpoint(store, folder, version)) is not None:
            return state
    return None


def try_checkpoint(store: Store, folder: str, version: int) -> PartitionState | None:
    """The state at a checkpoint, or None when the pair is incomplete or damaged: an older pair is tried then."""
    try:
        state, file_count, crc = PartitionState.from_snapshot(store.get(state_path(folder, version)))
        _read_checkpoint(store, checkpoint_path(folder, version), state)
    except _DAMAGED:
        return None
    if state.version != version or len(state.files) != file_count or state.checkpoint_crc() != crc:
        return None
    return state


def _actions(rows: pa.Table, kind: str) -> pa.ChunkedArray:
    """Each row of a checkpoint holds one action: those of one kind."""
    column = rows.column(kind)
    return column.filter(column.is_valid())


def _with_maps(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """As it stood in version 0: map columns come as pairs."""
    form = metadata["format"]
    return {
        **metadata,
        "format": {"provider": form["provider"], "options": dict(form["options"] or [])},
        "configuration": dict(metadata["configuration"] or []),
    }


def _read_checkpoint(store: Store, path: str, state: PartitionState) -> None:
    with store.open_input(path) as source:
        rows = pq.read_table(source, columns=["add", "remove", "txn", "metaData"])
    adds = _actions(rows, "add").to_pylist()
    files = [DataFile.from_action({**add, "tags": dict(add["tags"] or [])}) for add in adds]
    # A busy partition has a thousand times more tombstones than files: they never become dictionaries.
    removes = _actions(rows, "remove")
    names, times = (pc.struct_field(removes, field).to_pylist() for field in ("path", "deletionTimestamp"))
    for name, when in zip(names, times, strict=True):
        state.removed[unquote(name) if "%" in name else name] = when or 0
    txns = {txn["appId"]: txn["version"] for txn in _actions(rows, "txn").to_pylist()}
    for metadata in _actions(rows, "metaData").to_pylist():
        state.identity = TableIdentity.from_metadata(_with_maps(metadata))
    if (txns.get(TXN_EPOCH), txns.get(TXN_END), txns.get(TXN_START)) != (state.epoch, state.end, state.log_start):
        raise CorruptCommit(f"checkpoint {path} disagrees with the state snapshot beside it")
    state.files = sorted(files, key=lambda file: file.base_offset)
