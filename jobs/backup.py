"""Backups of a whole root, taken while the service runs, each copying only what is new.

    sluice backup ROOT TARGET              make a backup
    sluice backup list TARGET              show the backups there
    sluice backup prune TARGET --keep N    delete all but the newest N, and the files that only they needed

The order makes the copy consistent across partitions:

1. the groups are pinned and copied first: whatever they have committed is in the logs by now
2. then every other partition is pinned, also of topics that are new by then: so no committed offset lies past the end
   of its log
3. data files are copied; a partition whose files go away meanwhile is pinned anew, further on
4. the catalog is pinned last: it knows every topic and every producer id that the partitions hold
5. the manifest is put last of all: without it there is no backup, and a repeat completes what is there

Records that are only in the write-ahead log (acks=1, not yet committed) are not included.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.jobs.backup_copy import Copied, SourceVanished, copy_files, delete_all, put_whole
from sluice.jobs.backup_manifest import (
    FORMAT,
    MANIFESTS,
    OWNER_FILE,
    Manifest,
    PartitionCopy,
    backup_id,
    decode_manifest,
    encode_manifest,
    is_backup_id,
    manifest_path,
    referenced,
    to_prune,
)
from sluice.jobs.backup_pins import Pin
from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.catalog_state import CatalogState
from sluice.log_store.catalog_states import MetadataStates
from sluice.log_store.claims import newest_claim
from sluice.log_store.cluster_file import CLUSTER_FILE
from sluice.log_store.errors import InvalidRequest, ResourceNotFound, StorageError
from sluice.log_store.inspection import stored_catalog
from sluice.log_store.store import Store, StoreConflict, StoreNotFound
from sluice.log_store.topic import CONSUMER_OFFSETS
from sluice.log_store.values import PartitionRef

PINS = 5
"""How often one partition is pinned anew because its files went away while they were copied."""


@dataclass(slots=True)
class Made:
    manifest: Manifest
    copied: Copied
    notes: list[str] = field(default_factory=list)


def cluster_of(store: Store) -> str:
    try:
        return str(msgspec.json.decode(store.get(CLUSTER_FILE))["cluster_id"])
    except StoreNotFound:
        raise ResourceNotFound(f"there is no cluster at {store.url}", field="root") from None


def make_backup(
    source: Store,
    target: Store,
    now_ms: int,
    *,
    check: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Made:
    """`check` is called between files and may raise; `progress(done, of)` counts partitions."""
    cluster_id = cluster_of(source)
    _own(target, cluster_id)
    total = Copied()
    copies: list[PartitionCopy] = []
    for ref in _partitions(source, groups=True):
        copies += _copy_partition(source, target, Pin(source, ref), total, check)
    pins = [Pin(source, ref) for ref in _partitions(source, groups=False)]
    for number, pin in enumerate(pins):
        check()
        progress(number, len(pins) + 1)
        copies += _copy_partition(source, target, pin, total, check)
    # Last, and after everything that might have been pinned anew.
    (catalog_copy,) = _copy_partition(source, target, Pin(source, METADATA_REF), total, check)
    known = _topic_ids(target, catalog_copy)
    kept = (*(copy for copy in copies if copy.topic_id in known), catalog_copy)
    claim = newest_claim(source)
    manifest = Manifest(
        format=FORMAT,
        id=backup_id(now_ms, uuid.uuid4().hex),
        cluster_id=cluster_id,
        root=source.url,
        created_ms=now_ms,
        epoch=max([0 if claim is None else claim.epoch, *(copy.epoch for copy in kept)]),
        partitions=kept,
    )
    check()
    target.put_if_absent(manifest_path(manifest.id), encode_manifest(manifest), sync=True)
    gone = len(copies) + 1 - len(kept)
    notes = [f"{gone} partitions of topics that were deleted meanwhile are left out"] if gone else []
    return Made(manifest, total, notes)


def _own(target: Store, cluster_id: str) -> None:
    """A target keeps the backups of one cluster: the names of two could meet."""
    body = {"format": FORMAT, "cluster_id": cluster_id}
    with suppress(StoreConflict):
        target.put_if_absent(OWNER_FILE, msgspec.json.encode(body), sync=True)
    owner = str(msgspec.json.decode(target.get(OWNER_FILE))["cluster_id"])
    if owner != cluster_id:
        raise InvalidRequest(f"{target.url} keeps backups of cluster {owner}, not of {cluster_id}", field="target")


def _catalog(source: Store) -> CatalogState:
    problems: list[str] = []
    catalog = stored_catalog(source, problems)
    if problems:
        raise StorageError("; ".join(problems))
    return catalog


def _partitions(source: Store, *, groups: bool) -> list[PartitionRef]:
    """Of the topics that there are now: the groups' partitions, or all others."""
    topics = [meta for meta in _catalog(source).topics() if (meta.name == CONSUMER_OFFSETS) is groups]
    return [meta.partition(number) for meta in topics for number in range(meta.partitions)]


