"""When tombstones may go: their delete horizons, kept in a tag of the file that holds them (R-5). Pure.

The first cleaning that meets a tombstone keeps it and notes `clean time + delete.retention.ms`; a later one at or after
that moment drops it. A file may hold tombstones that were met by different cleanings, so the tag is a list of
`[first offset, end offset, horizon in ms]`: a tombstone inside a span has its horizon, one outside was never met.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from sluice.log_store.delta_log import DataFile

TAG = "sluice.tombstones"
MOST_SPANS = 256
"""Spans of one file, so that its `add` action stays small. Beyond, neighbours share the later of their horizons."""
NOT_MET = -1

Int64s: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class Span(NamedTuple):
    start: int
    end: int
    """Exclusive."""
    horizon_ms: int


_decode = msgspec.json.Decoder(list[tuple[int, int, int]]).decode


def spans_of(file: DataFile) -> tuple[Span, ...]:
    """A tag that cannot be read counts as none: its tombstones are met again, and stay longer, never shorter."""
    text = file.tags.get(TAG)
    if text is None:
        return ()
    try:
        found = [Span(*entry) for entry in _decode(text)]
    except msgspec.MsgspecError:
        return ()
    ordered = all(before.end <= after.start for before, after in pairwise(found))
    return tuple(found) if ordered and all(span.start < span.end for span in found) else ()


def tag_of(spans: Sequence[Span]) -> dict[str, str]:
    return {TAG: msgspec.json.encode(_at_most(spans, MOST_SPANS)).decode()} if spans else {}


def carried(files: Iterable[DataFile], start: int = 0) -> dict[str, str]:
    """The tag of a file that holds the rows of these files from `start` on: merges and trims keep what was noted."""
    spans = [span for file in files for span in spans_of(file) if span.end > start]
    return tag_of([span._replace(start=max(span.start, start)) for span in spans])


def horizons_at(spans: Sequence[Span], offsets: Int64s) -> Int64s:
    """The horizon of the tombstone at each offset, NOT_MET where there is none yet."""
    horizons: Int64s = np.full(len(offsets), NOT_MET, dtype=np.int64)
    if not spans or not len(offsets):
        return horizons
    starts = np.array([span.start for span in spans], dtype=np.int64)
    ends = np.array([span.end for span in spans], dtype=np.int64)
    values = np.array([span.horizon_ms for span in spans], dtype=np.int64)
    at = np.searchsorted(starts, offsets, side="right") - 1
    inside = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
    horizons[inside] = values[at[inside]]
    return horizons


class SpanBuilder:
    """Spans over the tombstones that stay, given in offset order."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def add(self, offsets: Int64s, horizons: Int64s) -> None:
        if not len(offsets):
            return
        cuts = np.flatnonzero(np.diff(horizons)) + 1
        firsts, lasts = [0, *cuts.tolist()], [*(cuts - 1).tolist(), len(offsets) - 1]
        for first, last in zip(firsts, lasts, strict=True):
            self._append(Span(int(offsets[first]), int(offsets[last]) + 1, int(horizons[first])))

    def _append(self, span: Span) -> None:
        if self._spans and self._spans[-1].horizon_ms == span.horizon_ms:
            span = span._replace(start=self._spans.pop().start)
        self._spans.append(span)

    @property
    def tags(self) -> Mapping[str, str]:
        return tag_of(self._spans)


def _at_most(spans: Sequence[Span], most: int) -> list[Span]:
    """A tombstone may stay longer than its horizon, so the later of two holds for both."""
    kept = list(spans)
    while len(kept) > most:
        pairs = [kept[at : at + 2] for at in range(0, len(kept), 2)]
        kept = [Span(pair[0].start, pair[-1].end, max(span.horizon_ms for span in pair)) for pair in pairs]
    return kept
