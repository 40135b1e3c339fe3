"""What is called data loss, and what follows from it.

A record is lost to a query when it was there and can no longer be read: its offset lies below the log start, its topic
was deleted or made again, or the log ends before the query's position. Gaps between offsets are no loss: key
compaction leaves them.
"""

from __future__ import annotations

import logging

from sluice.log_store.errors import OffsetOutOfRange
from sluice.log_store.values import OffsetRange

logger = logging.getLogger("sluice.spark")

_ADVICE = (
    "Some records may have been lost to this query: retention or delete_records removed them, or the topic was "
    "deleted, before they were read. Set the option failOnDataLoss to false to go on without them."
)


class DataLoss(OffsetOutOfRange):
    pass


class LossJudge:
    """Fails, or warns once for each thing that was lost. Picklable: executors judge too."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._said: set[str] = set()

    def report(self, what: str) -> None:
        if self._fail:
            raise DataLoss(f"{what}. {_ADVICE}")
        if what not in self._said:
            self._said.add(what)
            logger.warning("%s: the query goes on without it", what)

    def readable(self, name: object, wanted: OffsetRange, log_start: int, end: int) -> OffsetRange:
        """What of `wanted` is still in a log of these bounds. Never below nor above the range that was asked for."""
        if wanted.start < log_start:
            self.report(f"offsets {wanted.start}..{min(wanted.end, log_start) - 1} of {name} are below the log start")
        if wanted.end > end:
            self.report(f"{name} ends at {end}, before offset {wanted.end} that was there already")
        start = min(max(wanted.start, log_start), wanted.end)
        return OffsetRange(start, max(start, min(wanted.end, end)))
