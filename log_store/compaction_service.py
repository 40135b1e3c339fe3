"""Key compaction inside the service: small partitions, and the service's own topics, need no Spark to stay small.

A look is cheap and made by housekeeping, on its one thread of low priority and before it merges: the two never race,
and merges of a busy partition do not starve its compaction. What is too large is left to the job of the same name; of
the service's own topics as much is cleaned at once as fits into memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice.log_store.compaction import Cleanable, LogView, bounded, cleanable, is_dirty
from sluice.log_store.compaction_run import Compaction, LocalPasses, compact
from sluice.log_store.errors import SluiceError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.plans import Plan
from sluice.log_store.runtime import Runtime
from sluice.log_store.segments import segment_bounds
from sluice.log_store.store import Store
from sluice.log_store.topic import is_internal

_log = logging.getLogger(__name__)
BACKOFF_S = 15.0
"""After a cleaning that failed; Kafka's log.cleaner.backoff.ms."""
KEY_BYTES = 32
"""Memory for one key of the range: 24 bytes, and the sorting of them."""
FAR_S = 24 * 3600.0


class _Closing(Exception):
    """The service stops: what is not committed is left to the next start."""


class LedPartition:
    """A partition that this process leads, as a cleaning needs it."""

    def __init__(self, partition: PartitionLog) -> None:
        self._partition = partition

    @property
    def store(self) -> Store:
        return self._partition.runtime.store

    @property
    def folder(self) -> str:
        return self._partition.ref.folder

    @property
    def epoch(self) -> int:
        return self._partition.runtime.leadership.epoch

    def view(self) -> LogView:
        state = self._partition.state
        # The version first: what is committed meanwhile makes the plan too old, never too new.
        version = state.version
        files, count, log_start, end = self._partition.view()
        return LogView(
            version=version,
            files=files[:count],
            segments=segment_bounds(tuple(state.rolls), log_start, end),
            first_dirty=state.first_dirty,
            last_cleaning=state.last_cleaning,
        )

    def apply_plan(self, plan: Plan) -> int:
        return self._partition.apply_plan(plan)


@dataclass(slots=True)
class CompactionCounters:
    """For metrics and doctor."""

    compactions: int = 0
    records_dropped: int = 0
    failures: int = 0
    too_large: int = 0
    """Looks that left a partition to the job."""


@dataclass(slots=True)
class _Waiting:
    not_before: float = field(default=float("-inf"))
    timer_at: float | None = None


class InProcessCompaction:
    def __init__(self, runtime: Runtime, look_again: Callable[[PartitionLog], None]) -> None:
        """`look_again` asks housekeeping for another look at a partition to which nothing else may happen."""
        self._runtime = runtime
        self._look_again = look_again
        self._lock = threading.Lock()
        self._waiting: dict[PartitionLog, _Waiting] = {}
        self.counters = CompactionCounters()

    def look(self, partition: PartitionLog) -> bool:
        """Clean the partition if that is due; True if it was, and another look may find more."""
        runtime = self._runtime
        most = runtime.settings.compaction_in_process_max_bytes
        if not partition.config.compact or not most or not runtime.wall.trusted():
            return False
        with self._lock:
            waiting = self._waiting.setdefault(partition, _Waiting())
        if runtime.clock.boottime() < waiting.not_before:
            return False
        try:
            done = self._clean(partition, most)
        except _Closing:
            return False
        except SluiceError as error:
            self.counters.failures += 1
            waiting.not_before = runtime.clock.boottime() + BACKOFF_S
            self._after(partition, BACKOFF_S)
            _log.warning("compaction of %s failed, it is tried again: %s", partition.ref.tp, error)
            return False
        if done is None:
            return False
        self.counters.compactions += 1
        self.counters.records_dropped += done.records_before - done.records_after
        return True

    def _clean(self, partition: PartitionLog, most: int) -> Compaction | None:
        led, now_ms = LedPartition(partition), self._runtime.clock.wall_ms()
        view, config = led.view(), partition.config
        chosen = cleanable(view, config, now_ms)
        if not chosen.due:
            if chosen.look_again_ms is not None:
                self._after(partition, (chosen.look_again_ms - now_ms) / 1000)
            return None
        if is_internal(partition.ref.topic):
            chosen = bounded(view, chosen, most, most // KEY_BYTES)
        elif not fits(view, chosen, most):
            self.counters.too_large += 1
            return None
        passes = LocalPasses(led.store, self._stop_if_closing)
        return compact(led, passes, config, chosen, view, now_ms, between=self._stop_if_closing)

    def _stop_if_closing(self) -> None:
        if self._runtime.closing:
            raise _Closing

    def forget(self, partition: PartitionLog) -> None:
        with self._lock:
            self._waiting.pop(partition, None)

    def _after(self, partition: PartitionLog, delay_s: float) -> None:
        """One timer for each partition, for the nearest of its reasons."""
        delay_s = min(delay_s, FAR_S)
        at = self._runtime.clock.boottime() + delay_s
        with self._lock:
            waiting = self._waiting.get(partition)
            if waiting is None or (waiting.timer_at is not None and waiting.timer_at <= at):
                return
            waiting.timer_at = at
        self._runtime.scheduler.after(delay_s, lambda: self._due(partition, at))

    def _due(self, partition: PartitionLog, at: float) -> None:
        with self._lock:
            waiting = self._waiting.get(partition)
            if waiting is None or waiting.timer_at != at:
                return
            waiting.timer_at = None
        self._look_again(partition)


def fits(view: LogView, chosen: Cleanable, most: int) -> bool:
    """May a process of ours clean it by itself? Both what it reads and what it keeps of it are bounded."""
    records = sum(f.records for f in view.files if is_dirty(f, chosen.first_dirty, chosen.end))
    return chosen.clean_bytes + chosen.dirty_bytes <= most and records * KEY_BYTES <= most
