"""Reads the log of one partition, version by version, and checks it against itself. Changes nothing.

The state is pinned where the log ended when it was read. A live service may clean the log, or delete files that were
removed long enough ago, under the reader's hands: then the partition is read anew (I-9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.jobs.verify_checks import check_folder, check_identity, check_listed, check_snapshot, check_state
from sluice.jobs.verify_commits import Action, check_commit, check_protocol, parse_actions
from sluice.jobs.verify_findings import Finding, notice, placed
from sluice.log_store import snapshot
from sluice.log_store.delta_log import Commit, commit_path, decode_commit
from sluice.log_store.errors import ForeignCommit, SluiceError
from sluice.log_store.leftovers import hidden_files
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.store import Listed, Store, StoreNotFound
from sluice.log_store.values import PartitionRef

TRIES = 5


class LogMoved(Exception):
    """What was listed is gone, because the log was cleaned meanwhile: read it anew."""


@dataclass(slots=True)
class Evidence:
    """One partition at a pinned version, and what is wrong with its log so far."""

    ref: PartitionRef
    state: PartitionState
    findings: list[Finding] = field(default_factory=list)
    commits: int = 0
    gone: tuple[str, ...] = ()
    """Live files that a listing did not show: missing, or deleted because a later version removed them."""
    sizes: tuple[Finding, ...] = ()
    """Files whose size in the listing is not the log's: for those who will not open them."""


def gather(store: Store, ref: PartitionRef) -> Evidence:
    """Read and check the log of a partition. `Evidence.findings` name the partition."""
    for _ in range(TRIES):
        evidence = _Reading(store, ref)
        try:
            return evidence.read()
        except LogMoved:
            continue
    found = Evidence(ref, PartitionState())
    text = f"its log was cleaned {TRIES} times while it was being read; verify it again"
    found.findings.append(notice("R-3", text, topic=ref.topic, partition=ref.partition))
    return found


