"""A failed look at storage is repeated inside the source: Spark repeats no planner call, and locally no task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sluice.log_store.errors import TransientError

logger = logging.getLogger("sluice.spark")

LONGEST_PAUSE_S = 30.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Retry:
    """`fetchOffset.numRetries` and `fetchOffset.retryIntervalMs`; the pauses double."""

    times: int
    interval_ms: int
    wait: Callable[[float], object] = threading.Event().wait

    def pause_s(self, attempt: int) -> float:
        return min(LONGEST_PAUSE_S, self.interval_ms / 1000 * 2.0 ** min(attempt, 20))

    def run(self, what: str, attempt: Callable[[], _T]) -> _T:
        for number in range(self.times):
            try:
                return attempt()
            except TransientError as error:
                logger.warning("%s failed, trying again: %s", what, error)
            self.wait(self.pause_s(number))
        return attempt()
