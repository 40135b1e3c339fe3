"""What a leader does before it serves: check what was not known to be on disk, then replay its WAL (section 2, R-2).

Everything here can be killed and started again: versions are removed from the top downward, replayed rows keep their
offsets, and the WAL keeps its entries until they are known to be durable.
"""

from __future__ import annotations

import logging
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.log_store import steps
from sluice.log_store.delta_log import Commit, commit_path, decode_commit
from sluice.log_store.durability import unsynced_files
from sluice.log_store.errors import CorruptCommit, CorruptData, IntegrityError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.snapshot import load
from sluice.log_store.store import Store, StoreNotFound
from sluice.log_store.values import OffsetRange, PartitionRef
from sluice.log_store.wal import Wal
from sluice.log_store.wal_values import ParkedFile, SyncPoint, WalEntryRef

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was not as it should be, and what was done about it."""

    where: str
    what: str
    action: str
    start: int = -1
    end: int = -1
    """Offsets concerned, if any: `start <= o < end`."""

    def __str__(self) -> str:
        offsets = f" (offsets {self.start}..{self.end - 1})" if self.end >= 0 else ""
        return f"{self.where}{offsets}: {self.what}; {self.action}"


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)
    replayed: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        _log.warning("recovery: %s", finding)
        self.findings.append(finding)


# --- versions that may not have reached the disk -------------------------------------------------


def repair_tail(
    store: Store, ref: PartitionRef, synced: SyncPoint | None, in_wal: OffsetRange | None, report: Report
) -> int:
    """Check every version after the sync point; remove from the first bad one upward where the WAL can rebuild it.

    Only on a local root, where a power loss can tear what was not yet synced. This is the only rewrite of a log.
    `in_wal` are the offsets that the WALs hold of this partition, None if they hold nothing. Returns the version that
    the log is known to reach: whoever loads less of it has met a hole.
    """
    known = synced.version if synced is not None and store.fsync else -1
    if store.local_path is None:
        return known
    loaded = load(store, ref.folder)
    state, first_bad, why = loaded.state, None, ""
    if isinstance(loaded.problem, CorruptCommit):
        first_bad, why = state.version + 1, loaded.problem.message
    if damaged := _damaged_files(store, ref, synced, state):
        first_bad, why = damaged
    stray = _versions_above(store, ref.folder, state.version if first_bad is None else first_bad - 1)
    if first_bad is None and stray and loaded.problem is None:
        first_bad, why = state.version + 1, f"version {state.version + 1} is missing below version {stray[-1]}"
    if first_bad is None or _remove_from(store, ref, first_bad, stray, why, synced, in_wal, report):
        return known
    return max([known, *stray])


def _damaged_files(
    store: Store, ref: PartitionRef, synced: SyncPoint | None, state: PartitionState
) -> tuple[int, str] | None:
    """The first version after the sync point one of whose files is missing, cut or changed."""
    live = {file.path for file in state.files}
    for version in range((synced.version if synced else -1) + 1, state.version + 1):
        try:
            commit = decode_commit(version, store.get(commit_path(ref.folder, version)))
        except StoreNotFound:
            continue  # below a checkpoint, which is written only after everything in it was synced
        try:
            check_files(store, ref.folder, commit, live)
        except CorruptData as error:
            return version, error.message
    return None


def check_files(store: Store, folder: str, commit: Commit, live: set[str]) -> None:
    """Are the data files of a commit there, of the right size, with the right checksum?

    One that was merged away since counts as well while it is there: should the merge turn out to be torn, it is live
    again. What is not live may be gone.
    """
    for file in commit.adds:
        try:
            data = store.get(f"{folder}/{file.path}")
        except StoreNotFound as error:
            if file.path not in live:
                continue
            raise CorruptData(f"{file.path} is missing") from error
        if len(data) != file.size:
            raise CorruptData(f"{file.path} has {len(data)} bytes instead of {file.size}")
        if file.file_crc is not None and zlib.crc32(data) != file.file_crc:
            raise CorruptData(f"{file.path} fails its checksum")


def _versions_above(store: Store, folder: str, version: int) -> list[int]:
    listing = store.list(f"{folder}/_delta_log", after=f"{max(version, 0):020d}.json")
    numbers = [int(item.name[:20]) for item in listing if item.name[20:] == ".json" and item.name[:20].isdigit()]
    return [number for number in numbers if number > version]


def _remove_from(
    store: Store,
    ref: PartitionRef,
    first_bad: int,
    above: list[int],
    why: str,
    synced: SyncPoint | None,
    in_wal: OffsetRange | None,
    report: Report,
) -> bool:
    """Remove versions from the top downward, so that a kill on the way leaves a shorter bad tail, never a gap."""
    base = _end_before(store, ref.folder, first_bad)
    if synced is not None and first_bad <= synced.version:
        # It was on disk once, so this is no torn write: a person must look, and what the WAL still holds may be old.
        action = "at or below what was synced: refused, nothing removed"
        report.add(Finding(str(ref.tp), f"version {first_bad}: {why}", action, base, max(base, synced.end_offset)))
        return False
    seen = max([base, *(_end_of(store, ref.folder, version) for version in (first_bad, *above))])
    reach = in_wal.end if in_wal is not None and in_wal.start <= base < in_wal.end else base
    end = max(seen, reach)
    offsets = (base, end) if end > base else (-1, -1)
    if seen > reach or not (reach > base or _only_in_wal(store, first_bad, synced, in_wal)):
        action = "not in reach of the WAL: refused"
        report.add(Finding(str(ref.tp), f"version {first_bad}: {why}", action, *offsets))
        return False
    for version in sorted({first_bad, *above}, reverse=True):
        store.delete(commit_path(ref.folder, version))
        steps.reached("version-removed")
    action = f"versions {first_bad}..{max([first_bad, *above])} removed, rebuilt from the WAL"
    report.add(Finding(str(ref.tp), f"version {first_bad}: {why}", action, *offsets))
    return True


def _only_in_wal(store: Store, version: int, synced: SyncPoint | None, in_wal: OffsetRange | None) -> bool:
    """With fsync every row of a version that is not known to be on disk is in the WAL: can this be such a version?

    Of a partition that was never synced the WAL holds all rows or, if only a torn claim is there, none.
    """
    if not store.fsync:
        return False
    return version > synced.version if synced is not None else in_wal is None or in_wal.start == 0


def _end_of(store: Store, folder: str, version: int) -> int:
    """The log end that a version states, -1 if it cannot be read."""
    try:
        return int(decode_commit(version, store.get(commit_path(folder, version))).details["end"])
    except (StoreNotFound, CorruptCommit, KeyError):
        return -1


def _end_before(store: Store, folder: str, version: int) -> int:
    if version == 0:
        return 0
    end = _end_of(store, folder, version - 1)
    return end if end >= 0 else load(store, folder).state.end


# --- the WAL's tail ------------------------------------------------------------------------------


def replay_partition(
    wal: Wal, ref: PartitionRef, entries: list[WalEntryRef], partition: PartitionLog, report: Report
) -> bool:
    """Append what this WAL holds beyond the log's end; set aside what another leader's rows have replaced (R-2)."""
    partition.open()
    if partition.problem is not None:
        report.add(Finding(str(ref.tp), partition.problem.message, "its WAL entries are kept until it is repaired"))
        return False
    lost, tail, beyond = sort_out(entries, partition.state, wal.uuid)
    _set_aside(wal, ref, lost, "another leader appended at these offsets", report)
    _set_aside(wal, ref, beyond, "offsets before them are in neither log nor WAL", report)
    if tail:
        rows = partition.replay((wal.read(entry) for entry in tail), wal.uuid)
        report.replayed[str(ref.tp)] = report.replayed.get(str(ref.tp), 0) + rows
    return True


def sort_out(
    entries: list[WalEntryRef], state: PartitionState, wal: str
) -> tuple[list[WalEntryRef], list[WalEntryRef], list[WalEntryRef]]:
    """(replaced by another WAL's rows, to be appended now, behind a hole). Entries that are committed fall away."""
    lost: list[WalEntryRef] = []
    tail: list[WalEntryRef] = []
    beyond: list[WalEntryRef] = []
    end, lost_epoch = state.end, -1
    for entry in _effective(entries):
        # A tail is lost as a whole: what its leader appended behind a lost batch is not merged behind other rows.
        if entry.epoch <= lost_epoch:
            lost.append(entry)
        elif state.rows_of_other_wal(entry.base_offset, wal):
            if not _appended_by(state, entry, wal):
                lost.append(entry)
                lost_epoch = entry.epoch
        elif entry.base_offset == end:
            tail.append(entry)
            end = entry.end_offset
        elif entry.end_offset > end:
            beyond.append(entry)
    return lost, tail, beyond


def _effective(entries: list[WalEntryRef]) -> list[WalEntryRef]:
    """A leader that recovered at a lower offset wrote over what the WAL had there: the newer epoch holds."""
    kept: list[WalEntryRef] = []
    for entry in entries:
        while kept and kept[-1].end_offset > entry.base_offset and kept[-1].epoch < entry.epoch:
            kept.pop()
        if not kept or kept[-1].end_offset <= entry.base_offset:
            kept.append(entry)
    return kept


def _appended_by(state: PartitionState, entry: WalEntryRef, wal: str) -> bool:
    """Were the rows at these offsets, which are in the log, appended under a claim of this WAL?"""
    if entry.end_offset > state.end:
        return False
    owner = None
    for claim in state.claims:
        if claim.start <= entry.base_offset:
            owner = claim.wal
    return owner == wal


def _set_aside(wal: Wal, ref: PartitionRef, entries: list[WalEntryRef], why: str, report: Report) -> None:
    if not entries:
        return
    path = wal.set_aside(ref, [wal.read(entry) for entry in entries], why)
    action = f"{sum(entry.count for entry in entries)} records kept aside in {path.name}, not merged"
    report.add(Finding(str(ref.tp), why, action, entries[0].base_offset, entries[-1].end_offset))


def recover_wal(
    wal: Wal,
    store: Store,
    report: Report,
    partition_of: Callable[[PartitionRef], PartitionLog | None],
    wanted: Callable[[PartitionRef], bool],
) -> None:
    """Repair and replay every partition of this WAL that is `wanted`. `partition_of` is None for deleted topics."""
    scan = wal.recovered
    parked: defaultdict[tuple[str, int], list[ParkedFile]] = defaultdict(list)
    for file in scan.parked:
        if file.ref is not None:
            parked[file.ref.topic_id, file.ref.partition].append(file)
    for key in sorted({*scan.entries, *parked}):
        # A parked partition refuses produce, so what was parked is older than whatever the log holds.
        # Parking that failed half-way and was tried again leaves several files with the same batches.
        aside = sorted((e for f in parked.get(key, ()) for e in f.entries), key=lambda e: (e.base_offset, e.epoch))
        entries = [*aside, *scan.entries.get(key, ())]
        if not entries or not wanted(entries[0].ref):
            continue
        ref = entries[0].ref
        if (partition := partition_of(ref)) is None:
            wal.release(ref, forget=True)
            report.add(Finding(str(ref.tp), "its topic was deleted", "the WAL entries are dropped"))
        elif key not in parked and _all_synced(entries, scan.sync_points.get(key)):
            continue  # nothing of it can be missing: it opens when somebody needs it
        elif _recover_partition(wal, store, ref, entries, partition, report) and key in parked:
            # The parked copy is the durable one: it may go only when the lake has the rows for good.
            partition.durability.sync_now()
            for file in parked[key]:
                wal.unpark(file.path)


def _all_synced(entries: list[WalEntryRef], synced: SyncPoint | None) -> bool:
    return synced is not None and all(entry.end_offset <= synced.end_offset for entry in entries)


def _recover_partition(
    wal: Wal, store: Store, ref: PartitionRef, entries: list[WalEntryRef], partition: PartitionLog, report: Report
) -> bool:
    try:
        if not partition.opened:
            synced = wal.recovered.sync_points.get((ref.topic_id, ref.partition))
            partition.open()
            # The WAL is cut only over what is known to be on disk, so what the last process left must be synced too.
            # Of a damaged log only the part below the damage is known: no older sync point may be stated for it.
            if partition.problem is None:
                after = -1 if synced is None else synced.version
                partition.durability.found_unsynced(unsynced_files(store, ref, after, partition.state))
                partition.runtime.on_dirty(partition)
        return replay_partition(wal, ref, entries, partition, report)
    except IntegrityError as error:
        report.add(Finding(str(ref.tp), error.message, "its WAL entries are kept until it is repaired"))
        return False
