"""Carries one cleaning of one partition through: two passes, one plan, and what to do when the log moved on meanwhile.

Steps, and what a kill after each one leaves:

1. the range is chosen and its keys are collected        nothing
2. new files are put into the partition's folder         orphans, swept later (R-6)
3. the leader commits one plan (R-7)                     the cleaned log

Appends do not disturb a cleaning, they come behind its range. A merge, a trim or a retention that takes away one of its
files does: the plan is refused. Then only what changed is cleaned again. The verdict still holds, because merges keep
rows and a rising log start takes away the oldest rows, which shadow nothing. So merges cannot starve a compaction, for
closed segments are merged a few times and never again. Only another cleaning in between makes it begin anew.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from sluice.log_store.compaction import Cleanable, FileGroup, LogView, file_groups
from sluice.log_store.compaction_files import (
    Cleaned,
    Cleaning,
    Verdict,
    clean_group,
    cleaning,
    last_offsets,
    shadowed_offsets,
)
from sluice.log_store.compaction_keys import KeyHasher
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused, StorageError
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.store import Store
from sluice.log_store.topic import TopicConfig

_log = logging.getLogger(__name__)
TRIES = 8
"""How often the part of a cleaning that was overtaken is done again."""


class Partition(Protocol):
    """A partition as a cleaning needs it: led by this process, or by another that is asked."""

    @property
    def store(self) -> Store: ...

    @property
    def folder(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    def view(self) -> LogView: ...

    def apply_plan(self, plan: Plan) -> int: ...


class Passes(Protocol):
    """How the two passes are carried out: here, or by Spark. `FileVanished` when a file went meanwhile."""

    def judge(self, job: Cleaning, groups: Sequence[FileGroup]) -> None:
        """The first pass, over all files of the range."""

    def clean(self, job: Cleaning, groups: Sequence[FileGroup]) -> list[Cleaned]:
        """The second pass over some of them, by the verdict of the first."""


class LocalPasses:
    """In this process and thread, for partitions whose keys fit into memory."""

    def __init__(self, store: Store, between: Callable[[], None] = lambda: None) -> None:
        """`between` is called before each piece of work, as in `compact`."""
        self._store = store
        self._between = between
        self._verdict: Verdict

    def judge(self, job: Cleaning, groups: Sequence[FileGroup]) -> None:
        hasher = KeyHasher(job.seed)
        clean = [file for group in groups if not group.dirty for file in group.files]
        dirty = [file for group in groups if group.dirty for file in group.files]
        last = last_offsets(self._store, job, dirty, hasher)
        self._verdict = Verdict(last.kept(), shadowed_offsets(self._store, job, clean, hasher, last))

    def clean(self, job: Cleaning, groups: Sequence[FileGroup]) -> list[Cleaned]:
        return [self._one(job, group) for group in groups]

    def _one(self, job: Cleaning, group: FileGroup) -> Cleaned:
        self._between()
        return clean_group(self._store, job, group, self._verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One that was committed."""

    version: int
    end: int
    records_before: int
    """In the files that were rewritten or removed."""
    records_after: int
    files_removed: int
    files_added: int
    files_left: int
    """Read, and left as they are."""
    bytes_before: int
    bytes_after: int
    stamped: int
    expired: int
    tries: int


def compact(
    partition: Partition,
    passes: Passes,
    config: TopicConfig,
    chosen: Cleanable,
    view: LogView,
    now_ms: int,
    *,
    between: Callable[[], None] = lambda: None,
) -> Compaction:
    """Clean the chosen range of the partition that `view` shows. PlanRefused: another cleaning came first.

    `between` is called before each step; what it raises ends the cleaning.
    """
    bounds = (chosen.log_start, chosen.first_dirty, chosen.end)
    job = cleaning(partition.folder, partition.epoch, config, bounds, now_ms, secrets.randbits(128))
    work = _Work(partition, job, config.merge_target_bytes, view.last_cleaning)
    try:
        _judge(passes, job, work.groups_of(view))
        for number in range(1, TRIES + 1):
            between()
            work.add(_clean(passes, job, work.missing(view)))
            between()
            try:
                return work.result(work.commit(work.plan(view, chosen.reason)), number)
            except PlanRefused as refused:
                _log.info("compaction of %s was overtaken, what changed is done again: %s", job.folder, refused)
                view = work.fitting(partition.view(), refused)
        raise PlanRefused(f"{job.folder} moved on {TRIES} times while it was compacted")
    except BaseException:
        work.discard()
        raise


