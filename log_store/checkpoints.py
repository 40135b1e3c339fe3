"""Delta checkpoints and the clean-up of what they make superfluous, off the ack path (R-5, R-6).

Order matters: state snapshot durable → Delta checkpoint durable and readable → old versions deleted. Two checkpoints
are kept, so that a damaged newest one costs nothing.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from sluice.log_store.delta_log import commit_path
from sluice.log_store.errors import CorruptData, StorageError
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.snapshot import FETCHES_AT_ONCE, checkpoint_path, last_checkpoint, state_path, try_checkpoint
from sluice.log_store.store import Listing, Store, StoreConflict, StoreNotFound

_log = logging.getLogger(__name__)
KEPT_CHECKPOINTS = 2


@dataclass(frozen=True, slots=True)
class CleanUp:
    versions: int = 0
    checkpoints: int = 0
    states: int = 0
    oldest: int | None = None
    """The oldest version that was left, as far as it is known: where the next clean-up may begin."""


def write_checkpoint(store: Store, folder: str, version: int, state: bytes) -> bool:
    """Write state snapshot and Delta checkpoint of one version. False where stock Delta cannot follow (memory)."""
    if store.delta_uri is None:
        return False
    try:
        store.put_if_absent(state_path(folder, version), state, sync=True)
    except StoreConflict:
        store.replace(state_path(folder, version), state, sync=True)
    try:
        _create(store, folder, version)
    except StorageError:
        if not _drop_unreadable(store, folder):
            raise
        _create(store, folder, version)
    hint = f"{folder}/_delta_log/_last_checkpoint"
    # delta-spark leaves a Hadoop checksum beside the hint; once delta-rs overwrote the hint it only slows Spark down.
    if store.local_path is not None:
        (store.local_path / folder / "_delta_log" / "._last_checkpoint.crc").unlink(missing_ok=True)
    store.sync([checkpoint_path(folder, version), hint])
    _reopen(store, folder, version, state)
    return True


def _create(store: Store, folder: str, version: int) -> None:
    try:
        if store.local_path is not None:
            DeltaTable(f"{store.delta_uri}/{folder}", version=version).create_checkpoint()
        else:
            _create_aside(store, folder, version)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"checkpoint of {folder} at version {version} failed: {error}") from error


def _create_aside(store: Store, folder: str, version: int) -> None:
    """delta-rs reads every commit four times (counted): on an object store it works on a local copy, read once."""
    older = [found for found in _versions(store.list(f"{folder}/_delta_log")) if found < version]
    start = older[-1] if older else -1
    with TemporaryDirectory(prefix="sluice-checkpoint-") as scratch:
        log = Path(scratch) / "_delta_log"
        log.mkdir()
        paths = [commit_path(folder, number) for number in range(start + 1, version + 1)]
        if older:
            paths.append(checkpoint_path(folder, start))
        with ThreadPoolExecutor(FETCHES_AT_ONCE, thread_name_prefix="sluice-checkpoint") as pool:
            for path, data in zip(paths, pool.map(store.get, paths), strict=True):
                (log / path.rpartition("/")[2]).write_bytes(data)
        DeltaTable(scratch, version=version).create_checkpoint()
        made = checkpoint_path(folder, version)
        store.replace(made, (log / made.rpartition("/")[2]).read_bytes())
        store.replace(f"{folder}/_delta_log/_last_checkpoint", (log / "_last_checkpoint").read_bytes())


def _drop_unreadable(store: Store, folder: str) -> bool:
    """Delete checkpoints over which every stock reader stumbles, ours never needs them: it starts from an older one.

    Only where there is something to start from: a disk that reads nothing today may read again tomorrow.
    """
    listing = store.list(f"{folder}/_delta_log")
    versions = _versions(listing)
    bad = [version for version in versions if not _readable(store, checkpoint_path(folder, version))]
    whole = any(item.name == f"{0:020d}.json" for item in listing)
    if not bad or not (whole or any(try_checkpoint(store, folder, v) is not None for v in versions)):
        return False
    if last_checkpoint(store, folder) in bad:
        store.delete(f"{folder}/_delta_log/_last_checkpoint")
    for version in bad:
        _log.warning("checkpoint %d of %s cannot be read and is removed", version, folder)
        store.delete(checkpoint_path(folder, version))
    return True


def _versions(listing: Listing) -> list[int]:
    return sorted(int(item.name[:20]) for item in listing if item.name.endswith(".checkpoint.parquet"))


def _readable(store: Store, path: str) -> bool:
    try:
        with store.open_input(path) as source:
            pq.ParquetFile(source).read()
    except (pa.ArrowException, OSError):
        return False
    return True


def _reopen(store: Store, folder: str, version: int, state: bytes) -> None:
    """A checkpoint counts only once it was read back."""
    expected = PartitionState.from_snapshot(state)[1]
    with store.open_input(checkpoint_path(folder, version)) as source:
        column = pq.ParquetFile(source).read(columns=["add.path"]).column("add")
    live = len(column) - column.null_count
    if live != expected or last_checkpoint(store, folder) < version:
        raise CorruptData(f"checkpoint {version} of {folder} holds {live} files instead of {expected}")


def _newest_good(store: Store, folder: str, versions: list[int]) -> list[int]:
    """Those among the versions, newest first, from which recovery could start: proved by doing it."""
    found = (version for version in versions if try_checkpoint(store, folder, version) is not None)
    return list(islice(found, KEPT_CHECKPOINTS))


def clean_log(
    store: Store, folder: str, *, older_than_ms: int, synced_version: int, oldest: int | None = None
) -> CleanUp:
    """Delete versions that two good checkpoints make superfluous and that are older than `older_than_ms` (wall time).

    `synced_version`: nothing above it goes, whatever its age: the WAL still refers to it. `oldest`: what the last
    clean-up left; on a local root nothing is listed then, because six hours of a busy partition are 400,000 files.
    """
    if oldest is not None and store.local_path is not None:
        return _clean_from(store, folder, oldest, older_than_ms, synced_version)
    listing = store.list(f"{folder}/_delta_log")
    checkpoints = _versions(listing)
    states = _states(store, folder)
    good = _newest_good(store, folder, sorted(set(checkpoints) & set(states), reverse=True))
    if len(good) < KEPT_CHECKPOINTS:
        return CleanUp()
    keep_from = min(*good, synced_version)
    versions, oldest = 0, keep_from
    for item in listing:
        # `n.crc` are delta-spark's version checksums: they go with their versions.
        if item.name[20:] not in (".json", ".crc") or not item.name[:20].isdigit():
            continue
        if int(item.name[:20]) >= keep_from:
            continue
        if item.modified_ms < older_than_ms:
            store.delete(f"{folder}/_delta_log/{item.name}")
            versions += 1
        else:
            oldest = min(oldest, int(item.name[:20]))
    old_checkpoints = [version for version in checkpoints if version < keep_from]
    for version in old_checkpoints:
        store.delete(checkpoint_path(folder, version))
    old_states = [version for version in states if version < keep_from]
    for version in old_states:
        store.delete(state_path(folder, version))
    return CleanUp(versions, len(old_checkpoints), len(old_states), oldest)


def _clean_from(store: Store, folder: str, oldest: int, older_than_ms: int, synced_version: int) -> CleanUp:
    """The same by number, from the oldest version on: versions are written in the order of their numbers."""
    states = _states(store, folder)
    good = _newest_good(store, folder, states[::-1])
    if len(good) < KEPT_CHECKPOINTS:
        return CleanUp(oldest=oldest)
    keep_from = min(*good, synced_version)
    versions = 0
    while oldest < keep_from:
        path = commit_path(folder, oldest)
        try:
            if store.stat(path).modified_ms >= older_than_ms:
                break
            store.delete(path)
            versions += 1
        except StoreNotFound:
            pass
        store.delete(f"{path.removesuffix('.json')}.crc")
        oldest += 1
    old = [version for version in states if version < keep_from]
    for version in old:
        store.delete(checkpoint_path(folder, version))
        store.delete(state_path(folder, version))
    return CleanUp(versions, len(old), len(old), oldest)


def _states(store: Store, folder: str) -> list[int]:
    names = [item.name for item in store.list(f"{folder}/_sluice")]
    return sorted(int(name[6:26]) for name in names if name.startswith("state-"))