class _Reading:
    def __init__(self, store: Store, ref: PartitionRef) -> None:
        self._store = store
        self._ref = ref
        self._findings: list[Finding] = []
        self._commits = 0

    def read(self) -> Evidence:
        listing = self._store.list(f"{self._ref.folder}/_delta_log")
        versions = _numbered(listing, ".json")
        pairs = self._pairs(listing)
        state = self._start(versions, pairs)
        start = state.version
        self._decode_older([version for version in versions if version <= start])
        self._replay(state, pairs, newest=max([-1, *versions, *pairs]))
        self._findings += check_identity(state, self._ref)
        self._findings += check_state(state)
        files = self._store.list(self._ref.folder)
        found = {item.name: item for item in files}
        gone = tuple(file.path for file in state.files if file.path not in found)
        sizes = [fault for file in state.files if file.path in found for fault in check_listed(file, found[file.path])]
        self._findings += check_folder(state, files)
        self._leftovers()
        findings = list(placed(self._findings, self._ref))
        wrong = tuple(placed(sizes, self._ref))
        return Evidence(self._ref, state, findings, self._commits, gone, wrong)

    # --- where to begin ------------------------------------------------------------------------

    def _pairs(self, listing: Sequence[Listed]) -> dict[int, PartitionState]:
        """Good pairs of state snapshot and checkpoint by version; bad ones become findings."""
        checkpoints = set(_numbered(listing, ".checkpoint.parquet"))
        names = [item.name for item in self._store.list(f"{self._ref.folder}/_sluice")]
        states = {int(name[6:26]) for name in names if name.startswith("state-") and name[6:26].isdigit()}
        for version in sorted(states ^ checkpoints):
            half = "a state snapshot without a checkpoint" if version in states else "a checkpoint without a snapshot"
            self._findings.append(notice("R-5", f"{half}: a crash left it, or it is being written", version=version))
        pairs = {}
        for version in sorted(states & checkpoints):
            if (state := snapshot.try_checkpoint(self._store, self._ref.folder, version)) is not None:
                pairs[version] = state
                self._findings += self._checkpoint_protocol(version)
            elif self._still_there(version):
                text = "the pair of state snapshot and Delta checkpoint is damaged"
                self._findings.append(Finding("R-5", text, version=version))
        return pairs

    def _checkpoint_protocol(self, version: int) -> Iterator[Finding]:
        try:
            with self._store.open_input(snapshot.checkpoint_path(self._ref.folder, version)) as source:
                column = pq.read_table(source, columns=["protocol"]).column("protocol")
        except StoreNotFound:
            raise LogMoved from None
        except (pa.ArrowException, OSError) as error:
            yield Finding("R-5", f"the checkpoint has no readable protocol: {error}", version=version)
            return
        for protocol in column.drop_null().to_pylist():
            yield from check_protocol(protocol, version)

    def _still_there(self, version: int) -> bool:
        """A pair that was deleted while it was read is no damage."""
        try:
            self._store.stat(snapshot.state_path(self._ref.folder, version))
            self._store.stat(snapshot.checkpoint_path(self._ref.folder, version))
        except StoreNotFound:
            return False
        return True

    def _start(self, versions: Sequence[int], pairs: dict[int, PartitionState]) -> PartitionState:
        """The oldest point that every later version can be replayed from."""
        if not versions and not pairs:
            return PartitionState()
        if versions and versions[0] == 0:
            return PartitionState()
        oldest = versions[0] if versions else max(pairs, default=0)
        for version in sorted(pairs):
            if version + 1 >= oldest:
                return pairs[version]
        text = f"the log begins at version {oldest} and no good checkpoint leads there"
        self._findings.append(Finding("I-6", text, version=oldest))
        return PartitionState()

    def _decode_older(self, versions: Sequence[int]) -> None:
        """Versions below the first checkpoint: nothing to replay them upon, but their bytes can be checked."""
        for version in versions:
            data = self._get(version)
            if data is not None:
                self._decoded(version, data)

    # --- version by version --------------------------------------------------------------------

    def _replay(self, state: PartitionState, pairs: dict[int, PartitionState], newest: int) -> None:
        while True:
            stored = pairs.get(state.version)
            if stored is not None and stored is not state:
                self._findings += check_snapshot(stored, state)
            version = state.version + 1
            data = self._get(version)
            if data is None:
                self._check_end(state, newest)
                return
            if not self._apply(state, version, data):
                left = max(newest, version) - version
                if left:
                    self._findings.append(notice("I-10", f"{left} later versions were not checked", version=version))
                return

    def _apply(self, state: PartitionState, version: int, data: bytes) -> bool:
        commit = self._decoded(version, data)
        if commit is None:
            return False
        faults: list[Finding] = []
        if commit.ours:
            actions: list[Action] = parse_actions(data)
            faults = list(check_commit(state, commit, actions))
        else:
            text = f"it was written by {commit.engine} and changes no file; it is stepped over"
            if not (commit.adds or commit.removes or commit.changes_table):
                faults = [notice("I-3", text, version=version)]
        self._findings += faults
        try:
            state.apply(commit)
        except ForeignCommit as error:
            self._findings.append(Finding("I-3", error.message, version=version))
            return False
        except (SluiceError, KeyError, TypeError, IndexError, ValueError) as error:
            if not faults:
                self._findings.append(Finding("I-10", f"it cannot be applied: {error}", version=version))
            return False
        return True

    def _decoded(self, version: int, data: bytes) -> Commit | None:
        self._commits += 1
        try:
            return decode_commit(version, data)
        except SluiceError as error:
            self._findings.append(Finding("I-10", error.message, version=version))
            return None

    def _check_end(self, state: PartitionState, newest: int) -> None:
        """The log ends where the next version is missing; nothing may lie behind that (I-2)."""
        hinted = snapshot.last_checkpoint(self._store, self._ref.folder)
        if max(newest, hinted) <= state.version:
            return
        missing = state.version + 1
        listing = self._store.list(f"{self._ref.folder}/_delta_log")
        versions = _numbered(listing, ".json")
        if versions and versions[0] > missing and self._pair_from(listing, versions[0]):
            raise LogMoved  # cleaned away under our hands: there is a pair to begin from
        text = f"version {missing} is missing, the log goes on up to {max(newest, hinted)}"
        self._findings.append(Finding("I-2", text, offset=state.end, version=missing))

    def _pair_from(self, listing: Sequence[Listed], oldest: int) -> bool:
        checkpoints = [version for version in _numbered(listing, ".checkpoint.parquet") if version + 1 >= oldest]
        return any(snapshot.try_checkpoint(self._store, self._ref.folder, v) is not None for v in checkpoints)

    def _get(self, version: int) -> bytes | None:
        try:
            return self._store.get(commit_path(self._ref.folder, version))
        except StoreNotFound:
            return None

    # --- the folder ----------------------------------------------------------------------------

    def _leftovers(self) -> None:
        root = self._store.local_path
        count = 0 if root is None else sum(1 for _ in hidden_files(root / self._ref.folder))
        if count:
            text = f"{count} hidden files of other engines or of killed processes"
            self._findings.append(notice("R-6", text))


def really_missing(store: Store, ref: PartitionRef, names: Sequence[str]) -> list[str]:
    """Those among the missing files that are live in the newest version too; the others were removed meanwhile."""
    live = {file.path for file in snapshot.load(store, ref.folder).state.files}
    return [name for name in names if name in live and not _exists(store, f"{ref.folder}/{name}")]


def moved_on(store: Store, evidence: Evidence) -> bool:
    """Files of the pinned version are gone because a later one removed them: whoever could not read them is right."""
    listed = {item.name for item in store.list(evidence.ref.folder)}
    gone = [file.path for file in evidence.state.files if file.path not in listed]
    return bool(gone) and not really_missing(store, evidence.ref, gone)


def _exists(store: Store, path: str) -> bool:
    try:
        store.stat(path)
    except StoreNotFound:
        return False
    return True


def _numbered(listing: Sequence[Listed], suffix: str) -> list[int]:
    names = [item.name for item in listing]
    return sorted(int(name[:20]) for name in names if name[20:] == suffix and name[:20].isdigit())
