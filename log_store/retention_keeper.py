"""Retention inside the service: the decision of `retention`, made every `retention.check.interval.ms` (R-13 applies).

So a service on its own stays small without any job. A partition that nobody has used since the start is not opened
for a look: its log cannot have changed, so one look at storage tells when it comes due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sluice.log_store import snapshot
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.errors import PlanRefused, SluiceError
from sluice.log_store.log_shape import LogShape
from sluice.log_store.partition import PartitionLog
from sluice.log_store.retention import Retention, decide_retention, next_due_ms
from sluice.log_store.runtime import Runtime
from sluice.log_store.topic import TopicConfig
from sluice.log_store.values import PartitionRef

_log = logging.getLogger(__name__)
LOOKS_PER_CHECK = 500
"""Partitions that are not open and are looked at in storage by one check; the others wait for the next."""


@dataclass(slots=True)
class RetentionCounters:
    """For metrics."""

    segments: int = 0
    records: int = 0
    bytes: int = 0
    failures: int = 0


class RetentionKeeper:
    def __init__(
        self,
        runtime: Runtime,
        *,
        topics: Callable[[], Sequence[TopicMeta]],
        in_use: Callable[[PartitionRef], PartitionLog | None],
        lead: Callable[[PartitionRef], PartitionLog],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`in_use`: the partition if there is one in memory. `later`: run what may block, after so many seconds."""
        self._runtime = runtime
        self._topics = topics
        self._in_use = in_use
        self._lead = lead
        self._later = later
        self._due: dict[PartitionRef, tuple[TopicConfig, int | None]] = {}
        """When a partition that is not open comes due, under the configuration it had at the look."""
        self.counters = RetentionCounters()

    def start(self) -> None:
        interval_ms = self._runtime.settings.retention_check_interval_ms
        if interval_ms:
            self._later(interval_ms / 1000, self._check_again)

    def _check_again(self) -> None:
        try:
            self.check()
        finally:
            self.start()

    def check(self) -> None:
        """Look at every partition once. What fails is tried again by the next check."""
        looks = LOOKS_PER_CHECK
        due: dict[PartitionRef, tuple[TopicConfig, int | None]] = {}
        for meta in self._topics():
            config = meta.config()
            for ref in map(meta.partition, range(meta.partitions)):
                if self._runtime.closing or self._runtime.leadership.fenced:
                    return
                led = self._in_use(ref)
                if led is not None and led.opened:
                    self._check_one(ref, config, led.shape() if led.problem is None else None)
                elif self._worth_a_look(ref, config):
                    looks -= 1
                    if looks >= 0 and (log := self._stored(ref)) is not None:
                        self._check_one(ref, config, log)
                        due[ref] = (config, next_due_ms(log, config))
                else:
                    due[ref] = self._due[ref]
        self._due = due

    def _now_ms(self) -> int | None:
        return self._runtime.clock.wall_ms() if self._runtime.wall.trusted() else None

    def _worth_a_look(self, ref: PartitionRef, config: TopicConfig) -> bool:
        known = self._due.get(ref)
        if known is None or known[0] != config:
            return True
        now_ms = self._now_ms()
        return known[1] is not None and now_ms is not None and now_ms >= known[1]

    def _stored(self, ref: PartitionRef) -> LogShape | None:
        """None where storage fails, or holds what only opening it can repair or report."""
        try:
            loaded = snapshot.load(self._runtime.store, ref.folder)
        except SluiceError as error:
            self._failed(ref, error)
            return None
        return LogShape.of(loaded.state) if loaded.problem is None else None

    def _check_one(self, ref: PartitionRef, config: TopicConfig, log: LogShape | None) -> None:
        decided = None if log is None else decide_retention(log, config, self._now_ms())
        if log is None or decided is None:
            return
        try:
            self._lead(ref).apply_plan(decided.to_plan(log.version))
        except PlanRefused as refused:
            _log.info("retention of %s came too late: %s", ref.tp, refused.message)
        except SluiceError as error:
            self._failed(ref, error)
        else:
            self._count(ref, decided)

    def _failed(self, ref: PartitionRef, error: SluiceError) -> None:
        self.counters.failures += 1
        _log.warning("retention of %s failed, the next check tries again: %s", ref.tp, error)

    def _count(self, ref: PartitionRef, decided: Retention) -> None:
        self.counters.segments += len(decided.expired)
        self.counters.records += sum(file.records for file in decided.files)
        self.counters.bytes += sum(file.size for file in decided.files)
        _log.info("%s now starts at %d: %s", ref.tp, decided.log_start, decided.reason)
