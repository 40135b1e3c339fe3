"""What a partition is at one version: a pure replay of its commits.

The leader applies each commit it wins, a restart applies the state snapshot and the commits after it, a reader does
the same: one `apply`, so that all three agree (I-6). Nothing here does I/O.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sluice.log_store.checkpoint_file import CheckpointContent
from sluice.log_store.delta_log import TXN_END, TXN_EPOCH, TXN_START, Commit, DataFile, TableIdentity
from sluice.log_store.errors import CorruptCommit, ForeignCommit
from sluice.log_store.producers import ProducerWindows
from sluice.log_store.segments import ActiveSegment
from sluice.log_store.sinks import SinkEntries
from sluice.log_store.values import ProducerStamp, SinkStamp

RECENT_PLANS = 200
_NEVER_EXPIRES = 2**62


@dataclass(frozen=True, slots=True)
class EpochClaim:
    """From `start` on, rows were appended under this epoch by the holder of this WAL (R-1, R-2)."""

    epoch: int
    wal: str
    start: int


@dataclass(slots=True)
class PartitionState:
    version: int = -1
    end: int = 0
    """Log end offset of the committed log, that is the high watermark."""
    log_start: int = 0
    epoch: int = -1
    claims: list[EpochClaim] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    """Live files by base offset. Appends extend this list, plans replace it: a reader that took the list and its
    length keeps a consistent view without a copy."""
    producers: ProducerWindows = field(default_factory=lambda: ProducerWindows(_NEVER_EXPIRES))
    removed: dict[str, int] = field(default_factory=dict)
    """Files that a commit removed and when (wall ms): they are deleted after `file.delete.delay.ms` (R-6)."""
    rolls: list[int] = field(default_factory=list)
    active: ActiveSegment | None = None
    first_dirty: int = 0
    last_cleaning: int = -1
    """Version of the last key compaction (R-7)."""
    plans: dict[str, int] = field(default_factory=dict)
    """Recent plan ids and the versions that hold them."""
    sinks: SinkEntries = field(default_factory=SinkEntries)
    append_ms: int = 0
    gaps_below: int = 0
    """Offsets below it came from another cluster, whose gaps they have: there they are not dense."""
    identity: TableIdentity | None = None

    @property
    def exists(self) -> bool:
        return self.version >= 0

    def apply(self, commit: Commit) -> None:
        """Move to `commit.version`; raises and changes nothing when the commit does not fit."""
        if commit.version != self.version + 1:
            raise CorruptCommit(f"version {commit.version} does not follow {self.version}", version=commit.version)
        if not commit.ours:
            self._apply_foreign(commit)
            return
        self._check(commit)
        details = commit.details
        self._apply_files(commit)  # first, because it may still refuse
        self.version = commit.version
        self.identity = commit.identity or self.identity
        if details["kind"] in ("create", "claim"):
            self.claims.append(EpochClaim(details["epoch"], details["wal"], self.end))
        self.epoch, self.end, self.log_start = details["epoch"], details["end"], details["start"]
        self.append_ms = max(self.append_ms, details.get("ms", 0))
        for entry in details.get("producers", ()):
            self.record_producer(entry)
        for query, batch, piece, append_ms in details.get("sinks", ()):
            self.sinks.record(SinkStamp(query, batch, piece), append_ms)
        self._apply_segments(details)
        self._apply_plan(commit, details.get("plan"))

    def _check(self, commit: Commit) -> None:
        details, version = commit.details, commit.version
        if commit.changes_table and version != 0:
            raise ForeignCommit(f"version {version} changes protocol or metaData", version=version)
        if version == 0 and commit.identity is None:
            raise CorruptCommit("version 0 has no metaData", version=0)
        if details["base"] != self.end or details["end"] < self.end or details["start"] < self.log_start:
            raise CorruptCommit(
                f"version {version} says offsets {details['base']}..{details['end']} (log start {details['start']}), "
                f"the log before it ends at {self.end} and starts at {self.log_start}",
                version=version,
            )
        if details["epoch"] < self.epoch:
            raise CorruptCommit(f"version {version} goes back to epoch {details['epoch']}", version=version)
        if details["kind"] == "append" and sum(file.records for file in commit.adds) != details["end"] - self.end:
            raise CorruptCommit(f"version {version} adds other rows than its offsets say", version=version)
        expected = {TXN_EPOCH: details["epoch"], TXN_END: details["end"], TXN_START: details["start"]}
        if dict(commit.txns) != expected:
            raise CorruptCommit(f"the txn actions of version {version} disagree with commitInfo", version=version)

    def _apply_foreign(self, commit: Commit) -> None:
        """A foreign commit that touches no file is stepped over; anything else is never merged (I-3)."""
        if commit.changes_table or commit.adds or commit.removes:
            what = "protocol or metaData" if commit.changes_table else "data files"
            raise ForeignCommit(
                f"version {commit.version} was written by {commit.engine} and changes {what}: "
                "only Sluice may write to this table",
                version=commit.version,
            )
        self.version = commit.version

    def _apply_files(self, commit: Commit) -> None:
        if not commit.removes:
            self.files.extend(commit.adds)
            return
        gone = {self.position(path) for path in commit.removes}
        if -1 in gone or len(gone) != len(commit.removes):
            raise CorruptCommit(f"version {commit.version} removes a file that is not live", version=commit.version)
        # Only what lies between the first and the last of them is looked at: a merge is a few neighbours among many.
        first, last = min(gone), max(gone) + 1
        kept = [file for index, file in enumerate(self.files[first:last], first) if index not in gone]
        low = self.files[first].base_offset
        high = self.files[last - 1].end_offset
        inside = all(low <= file.base_offset and file.end_offset <= high for file in commit.adds)
        middle = sorted([*kept, *commit.adds], key=lambda file: file.base_offset)
        files = [*self.files[:first], *middle, *self.files[last:]]
        self.files = files if inside else sorted(files, key=lambda file: file.base_offset)
        self.removed.update(dict.fromkeys(commit.removes, commit.timestamp_ms))

    def position(self, path: str) -> int:
        """Where a live file stands in `files`; -1 if it is not live. Names begin with the base offset (I-4)."""
        if not path[:20].isdigit():
            return next((index for index, file in enumerate(self.files) if file.path == path), -1)
        index = bisect_left(self.files, int(path[:20]), key=lambda file: file.base_offset)
        return index if index < len(self.files) and self.files[index].path == path else -1

    def record_producer(self, entry: list[int]) -> None:
        producer_id, epoch, sequence, count, base_offset, append_ms, partitions, crc, body_count = entry
        stamp = ProducerStamp(producer_id, epoch, sequence, partitions, crc, body_count)
        self.producers.record(stamp, count, base_offset, append_ms)

    def _apply_segments(self, details: Mapping[str, Any]) -> None:
        self.rolls.extend(details.get("rolls", ()))
        if "active" in details:
            self.active = ActiveSegment.from_json(details["active"])
        # A roll at or below the log start bounds nothing any more, except the one the first segment begins with.
        first = bisect_right(self.rolls, self.log_start) - 1
        if first > 0:
            del self.rolls[:first]

    def _apply_plan(self, commit: Commit, plan: Mapping[str, Any] | None) -> None:
        if plan is None:
            return
        self.plans[plan["id"]] = commit.version
        while len(self.plans) > RECENT_PLANS:
            del self.plans[next(iter(self.plans))]
        if plan["kind"] == "mirror":
            self.gaps_below = self.end
        if plan["kind"] == "compact":
            self.last_cleaning = commit.version
            self.first_dirty = plan["first_dirty"]
        self.first_dirty = max(self.first_dirty, self.log_start)

    def rows_of_other_wal(self, offset: int, wal: str) -> bool:
        """Does the log hold rows at or above `offset` that came under a claim of another WAL (R-2)?"""
        for index, claim in enumerate(self.claims):
            until = self.claims[index + 1].start if index + 1 < len(self.claims) else self.end
            if claim.wal != wal and until > max(claim.start, offset):
                return True
        return False

    # --- the state snapshot (R-5) --------------------------------------------------------------

    def expire_producers(self, now_ms: int, expiration_ms: int, keep: Collection[int]) -> None:
        windows = ProducerWindows.from_json(self.producers.to_json(), expiration_ms)
        windows.expire(now_ms, keep)
        self.producers = ProducerWindows.from_json(windows.to_json(), _NEVER_EXPIRES)

    def to_snapshot(self) -> bytes:
        """`_sluice/state-<version>.json`: everything but the files, which the Delta checkpoint holds."""
        body = {
            "format": 1,
            "version": self.version,
            "end": self.end,
            "start": self.log_start,
            "epoch": self.epoch,
            "claims": [[claim.epoch, claim.wal, claim.start] for claim in self._live_claims()],
            "producers": self.producers.to_json(),
            "rolls": self.rolls,
            "active": None if self.active is None else self.active.to_json(),
            "first_dirty": self.first_dirty,
            "last_cleaning": self.last_cleaning,
            "plans": self.plans,
            "sinks": self.sinks.to_json(),
            "append_ms": self.append_ms,
            "gaps_below": self.gaps_below,
            "files": len(self.files),
            "checkpoint_crc": self.checkpoint_crc(),
        }
        text = msgspec.json.encode(body)
        return b"%08x\n" % zlib.crc32(text) + text + b"\n"

    def checkpoint_content(self) -> CheckpointContent:
        """A copy of what the Delta checkpoint of this version says."""
        if self.identity is None:
            raise ValueError("a partition without a table has no checkpoint")
        return CheckpointContent(
            version=self.version,
            epoch=self.epoch,
            end=self.end,
            log_start=self.log_start,
            identity=self.identity,
            files=tuple(self.files),
            removed=dict(self.removed),
        )

    def checkpoint_crc(self) -> int:
        """Of what only the Delta checkpoint holds, which has no checksum of its own: a flipped bit must show."""
        crc = zlib.crc32(repr(self.identity).encode())
        for f in self.files:
            facts = (f.size, f.base_offset, f.end_offset, f.records, f.min_ms, f.max_ms, f.file_crc, f.footer_crc)
            crc = zlib.crc32(f"{f.path} {facts} {f.modified_ms} {sorted(f.tags.items())}".encode(), crc)
        return crc

    def _live_claims(self) -> list[EpochClaim]:
        """Claims that own no row above the log start say nothing any more, but for the newest."""
        live = []
        for index, claim in enumerate(self.claims):
            last = index + 1 == len(self.claims)
            if last or self.claims[index + 1].start > max(claim.start, self.log_start):
                live.append(claim)
        return live

    @classmethod
    def from_snapshot(cls, data: bytes) -> tuple[PartitionState, int, int]:
        """The state without its files, how many the checkpoint beside it must hold, and their `checkpoint_crc`."""
        crc, _, text = data.partition(b"\n")
        if crc != b"%08x" % zlib.crc32(text.removesuffix(b"\n")):
            raise CorruptCommit("the state snapshot fails its checksum")
        body = msgspec.json.decode(text)
        state = cls(
            version=body["version"],
            end=body["end"],
            log_start=body["start"],
            epoch=body["epoch"],
            claims=[EpochClaim(*claim) for claim in body["claims"]],
            producers=ProducerWindows.from_json(body["producers"], _NEVER_EXPIRES),
            rolls=body["rolls"],
            active=None if body["active"] is None else ActiveSegment.from_json(body["active"]),
            first_dirty=body["first_dirty"],
            last_cleaning=body["last_cleaning"],
            plans=body["plans"],
            sinks=SinkEntries.from_json(body["sinks"]),
            append_ms=body["append_ms"],
            gaps_below=body.get("gaps_below", 0),
        )
        return state, body["files"], body["checkpoint_crc"]