def _judge(passes: Passes, job: Cleaning, groups: Sequence[FileGroup]) -> None:
    try:
        passes.judge(job, groups)
    except FileVanished as vanished:
        raise _gone(vanished) from vanished


def _clean(passes: Passes, job: Cleaning, groups: Sequence[FileGroup]) -> list[Cleaned]:
    try:
        return passes.clean(job, groups) if groups else []
    except FileVanished as vanished:
        raise _gone(vanished) from vanished


def _gone(vanished: FileVanished) -> PlanRefused:
    return PlanRefused(
        f"{vanished.file.path} was removed and deleted while it was compacted", gone=[vanished.file.path]
    )


class _Work:
    """What is done so far, by the files that it was done to."""

    def __init__(self, partition: Partition, job: Cleaning, target_bytes: int, last_cleaning: int) -> None:
        self._partition = partition
        self._job = job
        self._target_bytes = target_bytes
        self._last_cleaning = last_cleaning
        self._done: list[Cleaned] = []
        self._named = False
        """A commit may name the new files: nobody may delete them by hand."""

    def groups_of(self, view: LogView, files: Sequence[DataFile] | None = None) -> list[FileGroup]:
        return file_groups(view, self._job.first_dirty, self._job.end, self._target_bytes, files)

    def missing(self, view: LogView) -> list[FileGroup]:
        """What is still to be cleaned of the log as it is. Pieces whose files are gone are forgotten."""
        live = {file.path for file in view.files}
        overtaken = [one for one in self._done if not live.issuperset(one.inputs)]
        self._done = [one for one in self._done if live.issuperset(one.inputs)]
        self._delete(overtaken)
        known = {path for one in self._done for path in one.inputs}
        return self.groups_of(view, [file for file in view.files if file.path not in known])

    def add(self, done: Sequence[Cleaned]) -> None:
        self._done += done

    def plan(self, view: LogView, reason: str) -> Plan:
        changed = [one for one in self._done if one.changed]
        adds = sorted((file for one in changed for file in one.adds), key=lambda file: file.base_offset)
        return Plan(
            plan_id=uuid.uuid4().hex,
            kind=PlanKind.COMPACT,
            reason=reason,
            base_version=view.version,
            removes=tuple(path for one in changed for path in one.inputs),
            adds=tuple(adds),
            first_dirty=self._job.end,
        )

    def commit(self, plan: Plan) -> int:
        self._named = True
        try:
            return self._partition.apply_plan(plan)
        except PlanRefused:
            self._named = False
            raise

    def fitting(self, view: LogView, refused: PlanRefused) -> LogView:
        """The log as it is now, if this cleaning can still be a cleaning of it."""
        if view.last_cleaning != self._last_cleaning:
            raise PlanRefused(f"another cleaning of {self._job.folder} came first") from refused
        return view

    def result(self, version: int, tries: int) -> Compaction:
        changed = [one for one in self._done if one.changed]
        return Compaction(
            version=version,
            end=self._job.end,
            records_before=sum(one.records_before for one in changed),
            records_after=sum(one.records_after for one in changed),
            files_removed=sum(len(one.inputs) for one in changed),
            files_added=sum(len(one.adds) for one in changed),
            files_left=sum(len(one.inputs) for one in self._done if not one.changed),
            bytes_before=sum(one.bytes_before for one in changed),
            bytes_after=sum(file.size for one in changed for file in one.adds),
            stamped=sum(one.stamped for one in changed),
            expired=sum(one.expired for one in changed),
            tries=tries,
        )

    def discard(self) -> None:
        """Once a plan is in doubt its files stay: either it holds, or they are swept as orphans."""
        if not self._named:
            self._delete(self._done)

    def _delete(self, pieces: Sequence[Cleaned]) -> None:
        with suppress(StorageError):
            for file in (file for one in pieces for file in one.adds):
                self._partition.store.delete(f"{self._job.folder}/{file.path}")
