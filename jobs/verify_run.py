"""The order of a verification: cluster, catalog, groups, partitions; and what to do when a live log moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from sluice.jobs import verify_cluster as whole
from sluice.jobs.verify_checks import check_facts, check_listed, check_tombstones
from sluice.jobs.verify_findings import Finding, Severity, notice, placed
from sluice.jobs.verify_partition import Evidence, gather, really_missing
from sluice.jobs.verify_workers import Workers
from sluice.log_store.catalog import METADATA_REF
from sluice.log_store.catalog_state import CatalogState
from sluice.log_store.cluster_file import CLUSTER_FILE
from sluice.log_store.errors import ResourceNotFound
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.store import Store, StoreNotFound
from sluice.log_store.topic import CONSUMER_OFFSETS
from sluice.log_store.values import PartitionRef

AT_ONCE = 128
"""Partitions whose logs and facts are held together; also how often a run can be stopped."""
ROUNDS = 5
"""How often a partition is looked at anew because its files went away meanwhile (I-9)."""


@dataclass(frozen=True, slots=True)
class Scope:
    topics: Sequence[str] = ()
    """Names or patterns; all without any."""
    partitions: Sequence[int] = ()
    quick: bool = False
    """Logs, checkpoints and listings only: no data file is opened."""

    def takes(self, topic: str, partition: int) -> bool:
        named = not self.topics or any(fnmatchcase(topic, pattern) for pattern in self.topics)
        return named and (not self.partitions or partition in self.partitions)


@dataclass(slots=True)
class Verdict:
    findings: list[Finding] = field(default_factory=list)
    partitions: int = 0
    commits: int = 0
    files: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def violations(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.VIOLATION]

    @property
    def notices(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.NOTICE]


def chosen_partitions(catalog: CatalogState, scope: Scope, *, whole: bool = True) -> list[PartitionRef]:
    """Of the catalog's topics and of the catalog itself; a pattern that fits nothing of a whole catalog is an error."""
    topics = catalog.topics()
    names = [METADATA_REF.topic, *(meta.name for meta in topics)]
    if whole and (
        unused := [pattern for pattern in scope.topics if not any(fnmatchcase(name, pattern) for name in names)]
    ):
        raise ResourceNotFound(f"no topic matches {', '.join(unused)}", field="topic")
    refs = [METADATA_REF, *(meta.partition(number) for meta in topics for number in range(meta.partitions))]
    return [ref for ref in refs if scope.takes(ref.topic, ref.partition)]


