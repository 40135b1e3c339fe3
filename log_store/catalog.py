"""The catalog of a running cluster: `CatalogState` and `TokenRegistry` over the topic `__cluster_metadata`.

A command is decided on the state, its records are appended and committed, and only then does the state change: what
is known is what a restart would replay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from sluice.log_store.catalog_state import (
    CatalogState,
    Change,
    NamedProducer,
    ProducerIds,
    ProducerMode,
    Record,
    TopicMeta,
)
from sluice.log_store.catalog_states import METADATA_REF, MetadataStates
from sluice.log_store.clock import Clock
from sluice.log_store.errors import RequestTimedOut
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.records import make_batch
from sluice.log_store.tokens import TokenRegistry
from sluice.log_store.topic import MIB, TopicConfig

__all__ = ["METADATA_CONFIG", "METADATA_REF", "Catalog"]

# Small segments: the active one is never compacted, and every start reads the whole topic.
METADATA_CONFIG = TopicConfig.parse({"cleanup.policy": "compact", "segment.bytes": 4 * MIB})
COMMIT_TIMEOUT_S = 30.0
LOOK_EVERY_S = 0.5

_T = TypeVar("_T")


class Catalog:
    def __init__(self, partition: PartitionLog, state: CatalogState, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock
        self._lock = threading.Lock()
        self._ids = ProducerIds()
        self._unknown: tuple[Future[AppendResult], tuple[Record, ...]] | None = None
        self._stale = False
        """A change was answered as unknown: the log must be read before anything else is decided."""
        self._replayed_to = 0
        self._states = MetadataStates(state)
        self.state = state
        self.tokens = self._states.tokens

    def take_over(self) -> None:
        """Claim the topic, then read it: what an older leader had on its way is there by then, or never will be.

        Read first, and it could still put a change that nothing here would know of: two live topics of one name.
        """
        self._partition.open()
        if self._partition.problem is None:
            self._partition.prepare()
        self.replay()

    def replay(self) -> None:
        """Read the metadata topic from where the last replay ended."""
        reads = PartitionReads(self._partition)
        start = max(self._replayed_to, reads.earliest().offset)
        for batch in reads.scan(start, readahead=0):
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
                self._states.apply(key, value)
            self._replayed_to = int(batch.column("offset")[-1].as_py()) + 1

    def change(self, decide: Callable[[CatalogState], Change[_T]]) -> _T:
        """Decide on the present state, commit the records, apply them. One command at a time."""
        with self._lock:
            return self._change_locked(decide)

    def change_tokens(self, decide: Callable[[TokenRegistry], Change[_T]]) -> _T:
        return self.change(lambda _: decide(self.tokens))

    def _change_locked(self, decide: Callable[[CatalogState], Change[_T]]) -> _T:
        self._settle_unknown()
        change = decide(self.state)
        if change.records:
            rows = [{"key": key, "value": value} for key, value in change.records]
            batch = make_batch(rows, default_ms=self._clock.wall_ms())
            self._unknown = (self._partition.append(batch, acks=Acks.ALL), change.records)
            self._settle_unknown()
        return change.result

    def _settle_unknown(self) -> None:
        """Wait for the last change. While its outcome is not known nothing may be decided on top of it."""
        if self._stale:
            self._read_again()
        if self._unknown is None:
            return
        future, records = self._unknown
        try:
            result = self._outcome(future)
        except FutureTimeout:
            why = f": {self._partition.stalled}" if self._partition.stalled else ""
            raise RequestTimedOut(
                f"the catalog could not commit in time; whether the change holds is not known{why}"
            ) from None
        except RequestTimedOut:
            # Answered, but not known: the record may be in the log. Only the log can tell.
            self._unknown, self._stale = None, True
            raise
        except BaseException:
            self._unknown = None
            raise
        self._unknown = None
        self._states.apply_all(records)
        self._replayed_to = result.base_offset + result.count

    def _read_again(self) -> None:
        if not self._partition.idle:
            raise RequestTimedOut("an earlier change of the catalog is still on its way")
        self.replay()
        self._stale = False

    def _outcome(self, future: Future[AppendResult]) -> AppendResult:
        """Waits in small steps: on a disk that is full, waiting for longer cannot help."""
        left = COMMIT_TIMEOUT_S
        while True:
            left -= LOOK_EVERY_S
            try:
                return future.result(timeout=LOOK_EVERY_S + min(0.0, left))
            except FutureTimeout:
                if left <= 0 or self._partition.hopeless:
                    raise

    def new_producer(self, mode: ProducerMode, name: str | None) -> tuple[int, int]:
        """(producer id, epoch). A name keeps its id and gets the next epoch, which fences its predecessor (R-9)."""
        with self._lock:
            if name is None:
                return self._fresh_id(mode), 0
            fresh = self._fresh_id(mode) if self.state.needs_id(name) else None
            named: NamedProducer = self._change_locked(lambda state: state.named_producer(name, mode, fresh))
            return named.producer_id, named.epoch

    def _fresh_id(self, mode: ProducerMode) -> int:
        while (producer_id := self._ids.take(mode)) is None:
            self._ids.refill(self._change_locked(lambda state: state.reserve_block(mode)))
        return producer_id


class ConfigLookup:
    """The topic's present configuration, parsed once per change."""

    def __init__(self, catalog: Catalog, meta: TopicMeta) -> None:
        self._catalog = catalog
        self._meta = meta
        self._config = meta.config()

    def __call__(self) -> TopicConfig:
        current = self._catalog.state.incarnation(self._meta.topic_id)
        if current is not None and current is not self._meta:
            self._meta, self._config = current, current.config()
        return self._config