def _topic_ids(target: Store, copy: PartitionCopy) -> set[str]:
    """The live topics of the catalog that was copied: read from the copy, where nothing moves any more."""
    states = MetadataStates()
    for file in copy.data:
        table = pq.read_table(pa.BufferReader(target.get(file.place)), columns=["offset", "key", "value"])
        table = table.filter(pc.greater_equal(table.column("offset"), copy.log_start))
        for key, value in zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True):
            states.apply(key, value)
    return {meta.topic_id for meta in states.catalog.topics()}


def _copy_partition(
    source: Store, target: Store, pin: Pin, total: Copied, check: Callable[[], None]
) -> list[PartitionCopy]:
    """Nothing for a partition without a table, or whose topic was deleted meanwhile."""
    for _ in range(PINS):
        if not pin.exists:
            return []
        copy = pin.copy()
        try:
            total.add(
                copy_files(
                    source,
                    target,
                    copy.data,
                    where_from=lambda file: file.path,
                    where_to=lambda file: file.place,
                    check=check,
                )
            )
        except SourceVanished:
            pin = Pin(source, pin.ref)
            continue
        total.add(_put_log(target, pin, copy))
        return [copy]
    raise StorageError(f"files of {pin.ref.tp} went away {PINS} times while they were copied; try again")


def _put_log(target: Store, pin: Pin, copy: PartitionCopy) -> Copied:
    there = {item.name: item.size for item in target.list(f"{copy.folder}/log")}
    missing = [file for file in copy.log if there.get(file.place.rpartition("/")[2]) != file.size]
    for file in missing:
        put_whole(target, file.place, pin.log_bytes(file))
    target.sync([file.place for file in missing])
    return Copied(len(missing), sum(file.size for file in missing), len(copy.log) - len(missing))


# --- what is there -------------------------------------------------------------------------------


def backup_ids(target: Store) -> list[str]:
    """Oldest first."""
    names = [item.name.removesuffix(".json") for item in target.list(MANIFESTS) if item.name.endswith(".json")]
    return sorted(name for name in names if is_backup_id(name))


def read_manifest(target: Store, identifier: str | None = None) -> Manifest:
    """The backup with this id, or the newest."""
    ids = backup_ids(target)
    if not ids:
        raise ResourceNotFound(f"there are no backups at {target.url}", field="source")
    chosen = ids[-1] if identifier is None else identifier
    if chosen not in ids:
        raise ResourceNotFound(f"there is no backup {chosen!r} at {target.url}; the newest is {ids[-1]}", field="id")
    return decode_manifest(target.get(manifest_path(chosen)), chosen)


def prune(target: Store, keep: int) -> tuple[list[str], int]:
    """Delete all but the newest backups; answers their ids and how many files went with them.

    Manifests go first: a prune that is killed leaves files that nobody needs, never a backup with files missing. Files
    of an interrupted backup go too, so nobody may be making one: callers hold the lease.
    """
    if keep < 1:
        raise InvalidRequest("--keep must be at least 1", field="keep")
    ids = backup_ids(target)
    gone = to_prune(ids, keep)
    kept = [read_manifest(target, identifier) for identifier in ids if identifier not in gone]
    for identifier in gone:
        target.delete(manifest_path(identifier))
    needed = referenced(kept)
    unneeded = [path for path in _stored(target) if path not in needed]
    delete_all(target, unneeded)
    return gone, len(unneeded)


def _stored(target: Store) -> Sequence[str]:
    paths: list[str] = []
    for topic in target.list_folders("topics"):
        for partition in target.list_folders(f"topics/{topic}"):
            folder = f"topics/{topic}/{partition}"
            paths += [f"{folder}/{item.name}" for item in target.list(folder)]
            paths += [f"{folder}/log/{item.name}" for item in target.list(f"{folder}/log")]
    return paths
