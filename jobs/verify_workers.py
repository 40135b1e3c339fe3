"""Who reads the files: this process, with a few threads. `verify_spark` has the same on Spark executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

from sluice.jobs.verify_facts import FileFacts, RowSums, file_facts
from sluice.jobs.verify_findings import Finding, placed
from sluice.jobs.verify_partition import Evidence, gather, moved_on
from sluice.jobs.verify_rows import check_cleaned, check_sums, delta_rs_batches, sums_of
from sluice.log_store.errors import SluiceError
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.store import Store
from sluice.log_store.values import PartitionRef

BUNDLE_BYTES = 64 * 1024 * 1024
BUNDLE_FILES = 200

Facts = Mapping[str, FileFacts]
"""By path inside the partition's folder."""
_T = TypeVar("_T")
_R = TypeVar("_R")


class Bundle(NamedTuple):
    """Files that are read by one task."""

    folder: str
    paths: tuple[str, ...]


class StockReaderLost(Exception):
    """delta-rs met a file that was removed and deleted meanwhile."""


class Compared(NamedTuple):
    findings: list[Finding]
    vanished: list[PartitionRef]
    """A file went away while it was read: the partition must be looked at anew (I-9)."""


class Workers(Protocol):
    def gather(self, refs: Sequence[PartitionRef]) -> list[Evidence]:
        """Read and check the logs of partitions."""

    def facts(self, evidences: Sequence[Evidence]) -> dict[str, dict[str, FileFacts]]:
        """Read every live file; facts by folder and path."""

    def compare(self, evidences: Sequence[Evidence], facts: Mapping[str, Facts]) -> Compared:
        """Rows against stock readers (I-11) and keys of compacted parts; only of partitions without damaged files."""


class LocalWorkers:
    def __init__(self, store: Store, threads: int = 4) -> None:
        self._store = store
        self._threads = threads

    def gather(self, refs: Sequence[PartitionRef]) -> list[Evidence]:
        return self._all(lambda ref: gather(self._store, ref), refs)

    def facts(self, evidences: Sequence[Evidence]) -> dict[str, dict[str, FileFacts]]:
        found: dict[str, dict[str, FileFacts]] = {evidence.ref.folder: {} for evidence in evidences}
        for bundle, facts in self._all(lambda one: (one, read_bundle(self._store, one)), list(bundles(evidences))):
            found[bundle.folder].update({one.path: one for one in facts})
        return found

    def compare(self, evidences: Sequence[Evidence], facts: Mapping[str, Facts]) -> Compared:
        findings: list[Finding] = []
        vanished: list[PartitionRef] = []
        for evidence in evidences:
            try:
                found = list(compare_one(self._store, evidence, facts[evidence.ref.folder]))
            except (FileVanished, StockReaderLost):
                vanished.append(evidence.ref)
            else:
                findings += placed(found, evidence.ref)
        return Compared(findings, vanished)

    def _all(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        with ThreadPoolExecutor(self._threads, thread_name_prefix="sluice-verify") as pool:
            return list(pool.map(work, items))


def compare_one(store: Store, evidence: Evidence, facts: Facts) -> Iterator[Finding]:
    state, folder = evidence.state, evidence.ref.folder
    if not state.exists:
        return
    yield from check_cleaned(store, folder, state)
    if store.delta_uri is None:
        return
    ours = sum((facts[file.path].sums for file in state.files if file.path in facts), RowSums())
    try:
        theirs = sums_of(delta_rs_batches(store, folder, state.version))
    except SluiceError:
        raise
    except Exception as error:  # delta-rs and DataFusion raise what they like; each is an answer here
        if moved_on(store, evidence):
            raise StockReaderLost from error
        yield Finding("I-11", f"delta-rs cannot read it: {' '.join(str(error).split())[:300]}", version=state.version)
        return
    yield from check_sums("delta-rs", ours, theirs, state.version)


def bundles(evidences: Iterable[Evidence]) -> Iterator[Bundle]:
    """Live files in pieces that are worth a task each."""
    for evidence in evidences:
        paths: list[str] = []
        size = 0
        for file in evidence.state.files:
            paths.append(file.path)
            size += file.size
            if size >= BUNDLE_BYTES or len(paths) >= BUNDLE_FILES:
                yield Bundle(evidence.ref.folder, tuple(paths))
                paths, size = [], 0
        if paths:
            yield Bundle(evidence.ref.folder, tuple(paths))


def read_bundle(store: Store, bundle: Bundle) -> list[FileFacts]:
    return [file_facts(store, bundle.folder, path) for path in bundle.paths]
