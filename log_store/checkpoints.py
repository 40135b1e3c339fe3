"""Delta checkpoints and the clean-up of what they make superfluous, off the ack path (R-5, R-6).

Order matters: state snapshot durable → Delta checkpoint durable and readable → old versions deleted. Two checkpoints
are kept, so that a damaged newest one costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from sluice.log_store.checkpoint_file import CheckpointContent, encode_checkpoint, encode_hint
from sluice.log_store.delta_log import commit_path
from sluice.log_store.errors import CorruptData
from sluice.log_store.snapshot import checkpoint_path, state_path, try_checkpoint
from sluice.log_store.store import Listing, Store, StoreConflict, StoreNotFound

KEPT_CHECKPOINTS = 2


@dataclass(frozen=True, slots=True)
class CleanUp:
    versions: int = 0
    checkpoints: int = 0
    states: int = 0
    checksums: int = 0
    """delta-spark's `n.crc`."""
    oldest: int | None = None
    """The oldest version that was left, as far as it is known: where the next clean-up may begin."""


def write_checkpoint(store: Store, folder: str, content: CheckpointContent, state: bytes) -> bool:
    """Write state snapshot and Delta checkpoint of one version. False where stock Delta cannot follow (memory)."""
    if store.delta_uri is None:
        return False
    version = content.version
    try:
        store.put_if_absent(state_path(folder, version), state, sync=True)
    except StoreConflict:
        store.replace(state_path(folder, version), state, sync=True)
    data = encode_checkpoint(content)
    store.replace(checkpoint_path(folder, version), data, sync=True)
    # Stock readers start from the hint and nothing else: it names only what can be read.
    if try_checkpoint(store, folder, version) is None:
        raise CorruptData(f"checkpoint {version} of {folder} does not read back as it was written")
    store.replace(f"{folder}/_delta_log/_last_checkpoint", encode_hint(content, len(data)), sync=True)
    # delta-spark leaves a Hadoop checksum beside the hint; once we replaced the hint it only slows Spark down.
    if store.local_path is not None:
        (store.local_path / folder / "_delta_log" / "._last_checkpoint.crc").unlink(missing_ok=True)
    return True


def is_checksum(name: str) -> bool:
    """`n.crc`: what delta-spark notes about version n beside its commit."""
    return name[:20].isdigit() and name[20:] == ".crc"


def _versions(listing: Listing) -> list[int]:
    return sorted(int(item.name[:20]) for item in listing if item.name.endswith(".checkpoint.parquet"))


def _newest_good(store: Store, folder: str, versions: list[int], proved: Collection[int]) -> list[int]:
    """Those among the versions, newest first, from which recovery could start: proved by doing it."""
    found = (v for v in versions if v in proved or try_checkpoint(store, folder, v) is not None)
    return list(islice(found, KEPT_CHECKPOINTS))


def clean_log(
    store: Store,
    folder: str,
    *,
    older_than_ms: int,
    synced_version: int,
    oldest: int | None = None,
    proved: Collection[int] = (),
) -> CleanUp:
    """Delete versions that two good checkpoints make superfluous and that are older than `older_than_ms` (wall time).

    `synced_version`: nothing above it goes, whatever its age: the WAL still refers to it. `oldest`: what the last
    clean-up left; on a local root nothing is listed then, because six hours of a busy partition are 400,000 files.
    `proved`: checkpoints that this process wrote and read back.
    """
    if oldest is not None and store.local_path is not None:
        return _clean_from(store, folder, oldest, older_than_ms, synced_version, proved)
    listing = store.list(f"{folder}/_delta_log")
    checkpoints = _versions(listing)
    states = _states(store, folder)
    good = _newest_good(store, folder, sorted(set(checkpoints) & set(states), reverse=True), proved)
    if len(good) < KEPT_CHECKPOINTS:
        return CleanUp()
    keep_from = min(*good, synced_version)
    versions, checksums, oldest = 0, 0, keep_from
    for item in listing:
        # Checksums go with their versions.
        checksum = is_checksum(item.name)
        if not checksum and (item.name[20:] != ".json" or not item.name[:20].isdigit()):
            continue
        if int(item.name[:20]) >= keep_from:
            continue
        if item.modified_ms < older_than_ms:
            store.delete(f"{folder}/_delta_log/{item.name}")
            checksums += checksum
            versions += not checksum
        else:
            oldest = min(oldest, int(item.name[:20]))
    old_checkpoints = [version for version in checkpoints if version < keep_from]
    for version in old_checkpoints:
        store.delete(checkpoint_path(folder, version))
    old_states = [version for version in states if version < keep_from]
    for version in old_states:
        store.delete(state_path(folder, version))
    return CleanUp(versions, len(old_checkpoints), len(old_states), checksums, oldest)


def _clean_from(
    store: Store, folder: str, oldest: int, older_than_ms: int, synced_version: int, proved: Collection[int]
) -> CleanUp:
    """The same by number, from the oldest version on: versions are written in the order of their numbers."""
    states = _states(store, folder)
    good = _newest_good(store, folder, states[::-1], proved)
    if len(good) < KEPT_CHECKPOINTS:
        return CleanUp(oldest=oldest)
    keep_from = min(*good, synced_version)
    versions = checksums = 0
    while oldest < keep_from:
        path = commit_path(folder, oldest)
        try:
            if store.stat(path).modified_ms >= older_than_ms:
                break
            store.delete(path)
            versions += 1
        except StoreNotFound:
            pass
        checksums += _deleted(store, f"{path.removesuffix('.json')}.crc")
        oldest += 1
    old = [version for version in states if version < keep_from]
    for version in old:
        store.delete(checkpoint_path(folder, version))
        store.delete(state_path(folder, version))
    return CleanUp(versions, len(old), len(old), checksums, oldest)


def _deleted(store: Store, path: str) -> bool:
    """Delete a file that is hardly ever there; was it?"""
    try:
        store.stat(path)
    except StoreNotFound:
        return False
    store.delete(path)
    return True


def _states(store: Store, folder: str) -> list[int]:
    names = [item.name for item in store.list(f"{folder}/_sluice")]
    return sorted(int(name[6:26]) for name in names if name.startswith("state-"))
