"""One partition as storage shows it, followed from look to look: no claim is taken, nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from sluice.log_store import reader, snapshot
from sluice.log_store.clock import Clock
from sluice.log_store.delta_log import DataFile, commit_path
from sluice.log_store.errors import CorruptData, IntegrityError, UnknownTopicId
from sluice.log_store.file_rows import FileVanished
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.store import Store, StoreNotFound
from sluice.log_store.values import OffsetRange, PartitionRef

RECENT_S = 60.0
"""Commits stay in the log for an hour at least (R-3): a state this young cannot have been overtaken by a clean-up."""
MAX_REPLANS = 10
COMMITS_AT_ONCE = 8
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The log at one version."""

    ref: PartitionRef
    log_start: int
    end: int
    live: Sequence[DataFile]
    count: int
    """How many of `live` belong to this version: appends make the list longer."""
    problem: IntegrityError | None = None
    """Why the log cannot be followed any further, if it cannot."""

    def files(self, wanted: OffsetRange) -> tuple[DataFile, ...]:
        return tuple(reader.files_between(self.live, self.count, wanted.start, wanted.end))

    def check_reaches(self, end: int) -> None:
        """Records behind a damaged commit are there, and can be read once it is repaired: that is no data loss."""
        if self.problem is not None and end > self.end:
            raise self.problem


class FollowedPartition:
    def __init__(self, store: Store, ref: PartitionRef, clock: Clock) -> None:
        self._store = store
        self.ref = ref
        self._clock = clock
        self._state: PartitionState | None = None
        self._looked_at = float("-inf")

    def look(self, *, afresh: bool = False) -> PartitionView:
        """The newest version. `afresh` forgets what is known: after a crash the same version can name other files."""
        begun = self._clock.boottime()
        state, problem = self._state, None
        if afresh or state is None or (begun - self._looked_at > RECENT_S and self._overtaken(state)):
            state, problem = self._load()
        else:
            problem = self._follow(state)
            if problem is not None:
                state, problem = self._load()
        self._check_identity(state)
        self._state, self._looked_at = state, begun
        return PartitionView(self.ref, state.log_start, state.end, state.files, len(state.files), problem)

    def _load(self) -> tuple[PartitionState, IntegrityError | None]:
        loaded = snapshot.load(self._store, self.ref.folder)
        return loaded.state, loaded.problem

    def _follow(self, state: PartitionState) -> IntegrityError | None:
        if not self._store.durable_puts:
            return snapshot.follow(self._store, self.ref.folder, state)
        ahead = commits_after(self._store, self.ref.folder, state.version)
        return snapshot.follow(self._store, self.ref.folder, state, ahead) if ahead else None

    def _overtaken(self, state: PartitionState) -> bool:
        return snapshot.reload_needed(self._store, self.ref.folder, state)

    def _check_identity(self, state: PartitionState) -> None:
        if state.identity is not None and state.identity.topic_id != self.ref.topic_id:
            raise UnknownTopicId(f"{self.ref.folder} belongs to another incarnation of {self.ref.topic}")

    def search(self, find: Callable[[PartitionView], _T]) -> _T:
        """Read something of the newest version; planned again when a file vanishes on the way (I-9)."""
        view = self.look()
        for _ in range(MAX_REPLANS):
            try:
                return find(view)
            except FileVanished as vanished:
                view = self.look(afresh=True)
                raise_if_live(vanished.file, view)
        raise CorruptData(f"{self.ref.folder}: files vanish faster than reads can be planned")


def commits_after(store: Store, folder: str, version: int) -> dict[int, bytes]:
    """The commits that follow a version, fetched side by side in growing steps: each is a round trip.

    No listing: an idle partition costs one request that finds nothing, which is the cheapest there is.
    """
    found: dict[int, bytes] = {}
    if (first := _commit(store, folder, version + 1)) is None:
        return found
    found[version + 1] = first
    step = COMMITS_AT_ONCE
    with ThreadPoolExecutor(COMMITS_AT_ONCE, thread_name_prefix="sluice-follow") as pool:
        while True:
            numbers = range(version + 1 + len(found), version + 1 + len(found) + step)
            bodies = pool.map(lambda number: _commit(store, folder, number), numbers)
            there = dict(takewhile(lambda pair: pair[1] is not None, zip(numbers, bodies, strict=True)))
            found.update({number: body for number, body in there.items() if body is not None})
            if len(there) < step:
                return found
            step = min(step * 4, 256)


def _commit(store: Store, folder: str, version: int) -> bytes | None:
    try:
        return store.get(commit_path(folder, version))
    except StoreNotFound:
        return None


def raise_if_live(lost: DataFile, view: PartitionView) -> None:
    """A file that is missing although the newest version names it is damage, not a race."""
    if any(file.path == lost.path for file in view.live[: view.count]):
        raise CorruptData(
            f"{view.ref.folder}/{lost.path} is part of the log and missing: "
            f"offsets {lost.base_offset}..{lost.end_offset - 1} cannot be read",
            file=lost.path,
        )
