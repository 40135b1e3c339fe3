"""Which files to rewrite into larger, better compressed ones: a pure choice over closed segments (R-10).

The service merges small files as they come, cheaply. What is left for this job are segments that nothing is appended
to any more: as few files as `merge.target.bytes` allows, each written once more at a level that would be too slow on
the way in. A file that was written so carries a tag, so that a second run finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.log_store.delta_log import DataFile
from sluice.log_store.log_shape import LogShape
from sluice.log_store.topic import codec

TAG = "sluice.deep"
MOST_FILES = 2_000
"""Files of one group, so that a plan stays small."""
LEVEL = 6
"""Of zstd: what is written once and kept for long may take longer to write, and reads as fast. Row groups stay small:
larger ones compress and scan no better."""
_LEVELS = {"zstd": LEVEL, "gzip": 9}


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Neighbours inside one segment that become one file."""

    files: tuple[DataFile, ...]
    reason: str

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


def deep_codec(compression_type: str, level: int | None = None) -> tuple[str, int | None]:
    """The topic's codec at the level of this job."""
    name, usual = codec(compression_type)
    return name, (level if name == "zstd" and level is not None else _LEVELS.get(name, usual))


def tag_of(chosen: tuple[str, int | None]) -> str:
    name, level = chosen
    return name if level is None else f"{name}-{level}"


def choose_deep_merges(
    log: LogShape, target_bytes: int, tag: str, *, include_active: bool = False, recompress: bool = True
) -> list[MergeGroup]:
    """Groups in offset order. `recompress`: also single files that were not written at this level yet."""
    segments = log.segments() if include_active else log.segments()[:-1]
    return [
        group for segment in segments for group in _groups(segment.files, log.log_start, target_bytes, tag, recompress)
    ]


def _groups(
    files: Sequence[DataFile], log_start: int, target_bytes: int, tag: str, recompress: bool
) -> Iterator[MergeGroup]:
    for run in _packed(files, log_start, target_bytes, tag):
        fresh = sum(file.tags.get(TAG) != tag for file in run)
        if len(run) > 1:
            yield MergeGroup(tuple(run), f"{len(run)} files of a closed segment fit into one")
        elif fresh and recompress:
            yield MergeGroup(tuple(run), f"not written at {tag} yet")


def _packed(files: Sequence[DataFile], log_start: int, target_bytes: int, tag: str) -> Iterator[list[DataFile]]:
    """Neighbours as long as they fit. The file at the log start is left to the trim, which rewrites it anyway (R-11);
    one that is done and half the target or more stays as it is."""
    run: list[DataFile] = []
    size = 0
    for file in files:
        done = file.tags.get(TAG) == tag and file.size * 2 >= target_bytes
        trimmed = file.base_offset < log_start
        if run and (done or trimmed or size + file.size > target_bytes or len(run) == MOST_FILES):
            yield run
            run, size = [], 0
        if not done and not trimmed:
            run.append(file)
            size += file.size
    if run:
        yield run
