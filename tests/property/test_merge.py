"""Merging as a whole: whatever the sizes, it ends, keeps its promises and does not rewrite for ever."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.delta_log import DataFile
from sluice.log_store.merge import choose_merge
from sluice.log_store.segments import segment_bounds

TARGET = 1 << 20
SIZES = st.lists(st.integers(1, TARGET * 2), min_size=1, max_size=120)


def _files(sizes: list[int]) -> list[DataFile]:
    return [DataFile(f"{i}", size, i, i + 1, 1, min_ms=0, max_ms=0, modified_ms=0) for i, size in enumerate(sizes)]


def _merged(files: list[DataFile], chosen: tuple[DataFile, ...]) -> list[DataFile]:
    at = files.index(chosen[0])
    assert files[at : at + len(chosen)] == list(chosen)  # neighbours
    new = replace(
        chosen[0],
        path="+".join(f.path for f in chosen),
        size=sum(f.size for f in chosen),
        end_offset=chosen[-1].end_offset,
        records=sum(f.records for f in chosen),
    )
    return [*files[:at], new, *files[at + len(chosen) :]]


@given(sizes=SIZES, rolls=st.lists(st.integers(1, 119), max_size=5), quiet=st.booleans())
def test_merging_ends_and_never_crosses_a_roll(sizes: list[int], rolls: list[int], quiet: bool) -> None:
    files = _files(sizes)
    segments = segment_bounds(sorted(set(rolls)), 0, len(sizes))
    rewritten = 0
    while (choice := choose_merge(files, segments, TARGET, quiet=quiet)) is not None:
        assert len(choice.files) >= 2
        size = sum(f.size for f in choice.files)
        assert size <= TARGET
        low, high = choice.files[0].base_offset, choice.files[-1].end_offset
        assert any(s.start <= low and high <= s.end for s in segments)
        rewritten += size
        files = _merged(files, choice.files)
    assert sum(f.records for f in files) == len(sizes)
    # Each byte is written at most once per tier and once at the end.
    assert rewritten <= 5 * sum(sizes)


@given(sizes=SIZES)
def test_a_quiet_partition_ends_with_no_two_neighbours_that_fit_together(sizes: list[int]) -> None:
    files = _files(sizes)
    segments = segment_bounds([], 0, len(sizes))
    while (choice := choose_merge(files, segments, TARGET, quiet=True)) is not None:
        files = _merged(files, choice.files)
    small = [f.size * 2 < TARGET for f in files]
    for left, right in zip(range(len(files)), range(1, len(files)), strict=False):
        if small[left] and small[right]:
            assert files[left].size + files[right].size > TARGET
