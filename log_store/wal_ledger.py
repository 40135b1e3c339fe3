"""What the files of the log hold and what is still needed of it. Pure bookkeeping: no files, no threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sluice.log_store.values import PartitionRef
from sluice.log_store.wal_values import PartitionKey, Release, SyncPoint, key_of

Runs = list[tuple[int, int]]
"""Offset ranges without gaps, in the order in which they were written."""


@dataclass(slots=True)
class LiveFile:
    seq: int
    name: str
    size: int
    """Bytes that count against the limit of the WAL."""
    recycle: bool = True
    runs: dict[PartitionKey, Runs] = field(default_factory=dict)
    borrowed: Mapping[int, PartitionRef] = field(default_factory=dict)
    """Partitions by number, whose definition in this file is damaged."""

    def add(self, key: PartitionKey, base: int, end: int) -> None:
        runs = self.runs.setdefault(key, [])
        if runs and runs[-1][1] == base:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((base, end))

    def remove(self, key: PartitionKey, start: int, end: int) -> None:
        left: Runs = []
        for run_start, run_end in self.runs.pop(key, ()):
            left += [(run_start, min(run_end, start))] if run_start < start else []
            left += [(max(run_start, end), run_end)] if run_end > end else []
        if left:
            self.runs[key] = left


class Ledger:
    """Files in the order of their numbers; the last one may be the one being written."""

    def __init__(self) -> None:
        self.files: dict[int, LiveFile] = {}
        self.points: dict[PartitionKey, tuple[PartitionRef, SyncPoint]] = {}
        self.releases: dict[PartitionKey, list[Release]] = {}

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    def synced(self, points: Mapping[PartitionRef, SyncPoint]) -> None:
        self.points.update({key_of(ref): (ref, point) for ref, point in points.items()})

    def released(self, release: Release) -> None:
        """Applies to all batches added so far."""
        key = key_of(release.ref)
        for file in self.files.values():
            file.remove(key, release.start, release.end)
        if release.forget:
            self.points.pop(key, None)
        self.remember(release)

    def remember(self, release: Release) -> None:
        """Keep the release itself, for the files to come."""
        known = self.releases.setdefault(key_of(release.ref), [])
        # One that covers the same or more and stands later makes an older one superfluous, but for what that one made
        # be forgotten: an older file may still name the sync point. A point that came later is stated after it.
        superseded = [r for r in known if release.start <= r.start and r.end <= release.end]
        known[:] = [r for r in known if r not in superseded]
        known.append(replace(release, forget=release.forget or any(r.forget for r in superseded)))

    def needed_releases(self, leaving: Iterable[int]) -> list[Release]:
        """Those that hide an entry of a file that is live or not yet gone for good: to be stated in the next file."""
        oldest = min([*self.files, *leaving], default=0)
        self.releases = {key: kept for key, known in self.releases.items() if (kept := _since(oldest, known))}
        return [release for known in self.releases.values() for release in known]

    def borrowed(self) -> dict[int, PartitionRef]:
        """Definitions that live files rely on and do not have: to be stated in the next file, for the one that has
        them may be cut long before the file that needs them."""
        return {number: ref for file in self.files.values() for number, ref in file.borrowed.items()}

    def covered(self, file: LiveFile) -> bool:
        """Everything in the file is on disk elsewhere. Covered partitions are dropped on the way: each is met once."""
        runs = file.runs
        while runs:
            key = next(iter(runs))
            point = self.points.get(key)
            if point is None or any(end > point[1].end_offset for _start, end in runs[key]):
                return False
            del runs[key]
        return True


def _since(oldest: int, releases: list[Release]) -> list[Release]:
    return [release for release in releases if release.seq >= oldest]
