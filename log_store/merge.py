"""Which small files to merge next: a pure choice over the live files of one partition (R-10, R-11).

Size-tiered: many small neighbours become one larger file, several of those become a larger one, up to the target. A
file is rewritten about once per tier, so the cost per record stays constant however long the partition lives. Merges
never cross a roll.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.log_store.delta_log import DataFile
from sluice.log_store.values import OffsetRange

TIERS = ((64 * 1024, 50), (1024 * 1024, 16), (16 * 1024 * 1024, 8), (2**62, 4))
"""(size below which a file belongs to the tier, how many neighbours of that tier make a merge worth while)"""
MOST_FILES = 500
"""Files of one merge, so that a plan stays small."""


@dataclass(frozen=True, slots=True)
class MergeChoice:
    files: tuple[DataFile, ...]
    reason: str


def choose_merge(
    files: Sequence[DataFile], segments: Sequence[OffsetRange], target_bytes: int, *, quiet: bool
) -> MergeChoice | None:
    """The next merge that pays, or None. `quiet`: nothing is being appended, so the tail is merged as well."""
    for index, segment in enumerate(segments):
        active = index == len(segments) - 1
        runs = list(_runs(files, segment, target_bytes))
        if not active or quiet:
            found = _closing(runs, target_bytes, "segment is closed" if not active else "partition is quiet")
        else:
            found = _tiered(runs, target_bytes)
        if found is not None:
            return found
    return None


def _runs(files: Sequence[DataFile], segment: OffsetRange, target_bytes: int) -> Iterator[list[DataFile]]:
    """Neighbours inside one segment, without the files that are large enough to stay as they are."""
    run: list[DataFile] = []
    for file in files:
        if file.base_offset >= segment.end:
            break
        if file.end_offset <= segment.start:
            continue
        if file.size * 2 >= target_bytes:
            if run:
                yield run
            run = []
        else:
            run.append(file)
    if run:
        yield run


def _closing(runs: list[list[DataFile]], target_bytes: int, why: str) -> MergeChoice | None:
    """Nothing more will come: as few files as the target allows."""
    for run in runs:
        start = 0
        while start < len(run) - 1:
            taken = _fill(run[start:], target_bytes)
            if len(taken) >= 2:
                return MergeChoice(tuple(taken), why)
            start += 1
    return None


def _tiered(runs: list[list[DataFile]], target_bytes: int) -> MergeChoice | None:
    floor = 0
    for limit, fan_in in TIERS:
        for run in runs:
            for group in _at_most(run, limit):
                # Smaller files in between come along, but only files of the tier make it worth rewriting them.
                if sum(file.size >= floor for file in group) >= fan_in:
                    # Behind with its work it takes the newest, which are still in memory. Oldest first, a merger that
                    # once fell behind would read everything from disk and fall behind for good.
                    taken = _fill(group[-MOST_FILES:], target_bytes)
                    if len(taken) >= 2:
                        return MergeChoice(tuple(taken), f"{len(taken)} neighbours below {limit} bytes")
        floor = limit
    return None


def _at_most(run: list[DataFile], limit: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    for file in run:
        if file.size < limit:
            group.append(file)
        elif group:
            yield group
            group = []
    if group:
        yield group


def _fill(files: Sequence[DataFile], target_bytes: int) -> list[DataFile]:
    taken: list[DataFile] = []
    size = 0
    for file in files[:MOST_FILES]:
        if taken and size + file.size > target_bytes:
            break
        taken.append(file)
        size += file.size
    return taken


def choose_trim(files: Sequence[DataFile], log_start: int) -> DataFile | None:
    """The file that still holds rows below the log start, if there is one (R-11)."""
    for file in files:
        if file.base_offset < log_start < file.end_offset:
            return file
        if file.base_offset >= log_start:
            return None
    return None
