"""What holds for a cluster as a whole: its claims, its catalog, its consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from sluice.jobs.verify_findings import Finding, notice, placed
from sluice.log_store import reader
from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.catalog_state import CatalogState
from sluice.log_store.catalog_states import MetadataStates
from sluice.log_store.claims import CLAIMS, Claim
from sluice.log_store.cluster_file import CLUSTER_FILE, CLUSTER_FORMAT, decode_cluster_file
from sluice.log_store.errors import CorruptData, SluiceError
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.store import Store, StoreNotFound
from sluice.log_store.values import PartitionRef, TopicPartition
from sluice.streaming.coordinator.replay import Replay, StoredGroup
from sluice.streaming.groups import partition_of_group

TOPICS = "topics"


# --- cluster file and claims -------------------------------------------------------------------


def check_cluster_file(data: bytes) -> Iterator[Finding]:
    try:
        found = decode_cluster_file(data)
    except CorruptData as error:
        yield Finding("R-14", error.message, file=CLUSTER_FILE)
        return
    if found.format > CLUSTER_FORMAT:
        text = f"the cluster has format {found.format}, this version of Sluice knows {CLUSTER_FORMAT}"
        yield Finding("R-14", text, file=CLUSTER_FILE)


def read_claims(store: Store) -> tuple[dict[int, Claim], list[Finding]]:
    claims: dict[int, Claim] = {}
    findings: list[Finding] = []
    for item in store.list(CLAIMS):
        if not item.name.endswith(".json"):
            continue
        path = f"{CLAIMS}/{item.name}"
        try:
            claims[int(item.name[:20])] = msgspec.json.decode(store.get(path), type=Claim)
        except (msgspec.DecodeError, ValueError, StoreNotFound) as error:
            findings.append(Finding("R-1", f"the claim cannot be read: {error}", file=path))
    return claims, findings


def check_claims(claims: Mapping[int, Claim], epochs: Mapping[str, int]) -> Iterator[Finding]:
    """`epochs`: the newest epoch of each partition, by name. Claims count 1, 2, 3, … and are never deleted (R-1)."""
    for epoch, claim in claims.items():
        if claim.epoch != epoch:
            yield Finding(
                "R-1", f"claim {epoch} says that it is claim {claim.epoch}", file=f"{CLAIMS}/{epoch:020d}.json"
            )
    newest = max(claims, default=0)
    if missing := sorted(set(range(1, newest + 1)) - claims.keys()):
        text = f"claim {missing[0]} is missing ({len(missing)} in all): its holder would not see that it was replaced"
        yield Finding("R-1", text)
    ids = [claim.id for claim in claims.values() if claim.id]
    if len(set(ids)) != len(ids):
        yield Finding("R-1", "two claims have the same id")
    for name, epoch in epochs.items():
        if epoch > newest:
            text = f"{name} was written under epoch {epoch}, which nobody claimed: the newest claim is {newest}"
            yield Finding("R-1", text)


# --- the catalog -------------------------------------------------------------------------------


def read_catalog(store: Store, state: PartitionState) -> tuple[CatalogState, list[Finding]]:
    """Replay `__cluster_metadata` as it was pinned; the first record that does not fit ends it."""
    states = MetadataStates()
    offset = state.log_start
    try:
        for batch in reader.scan(store, METADATA_REF.folder, state.files, state.log_start, state.end):
            columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
            for at, key, value in zip(*columns, strict=True):
                offset = at
                states.apply(key, value)
    except SluiceError as error:
        finding = Finding("section 6", f"the catalog cannot be replayed: {error.message}", offset=offset)
        return states.catalog, list(placed([finding], METADATA_REF))
    return states.catalog, []


def check_folders(catalog: CatalogState, folders: Iterable[str]) -> Iterator[Finding]:
    """`folders`: names below `topics/`. One that no topic owns is nobody's data (R-8)."""
    live = {meta.folder for meta in catalog.topics()} | {METADATA_REF.folder.rpartition("/")[0]}
    deleted = {meta.folder for meta in catalog.to_purge()}
    for name in folders:
        folder = f"{TOPICS}/{name}"
        if folder in deleted:
            yield notice("R-8", "the files of a deleted topic wait for their deletion", file=folder)
        elif folder not in live:
            yield notice("R-8", "no topic of the catalog owns this folder", file=folder)


# --- consumer groups -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a committed offset is measured against."""

    topic_id: str
    log_start: int
    end: int


def read_groups(store: Store, ref: PartitionRef, state: PartitionState) -> tuple[dict[str, StoredGroup], list[Finding]]:
    """Replay one partition of `__consumer_offsets` as it was pinned."""
    try:
        rows = reader.scan(store, ref.folder, state.files, state.log_start, state.end)
        return Replay().take(rows).groups(), []
    except SluiceError as error:
        finding = Finding("section 6", f"the groups cannot be replayed: {error.message}", offset=state.log_start)
        return {}, list(placed([finding], ref))


def check_groups(
    groups: Mapping[str, StoredGroup],
    where: PartitionRef,
    partitions: int,
    bounds: Mapping[TopicPartition, Bounds],
) -> Iterator[Finding]:
    """Groups live in the partition that their id chooses. Any offset may be committed, as in Kafka; one past the end of
    its log is worth knowing: the log may have been put back from an older copy."""
    for group_id, stored in groups.items():
        home = partition_of_group(group_id, partitions)
        if home != where.partition:
            text = f"group {group_id!r} belongs to partition {home}"
            yield Finding("section 6", text, topic=where.topic, partition=where.partition)
        for tp, committed in stored.offsets.items():
            known = bounds.get(tp)
            place = {"topic": tp.topic, "partition": tp.partition, "offset": committed.offset}
            if known is None or known.topic_id != committed.topic_id:
                text = f"group {group_id!r} has a commit for a topic that is gone: it counts for nothing (R-8)"
                yield notice("R-8", text, **place)
            elif committed.offset < 0:
                text = f"group {group_id!r} committed {committed.offset}, which is no offset"
                yield Finding("section 6", text, **place)  # type: ignore[arg-type]
            elif committed.offset > known.end:
                text = f"group {group_id!r} committed {committed.offset}, past the end of the log at {known.end}"
                yield notice("section 6", text, **place)


def bounds_of(pairs: Sequence[tuple[PartitionRef, PartitionState]]) -> dict[TopicPartition, Bounds]:
    return {ref.tp: Bounds(ref.topic_id, state.log_start, state.end) for ref, state in pairs}
