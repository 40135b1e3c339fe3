"""A look at a cluster's storage without leading it: what `sluice doctor` shows. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sluice.log_store import reader, snapshot
from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.catalog_state import CatalogState, TopicMeta
from sluice.log_store.catalog_states import MetadataStates
from sluice.log_store.checkpoints import is_checksum
from sluice.log_store.claims import Claim, Renewal, newest_claim, renewal_of
from sluice.log_store.cluster_file import stored_cluster
from sluice.log_store.errors import SluiceError
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.leftovers import hidden_files
from sluice.log_store.store import Store, StoreNotFound
from sluice.log_store.sweep import DATA_SUFFIX
from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_files import CUT, PARKED
from sluice.log_store.wal_home import MOST_WALS

SMALL_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionLook:
    topic: str
    partition: int
    version: int
    log_start: int
    high_watermark: int
    live_files: int
    live_bytes: int
    small_files: int
    """Live files below 1 MiB: what merging has still to do."""
    removed_files: int
    """Removed by a commit and not deleted yet."""
    unnamed_files: int
    """In the folder, but named by no commit that is known: orphans once they are old enough."""
    commit_files: int
    checkpoints: int
    states: int
    leftovers: int
    """Hidden sidecars and temporaries."""
    checksums: int
    """delta-spark's `n.crc`, which go with their versions."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WalLook:
    folder: str
    """Its name below the root, its path elsewhere."""
    bytes: int
    parked: int
    set_aside: int


@dataclass(frozen=True, slots=True)
class ClusterLook:
    cluster_id: str
    claim: Claim | None
    renewal: Renewal | None
    partitions: list[PartitionLook] = field(default_factory=list)
    deleted_topics: int = 0
    """Deleted, with files still there."""
    wals: list[WalLook] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def inspect(store: Store, wal_dir: str = "") -> ClusterLook | None:
    """None where there is no cluster. `wal_dir` is the setting: where the write-ahead log is, if not in the root."""
    try:
        cluster = stored_cluster(store)
    except StoreNotFound:
        return None
    problems: list[str] = []
    catalog = stored_catalog(store, problems)
    claim = newest_claim(store)
    partitions = [_partition(store, METADATA_REF)]
    partitions += [_partition(store, ref) for meta in catalog.topics() for ref in _written(store, meta)]
    return ClusterLook(
        cluster_id=cluster.cluster_id,
        claim=claim,
        renewal=None if claim is None else renewal_of(store, claim.epoch),
        partitions=partitions,
        deleted_topics=len(catalog.to_purge()),
        wals=list(_wals(store.local_path, wal_dir)),
        problems=problems,
    )


def find_partition(store: Store, topic: str, partition: int) -> PartitionRef | None:
    """Where a partition of a live topic, or of the catalog itself, is stored."""
    if topic == METADATA_REF.topic and partition == METADATA_REF.partition:
        return METADATA_REF
    for meta in stored_catalog(store, []).topics():
        if meta.name == topic and 0 <= partition < meta.partitions:
            return meta.partition(partition)
    return None


def stored_catalog(store: Store, problems: list[str]) -> CatalogState:
    """The topics as committed; what keeps them from being read is added to `problems`."""
    states = MetadataStates()
    loaded = snapshot.load(store, METADATA_REF.folder)
    state = loaded.state
    try:
        for batch in reader.scan(store, METADATA_REF.folder, state.files, state.log_start, state.end):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                states.apply(key, value)
    except (SluiceError, FileVanished) as error:
        problems.append(f"the catalog cannot be read: {error}")
    return states.catalog


def _written(store: Store, meta: TopicMeta) -> Iterator[PartitionRef]:
    """A partition that was never written has no folder and nothing to look at."""
    there = set(store.list_folders(meta.folder))
    for number in range(meta.partitions):
        if str(number) in there:
            yield meta.partition(number)


def _partition(store: Store, ref: PartitionRef) -> PartitionLook:
    loaded = snapshot.load(store, ref.folder)
    state = loaded.state
    live = {file.path for file in state.files}
    data = [item.name for item in store.list(ref.folder) if item.name.endswith(DATA_SUFFIX) and item.name not in live]
    log = [item.name for item in store.list(f"{ref.folder}/_delta_log")]
    missing = live - {item.name for item in store.list(ref.folder)}
    problem = loaded.problem.message if loaded.problem is not None else ""
    if missing:
        problem = f"{len(missing)} live files are missing, such as {min(missing)}"
    return PartitionLook(
        topic=ref.topic,
        partition=ref.partition,
        version=state.version,
        log_start=state.log_start,
        high_watermark=state.end,
        live_files=len(state.files),
        live_bytes=sum(file.size for file in state.files),
        small_files=sum(file.size < SMALL_BYTES for file in state.files),
        removed_files=sum(name in state.removed for name in data),
        unnamed_files=sum(name not in state.removed for name in data),
        commit_files=sum(name.endswith(".json") for name in log),
        checkpoints=sum(name.endswith(".checkpoint.parquet") for name in log),
        states=len(store.list(f"{ref.folder}/_sluice")),
        leftovers=_leftovers(store.local_path, ref.folder),
        checksums=sum(is_checksum(name) for name in log),
        problem=problem,
    )


def _leftovers(root: Path | None, folder: str) -> int:
    return 0 if root is None else sum(1 for _ in hidden_files(root / folder))


def _wals(root: Path | None, wal_dir: str) -> Iterator[WalLook]:
    """Also those in the root when `wal.dir` is set: what an earlier setting left there is replayed by nobody."""
    inside = sorted((root / "_sluice").glob("wal*")) if root is not None else []
    yield from (_wal(folder, folder.name) for folder in inside if folder.is_dir())
    if wal_dir:
        home = Path(os.path.abspath(wal_dir))
        beside = (home.with_name(f"{home.name}-{number}") for number in range(1, MOST_WALS))
        folders = [folder for folder in (home, *beside) if folder.is_dir() and folder not in inside]
        yield from (_wal(folder, str(folder)) for folder in folders)


def _wal(folder: Path, name: str) -> WalLook:
    size = sum(path.stat().st_size for path in folder.glob("wal-*.log"))
    return WalLook(name, size, *(len(list((folder / part).glob("*"))) for part in (PARKED, CUT)))
