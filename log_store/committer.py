"""The only code that creates versions of a partition table.

Steps of a commit, and what a crash after each one leaves:

1. look at the claims: a fenced process stops here                      nothing
2. put the data files under names that nobody will ever use again       orphans, swept later
3. put-if-absent of the next version                                    the version is there, nobody was told
4. look at clock and claims once more (R-3), then apply to the state    as above
5. the caller acknowledges
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sluice.log_store import parquet, steps
from sluice.log_store.commit import put_version
from sluice.log_store.delta_log import Commit, DataFile, TableIdentity, commit_path, decode_commit, encode_commit
from sluice.log_store.errors import CorruptCommit, IntegrityError, NotLeader, StorageError
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.plans import ROWS_UNCHANGED, Plan, PlanKind, mirrored_segment
from sluice.log_store.runtime import Runtime
from sluice.log_store.segments import ActiveSegment
from sluice.log_store.snapshot import last_checkpoint
from sluice.log_store.store import StoreNotFound
from sluice.log_store.values import PartitionRef

_log = logging.getLogger(__name__)

NEWEST_KNOWN_S = 10.0
"""R-3: how old the knowledge that v-1 is the newest version may be when v is put."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A version that is being put. While its outcome is not known nothing else is put (R-4)."""

    commit: Commit
    data: bytes
    token: object
    """The caller's: comes back with the win."""
    sync: bool = False
    """Durable at once: no WAL could rebuild it after a power loss."""


@dataclass(frozen=True, slots=True)
class Append:
    """Rows to append as one version: files already put, and what recovery must know about them."""

    files: tuple[DataFile, ...]
    end: int
    append_ms: int
    producers: list[list[int]]
    rolls: list[int]
    active: ActiveSegment
    rows: pa.Table | None = None
    """As they are in the files."""
    sinks: Sequence[list[str | int]] = ()