class Verification:
    def __init__(
        self, store: Store, workers: Workers, scope: Scope, on_partition: Callable[[int], None] = lambda _: None
    ) -> None:
        self._store = store
        self._workers = workers
        self._scope = scope
        self._on_partition = on_partition
        self._verdict = Verdict()
        self._pinned: dict[PartitionRef, Evidence] = {}

    def run(self) -> Verdict:
        found = self._verdict.findings
        try:
            found += whole.check_cluster_file(self._store.get(CLUSTER_FILE))
        except StoreNotFound:
            raise ResourceNotFound(f"there is no cluster at {self._store.url}", field="root") from None
        catalog = self._catalog()
        refs = chosen_partitions(catalog, self._scope, whole=not self._verdict.violations)
        # Groups first: whatever they have committed was in the log before, so the logs are read after them.
        groups = [ref for ref in refs if ref.topic == CONSUMER_OFFSETS]
        self._examine(groups)
        self._examine([ref for ref in refs if ref.topic != CONSUMER_OFFSETS])
        if not self._scope.quick:
            self._groups(groups, catalog)
        self._claims()
        if not self._scope.topics:
            found += whole.check_folders(catalog, self._store.list_folders(whole.TOPICS))
        self._count()
        return self._verdict

    def _catalog(self) -> CatalogState:
        for _ in range(ROUNDS):
            evidence = gather(self._store, METADATA_REF)
            try:
                catalog, findings = whole.read_catalog(self._store, evidence.state)
            except FileVanished as gone:
                if really_missing(self._store, METADATA_REF, [gone.file.path]):
                    break
                continue
            self._verdict.findings += findings
            return catalog
        text = "the catalog cannot be replayed: a file of it is missing; only the catalog itself was looked at"
        self._verdict.findings += placed([Finding("section 6", text)], METADATA_REF)
        return CatalogState()

    # --- partitions ----------------------------------------------------------------------------

    def _examine(self, refs: Sequence[PartitionRef]) -> None:
        for at in range(0, len(refs), AT_ONCE):
            self._examine_some(refs[at : at + AT_ONCE])

    def _examine_some(self, refs: Sequence[PartitionRef]) -> None:
        """Look at partitions, and again at those whose files went away under our hands."""
        waiting = list(refs)
        for _ in range(ROUNDS):
            if not waiting:
                return
            waiting = self._round(waiting)
        for ref in waiting:
            text = f"its files went away {ROUNDS} times while they were read: is file.delete.delay.ms long enough?"
            self._verdict.findings += placed([notice("I-9", text)], ref)

    def _round(self, refs: Sequence[PartitionRef]) -> list[PartitionRef]:
        evidences = self._workers.gather(refs)
        again: list[PartitionRef] = []
        settled: list[Evidence] = []
        for evidence in evidences:
            missing = really_missing(self._store, evidence.ref, evidence.gone) if evidence.gone else []
            if len(missing) < len(evidence.gone):
                again.append(evidence.ref)
                continue
            if self._scope.quick:
                evidence.findings += [*evidence.sizes, *self._missing(evidence, missing)]
            settled.append(evidence)
        if not self._scope.quick:
            settled, vanished = self._read(settled)
            again += vanished
        for evidence in settled:
            self._pinned[evidence.ref] = evidence
            self._verdict.findings += evidence.findings
        self._on_partition(len(settled))
        return again

    @staticmethod
    def _missing(evidence: Evidence, names: Iterable[str]) -> list[Finding]:
        gone = set(names)
        faults = [fault for file in evidence.state.files if file.path in gone for fault in check_listed(file, None)]
        return list(placed(faults, evidence.ref))

    def _read(self, evidences: Sequence[Evidence]) -> tuple[list[Evidence], list[PartitionRef]]:
        """Files and rows. Answers the partitions that are done and those to be looked at anew."""
        facts = self._workers.facts(evidences)
        settled: list[Evidence] = []
        sound: list[Evidence] = []
        again: list[PartitionRef] = []
        for evidence in evidences:
            known = facts[evidence.ref.folder]
            gone = [path for path, fact in known.items() if fact.missing]
            if gone and len(really_missing(self._store, evidence.ref, gone)) < len(gone):
                again.append(evidence.ref)
                continue
            faults = list(placed(check_facts(evidence.state.files, known), evidence.ref))
            evidence.findings += placed(check_tombstones(evidence.state, known), evidence.ref)
            evidence.findings += faults
            settled.append(evidence)
            if not faults:
                sound.append(evidence)
            else:
                text = "not compared with other readers, because of its damaged files"
                evidence.findings += placed([notice("I-11", text)], evidence.ref)
        compared = self._workers.compare(sound, facts)
        self._verdict.findings += compared.findings
        again += compared.vanished
        return [evidence for evidence in settled if evidence.ref not in compared.vanished], again

    # --- the cluster -----------------------------------------------------------------------------

    def _groups(self, refs: Sequence[PartitionRef], catalog: CatalogState) -> None:
        meta = catalog.find(CONSUMER_OFFSETS)
        if meta is None or self._scope.topics or self._scope.partitions:
            return  # commits are measured against all logs
        bounds = whole.bounds_of([(ref, evidence.state) for ref, evidence in self._pinned.items()])
        for ref in refs:
            evidence = self._pinned.get(ref)
            if evidence is None or any(finding.severity is Severity.VIOLATION for finding in evidence.findings):
                continue
            try:
                groups, findings = whole.read_groups(self._store, ref, evidence.state)
            except FileVanished:
                text = "its files went away before its groups were read; verify it again"
                findings, groups = list(placed([notice("I-9", text)], ref)), {}
            self._verdict.findings += findings
            self._verdict.findings += whole.check_groups(groups, ref, meta.partitions, bounds)

    def _claims(self) -> None:
        claims, findings = whole.read_claims(self._store)
        self._verdict.findings += findings
        epochs = {str(ref.tp): evidence.state.epoch for ref, evidence in self._pinned.items() if evidence.state.exists}
        self._verdict.findings += whole.check_claims(claims, epochs)

    def _count(self) -> None:
        for evidence in self._pinned.values():
            self._verdict.partitions += 1
            self._verdict.commits += evidence.commits
            self._verdict.files += len(evidence.state.files)
            self._verdict.records += sum(file.records for file in evidence.state.files)
            self._verdict.bytes += sum(file.size for file in evidence.state.files)
