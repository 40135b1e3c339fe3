"""The log of one cluster, led by this process: the front door of `log_store`.

Opening claims the cluster, recovers what the last leader left in its WAL, replays the catalog, and only then serves.
Partitions open lazily; an idle one holds no thread, no timer and no file.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

import pyarrow as pa

from sluice.conf.settings import Settings
from sluice.log_store.background import Background
from sluice.log_store.catalog import METADATA_CONFIG, METADATA_REF, Catalog, ConfigLookup
from sluice.log_store.catalog_state import CatalogLimits, CatalogState, Change, TopicMeta, parse_mode
from sluice.log_store.claims import SERVICE, claim_leadership
from sluice.log_store.clock import Clock, SystemClock, WallGuard
from sluice.log_store.cluster_file import cluster_id_of
from sluice.log_store.deletion import delete_records
from sluice.log_store.errors import InvalidTopic, SluiceError, StorageError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_core import NO_WAL
from sluice.log_store.partition_reads import PartitionReads
from sluice.log_store.pending import Acks, AppendResult
from sluice.log_store.pending_budget import PendingBudget
from sluice.log_store.plans import Plan
from sluice.log_store.recovery import Report
from sluice.log_store.retention_keeper import RetentionKeeper
from sluice.log_store.runtime import Runtime
from sluice.log_store.scheduler import Scheduler
from sluice.log_store.start_up import StartUp
from sluice.log_store.store import Store, open_store
from sluice.log_store.tail_cache import TailCache
from sluice.log_store.topic import ConfigChange
from sluice.log_store.topic_log import Split, TopicAppend, TopicLog
from sluice.log_store.values import PartitionRef, ProducerStamp
from sluice.log_store.wal import Wal
from sluice.log_store.wal_home import open_wals
from sluice.log_store.wal_values import PartitionKey, WalStalled

_log = logging.getLogger(__name__)
OBJECT_STORE_COMMITS = 16
DRAIN_TIMEOUT_S = 30.0


class LogStore:
    """Use `LogStore.open`; it is a context manager."""

    def __init__(self, runtime: Runtime, cluster_id: str, settings: Settings, other_wals: list[Wal]) -> None:
        self.runtime = runtime
        self.cluster_id = cluster_id
        self.settings = settings
        self.report = Report()
        self._lock = threading.Lock()
        self._partitions: dict[PartitionKey, PartitionLog] = {}
        self._start_up = StartUp(runtime, other_wals, self.report, self._partitions)
        self._topic_logs: dict[str, TopicLog] = {}
        self._closed = False
        self.on_topic_deleted: list[Callable[[TopicMeta], None]] = []
        """Called with each topic that was deleted; must be short."""
        self.background = Background(runtime, self.report.add, settings.wal.sync_interval_ms / 1000)
        runtime.on_dirty = self.background.partition_changed
        runtime.before_open = self._start_up.repair_before_open
        if runtime.wal is not None:
            runtime.wal.on_stall(self._on_wal_stalled)
        limits = CatalogLimits(settings.topics.num_partitions, settings.topics.cluster_max_partitions)
        metadata = PartitionLog(METADATA_REF, runtime, lambda: METADATA_CONFIG, patient=True)
        self._partitions[METADATA_REF.topic_id, 0] = metadata
        self.catalog = Catalog(metadata, CatalogState(limits), runtime.clock)
        self.retention = RetentionKeeper(
            runtime,
            topics=lambda: self.topics(internal=True),
            in_use=lambda ref: self._partitions.get((ref.topic_id, ref.partition)),
            lead=lambda ref: self.maintained(ref.topic, ref.partition, ref.topic_id),
            later=lambda delay_s, work: self.background.later(delay_s, work, "retention"),
        )

    # --- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        force: bool = False,
        purpose: str = SERVICE,
    ) -> LogStore:
        """Lead the cluster at `settings.storage.root`. NotLeader, with its address, while another process leads.

        `purpose="maintenance"` is for offline jobs: they append no rows of their own (I-8, R-2).
        """
        settings, clock = settings or Settings(), clock or SystemClock()
        storage = settings.storage
        store = store or open_store(storage.root, fsync=storage.fsync, storage_options=storage.options)
        cluster_id = cluster_id_of(store, clock)
        wals: list[Wal] = []

        def own_wal() -> str:
            if not wals:
                wals.extend(open_wals(store, settings, clock))
            return wals[0].uuid if wals else NO_WAL

        try:
            leadership = claim_leadership(
                store, clock, settings.cluster, wal_uuid=own_wal, force=force, purpose=purpose
            )
        except BaseException:
            for wal in wals:
                wal.close()
            raise
        runtime = Runtime(
            store=store,
            clock=clock,
            wall=WallGuard(clock),
            settings=settings.log,
            leadership=leadership,
            wal=wals[0] if wals else None,
            scheduler=Scheduler(clock),
            commits=ThreadPoolExecutor(_commit_threads(settings, store), thread_name_prefix="sluice-commit"),
            maintenance=ThreadPoolExecutor(2, thread_name_prefix="sluice-maintenance"),
            tails=TailCache(settings.log.tail_cache_bytes),
            pending=PendingBudget(settings.log.pending_max_bytes),
        )
        log = cls(runtime, cluster_id, settings, wals[1:])
        try:
            leadership.start(log._on_fenced)
            log._recover()
        except BaseException:
            log.close(drain=False)
            raise
        return log

    def _recover(self) -> None:
        self._start_up.recover(self._partition_of, self.catalog.take_over, self.background.sync_all)
        if self.runtime.leadership.claim.purpose == SERVICE:
            for meta in self.catalog.state.to_purge():
                self._purge_later(meta)
            self.retention.start()

    def _partition_of(self, ref: PartitionRef) -> PartitionLog | None:
        if ref == METADATA_REF:
            return self._partitions[METADATA_REF.topic_id, 0]
        meta = self.catalog.state.incarnation(ref.topic_id)
        return None if meta is None or not meta.live else self._led(meta, ref.partition)

    def _on_fenced(self) -> None:
        with self._lock:
            partitions = list(self._partitions.values())
        error = self.runtime.leadership.not_leader()
        for partition in partitions:
            partition.fenced(error)

    def _on_wal_stalled(self, error: OSError) -> None:
        with self._lock:
            partitions = list(self._partitions.values())
        for partition in partitions:
            partition.wal_stalled(error)

    def close(self, *, drain: bool = True) -> None:
        """Commit what was accepted, make it durable, release the claim."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.runtime.closing = True
            partitions = list(self._partitions.values())
        runtime = self.runtime
        clean = drain and not runtime.leadership.fenced and self.background.drain(partitions, DRAIN_TIMEOUT_S)
        with self._lock:
            partitions = list(self._partitions.values())
        for partition in partitions:
            partition.close()
        runtime.scheduler.close()
        self.background.close()
        runtime.commits.shutdown(cancel_futures=True)
        runtime.maintenance.shutdown(cancel_futures=True)
        try:
            if clean:
                self.background.sync_all()
        except StorageError as error:
            _log.warning("the last sync failed, the WAL keeps what it covers: %s", error)
            clean = False
        for wal in self._start_up.wals():
            wal.close()
        runtime.leadership.release(clean=clean)

    def __enter__(self) -> LogStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- health --------------------------------------------------------------------------------

    @property
    def fenced(self) -> bool:
        return self.runtime.leadership.fenced

    def troubles(self) -> list[str]:
        """What keeps partitions from being written, in words: empty when all is well."""
        with self._lock:
            partitions = list(self._partitions.values())
        troubles = ["this process was fenced: another one leads"] if self.fenced else []
        for partition in partitions:
            if partition.problem is not None:
                troubles.append(f"{partition.ref.tp}: {partition.problem.message}")
            elif partition.parked:
                troubles.append(f"{partition.ref.tp}: parked, it could not commit")
            elif (why := partition.stalled) is not None:
                troubles.append(f"{partition.ref.tp}: cannot commit: {why}")
        if self.runtime.wal is not None and (why := self.runtime.wal.trouble) is not None:
            troubles.append(f"the write-ahead log cannot be written: {why}")
        return [*troubles, *self.background.troubles()]

    # --- topics --------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        configs: Mapping[str, object] | None = None,
        replication_factor: int = -1,
        validate_only: bool = False,
    ) -> TopicMeta:
        now, topic_id = self.runtime.clock.wall_ms(), uuid.uuid4().hex
        arguments = {"partitions": partitions, "configs": configs, "replication_factor": replication_factor}
        if validate_only:
            return self.catalog.state.create(name, topic_id=topic_id, now_ms=now, **arguments).result  # type: ignore[arg-type]
        return self.catalog.change(lambda state: state.create(name, topic_id=topic_id, now_ms=now, **arguments))  # type: ignore[arg-type]

    def topic(self, name: str, *, create: bool = False) -> TopicMeta:
        """The topic; `create` makes a missing one with the defaults where `auto.create.topics.enable` allows it."""
        found = self.catalog.state.find(name)
        if found is None and create and self.settings.topics.auto_create_topics_enable:
            try:
                return self.create_topic(name)
            except SluiceError:
                # Somebody else may have been faster; if not, `get` says what is wrong.
                if self.catalog.state.find(name) is None:
                    raise
        return self.catalog.state.get(name)

    def internal_topic(self, name: str, *, partitions: int, configs: Mapping[str, object]) -> TopicMeta:
        """A topic of the service itself, created at its first use."""
        now, topic_id = self.runtime.clock.wall_ms(), uuid.uuid4().hex

        def decide(state: CatalogState) -> Change[TopicMeta]:
            found = state.find(name)
            if found is not None:
                return Change((), found)
            return state.create_internal(name, topic_id=topic_id, now_ms=now, partitions=partitions, configs=configs)

        return self.catalog.change(decide)

    def topics(self, *, internal: bool = False) -> list[TopicMeta]:
        return self.catalog.state.topics(internal=internal)

    def delete_topic(self, name: str) -> None:
        now = self.runtime.clock.wall_ms()
        meta = self.catalog.change(lambda state: state.delete(name, now))
        with self._lock:
            self._topic_logs.pop(meta.topic_id, None)
            gone = [self._partitions.pop((meta.topic_id, p), None) for p in range(meta.partitions)]
        closed = [partition for partition in gone if partition is not None]
        for partition in closed:
            partition.close()
            self.background.forget(partition)
            self.runtime.tails.drop(partition.ref.folder)
        self._purge_later(meta)
        for partition in closed:
            # A WAL whose disk refuses to write keeps the entries; the next start finds that their topic is gone.
            with suppress(WalStalled):
                if self.runtime.wal is not None:
                    self.runtime.wal.release(partition.ref, forget=True)
        for told in tuple(self.on_topic_deleted):
            told(meta)

    def _purge_later(self, meta: TopicMeta) -> None:
        """The files of a deleted topic go after `file.delete.delay.ms`, for readers that still use them (I-9)."""

        def purge() -> None:
            self.runtime.store.delete_folder(meta.folder)
            self.catalog.change(lambda state: state.purge(meta.topic_id))

        delay_ms = meta.config().file_delete_delay_ms
        self.background.later(delay_ms / 1000, purge, f"removing the files of deleted topic {meta.name}")

    def grow_topic(self, name: str, partitions: int) -> TopicMeta:
        meta = self.catalog.change(lambda state: state.grow(name, partitions))
        with self._lock:
            topic_log = self._topic_logs.get(meta.topic_id)
        if topic_log is not None:
            topic_log.forget()
        return meta

    def alter_topic(self, name: str, changes: Iterable[ConfigChange]) -> TopicMeta:
        """Effective at once: partitions look their configuration up with each batch."""
        wanted = list(changes)
        return self.catalog.change(lambda state: state.alter_configs(name, wanted))

    # --- partitions ----------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> PartitionLog:
        return self._led(self.catalog.state.get(topic), number)

    def maintained(self, topic: str, number: int, topic_id: str | None = None) -> PartitionLog:
        """The same for those who maintain it: the catalog's own topic, too, which clients never see.

        With an id only if the topic is still that incarnation.
        """
        if topic == METADATA_REF.topic and number == METADATA_REF.partition:
            return self._partitions[METADATA_REF.topic_id, number]
        return self._led(self.catalog.state.get(topic, topic_id), number)

    def _led(self, meta: TopicMeta, number: int) -> PartitionLog:
        key = (meta.topic_id, number)
        partition = self._partitions.get(key)
        if partition is None:
            ref = meta.partition(number)
            with self._lock:
                config = ConfigLookup(self.catalog, meta)
                partition = self._partitions.setdefault(key, PartitionLog(ref, self.runtime, config))
        return partition

    def opened_partitions(self) -> list[PartitionLog]:
        """Those in use since the start, by topic and number; a look at them opens no others."""
        with self._lock:
            found = [partition for partition in self._partitions.values() if partition.opened]
        return sorted(found, key=lambda partition: (partition.ref.topic, partition.ref.partition))

    def reads(self, topic: str, number: int) -> PartitionReads:
        return PartitionReads(self.partition(topic, number))

    def append(
        self,
        topic: str,
        number: int,
        batch: pa.RecordBatch,
        *,
        acks: Acks = Acks.ALL,
        stamp: ProducerStamp | None = None,
        size: int | None = None,
    ) -> Future[AppendResult]:
        """Append to one partition on behalf of a client."""
        meta = self._writable(topic, stamp)
        return self._led(meta, number).append(batch, acks=acks, stamp=stamp, size=size)

    def append_topic(
        self, topic: str, split: Split, *, acks: Acks = Acks.ALL, stamp: ProducerStamp | None = None
    ) -> TopicAppend:
        """Append a request to the partitions that `split` chooses, idempotent as one thing (R-9)."""
        meta = self._writable(topic, stamp)
        with self._lock:
            topic_log = self._topic_logs.get(meta.topic_id)
            if topic_log is None:
                name = meta.name
                topic_log = TopicLog(
                    lambda p: self.partition(name, p),
                    lambda: self.catalog.state.get(name).partitions,
                    self.runtime.clock,
                )
                self._topic_logs[meta.topic_id] = topic_log
        return topic_log.append(split, acks=acks, stamp=stamp)

    def _writable(self, topic: str, stamp: ProducerStamp | None) -> TopicMeta:
        meta = self.topic(topic, create=True)
        if meta.internal:
            raise InvalidTopic(f"{topic!r} is an internal topic: clients may not write to it", topic=topic)
        if stamp is not None:
            self.catalog.state.check_epoch(stamp)
        return meta

    def new_producer(self, mode: str, name: str | None = None) -> tuple[int, int]:
        return self.catalog.new_producer(parse_mode(mode), name)

    def delete_records(self, topic: str, number: int, before_offset: int) -> int:
        """Move the log start; returns it, durable and visible at once (R-11)."""
        return delete_records(self.partition(topic, number), self.catalog.state.get(topic).config(), before_offset)

    def apply_plan(self, topic: str, number: int, plan: Plan, *, topic_id: str | None = None) -> int:
        return self.maintained(topic, number, topic_id).apply_plan(plan)


def _commit_threads(settings: Settings, store: Store) -> int:
    automatic = OBJECT_STORE_COMMITS if store.local_path is None else max(2, os.cpu_count() or 2)
    return settings.log.commit_threads or automatic