class Committer:
    """Not thread-safe: the partition calls it under its commit mutex."""

    def __init__(
        self,
        ref: PartitionRef,
        runtime: Runtime,
        state: PartitionState,
        on_won: Callable[[Commit, object], None],
        newest_known_at: float,
    ) -> None:
        """`newest_known_at`: boottime at which the look that found `state` began (R-3)."""
        self._ref = ref
        self._runtime = runtime
        self._state = state
        self._on_won = on_won
        self._attempt: Attempt | None = None
        self._newest_known_at = newest_known_at
        self.problem: IntegrityError | None = None

    @property
    def in_flight(self) -> tuple[DataFile, ...]:
        """Files of the version in doubt: they may be live already."""
        return () if self._attempt is None else self._attempt.commit.adds

    @property
    def in_doubt(self) -> bool:
        return self._attempt is not None

    @property
    def epoch(self) -> int:
        return self._runtime.leadership.epoch

    # --- the kinds of commit -------------------------------------------------------------------

    def claim(self, wal: str) -> None:
        """Stamp our epoch and WAL into the partition (R-1). Afterwards no older leader can add a version."""
        self.finish()
        while not self.claimed(wal):
            if self._state.epoch > self.epoch:
                self._runtime.leadership.fence(f"{self._ref.tp} is at epoch {self._state.epoch}")
                raise NotLeader(f"{self._ref.tp} is led under epoch {self._state.epoch}")
            identity = None if self._state.exists else self._new_identity()
            kind = "create" if identity else "claim"
            self._put(
                self._encode(kind, "CREATE TABLE" if identity else "CLAIM", {"wal": wal}, identity=identity), None
            )

    def claimed(self, wal: str) -> bool:
        claims = self._state.claims
        return bool(claims) and (claims[-1].epoch, claims[-1].wal) == (self.epoch, wal)

    def _new_identity(self) -> TableIdentity:
        return TableIdentity(
            table_id=str(uuid.uuid4()),
            topic=self._ref.topic,
            topic_id=self._ref.topic_id,
            partition=self._ref.partition,
            created_ms=self._runtime.clock.wall_ms(),
            tombstones_s=-(-self._runtime.settings.file_delete_delay_ms * 4 // 3_000),
        )

    def append(self, append: Append, token: object) -> None:
        target = append.end
        self.finish()
        while self._state.end < target:
            details: dict[str, Any] = {
                "ms": append.append_ms,
                "producers": append.producers,
                "rolls": append.rolls,
                "active": append.active.to_json(),
            }
            if append.sinks:
                details["sinks"] = list(append.sinks)
            self._put(self._encode("append", "STREAMING UPDATE", details, end=target, adds=append.files), token)

    def plan(self, plan: Plan, removed: Sequence[DataFile]) -> int:
        """Commit a checked plan and return its version."""
        self.finish()
        summary: dict[str, Any] = {"id": plan.plan_id, "kind": plan.kind.value, "reason": plan.reason}
        if plan.first_dirty is not None:
            summary["first_dirty"] = plan.first_dirty
        start = self._state.log_start if plan.log_start is None else plan.log_start
        data = self._encode(
            "plan",
            plan.kind.value.upper(),
            {"plan": summary} | self._segments_of(plan),
            end=plan.end,
            log_start=start,
            adds=plan.adds,
            removes=removed,
            data_change=plan.kind not in ROWS_UNCHANGED,
        )
        version = self._state.version + 1
        self._put(data, None, sync=plan.kind is PlanKind.MIRROR)
        if self._state.plans.get(plan.plan_id) != version:
            # A foreign commit took the version and was stepped over: the plan must be checked again.
            raise StorageError(f"version {version} of {self._ref.tp} went to another commit; repeat the plan")
        return version

    def _segments_of(self, plan: Plan) -> dict[str, Any]:
        if plan.kind is PlanKind.MIRROR:
            active = mirrored_segment(self._state.active, self._state.end, plan, self._runtime.clock.wall_ms())
            return {"rolls": list(plan.rolls), "active": active.to_json()}
        return self._new_segment() if plan.empties_log else {}

    def _new_segment(self) -> dict[str, Any]:
        """An empty one at the log end takes the place of the active segment."""
        end = self._state.end
        return {"rolls": [end], "active": ActiveSegment(base_offset=end).to_json()}

    def put_file(self, table: pa.Table, codec: tuple[str, int | None]) -> DataFile:
        """Write rows under a name that was never used and never will be again (I-4)."""
        encoded = parquet.encode(table, *codec)
        name = f"{encoded.base_offset:020d}-{self.epoch}-{uuid.uuid4().hex}.parquet"
        self._runtime.store.put(f"{self._ref.folder}/{name}", encoded.data)
        steps.reached("data-file-put")
        return DataFile.of(name, encoded, self._runtime.clock.wall_ms())

    def drop_files(self, files: Sequence[DataFile]) -> None:
        """Delete files that were put for a commit that was never tried."""
        with suppress(StorageError):
            for file in files:
                self._runtime.store.delete(f"{self._ref.folder}/{file.path}")

    def _encode(
        self,
        kind: str,
        operation: str,
        extra: dict[str, Any],
        *,
        end: int | None = None,
        log_start: int | None = None,
        adds: Sequence[DataFile] = (),
        removes: Sequence[DataFile] = (),
        identity: TableIdentity | None = None,
        data_change: bool = True,
    ) -> bytes:
        state = self._state
        end = state.end if end is None else end
        log_start = state.log_start if log_start is None else log_start
        details = {"kind": kind, "epoch": self.epoch, "base": state.end, "end": end, "start": log_start, **extra}
        return encode_commit(
            commit_id=uuid.uuid4().hex,
            timestamp_ms=self._runtime.clock.wall_ms(),
            operation=operation,
            details=details,
            epoch=self.epoch,
            end_offset=end,
            log_start=log_start,
            adds=adds,
            removes=removes,
            identity=identity,
            data_change=data_change,
        )

    # --- putting a version ---------------------------------------------------------------------

    def _put(self, data: bytes, token: object, *, sync: bool = False) -> None:
        if self.problem is not None:
            raise self.problem
        self._attempt = Attempt(decode_commit(self._state.version + 1, data), data, token, sync)
        self.finish()

    def finish(self) -> None:
        """Bring the version in doubt, if any, to an end. StorageError: still in doubt, call again."""
        if (attempt := self._attempt) is None:
            return
        version = attempt.commit.version
        checked_at = self._check_before(version)
        begun = self._runtime.clock.boottime()
        steps.reached("before-commit")
        path = commit_path(self._ref.folder, version)
        winner = put_version(self._runtime.store, path, attempt.data, sync=attempt.sync)
        steps.reached("after-commit")
        if winner is not None:
            self._attempt = None
            self._lost(version, winner)
            return
        self._check_after(version, checked_at)
        self._attempt = None
        self._newest_known_at = begun
        self._runtime.figures.committed(self._runtime.clock.boottime() - begun)
        self._on_won(attempt.commit, attempt.token)

    def _check_before(self, version: int) -> float:
        """Know that v-1 is the newest version, from a check begun less than 10 s ago (R-3). Returns when."""
        now = self._runtime.clock.boottime()
        self._runtime.leadership.confirm(self._runtime.claim_check_s)
        if now - self._newest_known_at < NEWEST_KNOWN_S:
            return self._newest_known_at
        self._runtime.leadership.confirm(0)
        try:
            if version > 0:
                self._runtime.store.stat(commit_path(self._ref.folder, version - 1))
        except StoreNotFound:
            self._fence(version, "the log before it was cleaned away")
        if last_checkpoint(self._runtime.store, self._ref.folder) >= version:
            self._fence(version, "a newer checkpoint exists")
        return now

    def _check_after(self, version: int, checked_at: float) -> None:
        """Nobody is acknowledged for a version that may lie below a log that another leader cleaned (R-3)."""
        self._runtime.leadership.confirm(self._runtime.claim_check_s)
        if self._runtime.clock.boottime() - checked_at <= NEWEST_KNOWN_S:
            return
        # Too slow, or stopped on the way. Only if nobody claimed meanwhile can the version be what readers see.
        self._runtime.leadership.confirm(0)
        if last_checkpoint(self._runtime.store, self._ref.folder) >= version:
            self._fence(version, "a newer checkpoint exists")

    def _fence(self, version: int, why: str) -> None:
        self._runtime.leadership.fence(f"version {version} of {self._ref.tp}: {why}")
        raise NotLeader(f"this process was fenced: {why} ({self._ref.tp}, version {version})")

    def _lost(self, version: int, winner: bytes) -> None:
        """Somebody else holds the version: a newer leader, an older one before our claim, or a stranger."""
        try:
            commit = decode_commit(version, winner)
            if commit.ours and commit.details["epoch"] >= self.epoch:
                self._fence(version, f"it was written under epoch {commit.details['epoch']}")
            if commit.ours and any(claim.epoch == self.epoch for claim in self._state.claims):
                raise CorruptCommit(
                    f"version {version} of {self._ref.tp} was written under epoch {commit.details['epoch']} "
                    f"after epoch {self.epoch} had claimed the partition",
                    version=version,
                )
            self._on_won(commit, None)
        except IntegrityError as problem:
            self.problem = problem
            _log.error("%s refuses produce: %s", self._ref.tp, problem)
            raise
        if not commit.ours:
            _log.warning("%s: version %d was written by %s; stepped over", self._ref.tp, version, commit.engine)
