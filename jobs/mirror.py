"""Mirror: copies topics of another cluster, with offsets, timestamps, gaps and log starts, exactly once.

    sluice jobs run mirror --source ROOT [--topic PATTERN] [--continuous]

A Structured Streaming query reads the source with `format("sluice")`; executors write the rows as data files of the
copy; the copy's leader commits them by plans. The end of each copy is the only checkpoint: a run that was killed at
any point is continued by the next from there, and a batch that comes twice adds nothing twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.conf.settings import Settings, load_settings
from sluice.jobs.cluster import OfflineCluster, OnlineCluster, StoredCluster, open_cluster
from sluice.jobs.framework import BaseJob, JobContext
from sluice.jobs.mirror_plans import CONFIG, Pair, SourceLog, check_copy, mirror_plan, source_name, starting_offset
from sluice.jobs.mirror_writing import RESULT, BatchWriter, CopyTarget, read_result
from sluice.jobs.work import Intent, Line, Step
from sluice.log_store.catalog_state import TopicMeta
from sluice.log_store.claims import SERVICE
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import InvalidRequest, SluiceError, StorageError
from sluice.log_store.partition_state import PartitionState
from sluice.log_store.topic import codec
from sluice.streaming.http_paths import topic_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
POLL_S = 1
LOOK_S = 10.0
"""How often a run without end looks for what its query cannot see."""
INTERVAL = "2 seconds"


class Mirror(BaseJob):
    name = "mirror"
    summary = "Copy topics of another cluster with their offsets; they take no other records until they are promoted."
    purpose = SERVICE
    """Offline it creates topics, which are records of the catalog."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--source", required=True, metavar="ROOT", help="storage root of the cluster to copy from")
        parser.add_argument(
            "--source-config", type=Path, help="settings file whose storage options are for the source; default: same"
        )
        parser.add_argument("--continuous", action="store_true", help="go on until stopped, instead of up to now")
        parser.add_argument("--max-records", type=int, help="most records of one micro-batch")

    def plan(self, context: JobContext) -> Intent:
        source = _source(context)
        steps = []
        copies = {meta.name: meta for meta in context.cluster.topics()}
        for meta in _chosen(context, source):
            copy = copies.get(meta.name)
            if copy is not None:
                check_copy(copy, meta)
            steps += [Step((self._line(context, source, meta, copy, number),)) for number in range(meta.partitions)]
        return Intent(steps)

    @staticmethod
    def _line(context: JobContext, source: StoredCluster, meta: TopicMeta, copy: TopicMeta | None, number: int) -> Line:
        theirs = SourceLog.of(source.load(meta.partition(number)))
        there = copy is not None and number < copy.partitions
        ours = context.cluster.load(copy.partition(number)) if copy is not None and there else PartitionState()
        start = starting_offset(ours, theirs)
        return Line(
            topic=meta.name,
            partition=number,
            subject=f"{start}..{theirs.end}",
            action="mirror" if there else "create and mirror",
            reason=f"the copy ends at {ours.end}, the source at {theirs.end}",
            records=theirs.end - start,
        )

    def act(self, context: JobContext, _intent: Intent) -> None:
        source = _source(context)
        run = MirrorRun(context, source)
        most = context.options.max_records
        run.prepare()
        while run.stream(context.spark(), continuous=context.options.continuous, most=most):
            run.prepare()  # the source has topics or partitions that the query does not know
        run.follow_starts()


class MirrorRun:
    def __init__(self, context: JobContext, source: StoredCluster) -> None:
        self._context = context
        self._cluster = context.cluster
        self._source = source
        self._pairs: dict[tuple[str, int], Pair] = {}
        self._errors: list[Exception] = []
        self._committing = threading.Lock()
        """Batches come on a thread of Spark's; log starts are followed between them."""
        self._pause = threading.Event()
        self._looked_at = context.clock.boottime()

    # --- topics ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """See to it that every topic has its copy, with as many partitions."""
        copies = {meta.name: meta for meta in self._cluster.topics()}
        for meta in _chosen(self._context, self._source):
            copy = copies.get(meta.name)
            if copy is None:
                self._create(meta)
            else:
                check_copy(copy, meta)
                if copy.partitions < meta.partitions:
                    self._grow(meta)
        copies = {meta.name: meta for meta in self._cluster.topics()}
        for meta in _chosen(self._context, self._source):
            for number in range(min(meta.partitions, copies[meta.name].partitions)):
                pair = Pair(meta.partition(number), copies[meta.name].partition(number))
                self._pairs[meta.name, number] = pair

    def _create(self, meta: TopicMeta) -> None:
        configs = dict(meta.configs) | {CONFIG: source_name(self._source.cluster_id, meta)}
        cluster = self._cluster
        if isinstance(cluster, OfflineCluster):
            cluster.log.create_topic(meta.name, partitions=meta.partitions, configs=configs)
        elif isinstance(cluster, OnlineCluster):
            named = [{"name": name, "value": value} for name, value in configs.items()]
            body = {"topic_name": meta.name, "partitions_count": meta.partitions, "configs": named}
            cluster.connection.json("POST", "/v3/clusters/-/topics", repeatable=False, body=body)

    def _grow(self, meta: TopicMeta) -> None:
        cluster = self._cluster
        if isinstance(cluster, OfflineCluster):
            cluster.log.grow_topic(meta.name, meta.partitions)
        elif isinstance(cluster, OnlineCluster):
            body = {"partitions_count": meta.partitions}
            cluster.connection.call("PATCH", topic_path(meta.name), body=body, repeatable=False)

    # --- rows --------------------------------------------------------------------------------------

    def stream(self, spark: SparkSession, *, continuous: bool, most: int | None) -> bool:
        """Until all is copied, or without end; True when it must be started anew for what the source has gained."""
        from pyspark.errors import StreamingQueryException  # only where Spark is

        from sluice.streaming.source import SluiceDataSource

        spark.dataSource.register(SluiceDataSource)  # wherever this process was started
        starts: dict[str, dict[str, int]] = {}
        for (topic, number), pair in self._pairs.items():
            ours, theirs = self._cluster.load(pair.copy), SourceLog.of(self._source.load(pair.source))
            starts.setdefault(topic, {})[str(number)] = starting_offset(ours, theirs)
        if not starts and not continuous:
            return False
        while not starts:  # --continuous on a source without topics
            self._context.check()
            if self._has_grown():
                return True
            self._pause.wait(POLL_S)
        reader = spark.readStream.format("sluice").options(**_source_options(self._source.settings))
        reader = reader.option("subscribe", ",".join(starts)).option("startingOffsets", json.dumps(starts))
        # What the source deletes before it was read is a gap of the copy too.
        reader = reader.option("includeHeaders", "true").option("failOnDataLoss", "false")
        if most is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(most))
        with tempfile.TemporaryDirectory(prefix="sluice-mirror-") as scratch:
            writer = reader.load().writeStream.foreachBatch(self._batch).option("checkpointLocation", scratch)
            writer = writer.trigger(processingTime=INTERVAL) if continuous else writer.trigger(availableNow=True)
            query = writer.start()
            try:
                while not query.awaitTermination(POLL_S):
                    self._context.check()
                    if continuous and self._looked_around():
                        return True
            except StreamingQueryException as error:
                self._context.check()  # a batch that was told to stop fails as any other
                # Spark tells of a failed batch in many words; what was refused is said better by who refused it.
                raise _as_ours(self._errors[0] if self._errors else error) from error
            finally:
                query.stop()
        return self._has_grown()

    def _looked_around(self) -> bool:
        """Now and then: follow log starts where no rows come, and see whether the source has gained partitions."""
        now = self._context.clock.boottime()
        if now - self._looked_at < LOOK_S:
            return False
        self._looked_at = now
        self.follow_starts()
        return self._has_grown()

    def _has_grown(self) -> bool:
        """Or is another incarnation of a topic, which `prepare` refuses."""
        there = {meta.partition(n) for meta in _chosen(self._context, self._source) for n in range(meta.partitions)}
        return bool(there - {pair.source for pair in self._pairs.values()})

    def _batch(self, rows: DataFrame, _number: int) -> None:
        try:
            with self._committing:
                self._copy(rows)
        except Exception as error:
            self._errors.append(error)
            raise

    def _copy(self, rows: DataFrame) -> None:
        self._context.check()
        logs = {where: self._logs(pair) for where, pair in self._pairs.items()}
        targets = {where: self._target(self._pairs[where], *both) for where, both in logs.items()}
        clock = self._context.clock
        writer = BatchWriter(self._cluster.store_spec, self._cluster.epoch, clock.wall_ms(), targets)
        ordered = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        files: dict[tuple[str, int], list[DataFile]] = {}
        for row in ordered.mapInArrow(writer.__call__, RESULT).collect():
            files.setdefault((row.topic, row.partition), []).append(read_result(bytes(row.file)))
        for where, both in logs.items():
            self._commit(where, *both, files.get(where, []))

    def _logs(self, pair: Pair) -> tuple[PartitionState, SourceLog]:
        return self._cluster.load(pair.copy), SourceLog.of(self._source.load(pair.source))

    def _target(self, pair: Pair, ours: PartitionState, theirs: SourceLog) -> CopyTarget:
        config = next(meta.config() for meta in self._cluster.topics() if meta.name == pair.copy.topic)
        return CopyTarget(pair.copy.folder, ours.end, theirs.rolls, codec(config.compression_type))

    def _commit(self, where: tuple[str, int], ours: PartitionState, theirs: SourceLog, files: list[DataFile]) -> None:
        pair = self._pairs[where]
        plan = mirror_plan(ours, theirs, files, f"mirror of {self._source.cluster_id}")
        if plan is None:
            return
        version = self._cluster.apply_plan(pair.copy, plan)
        report = self._context.report
        report.count(
            records=sum(file.records for file in plan.adds),
            bytes=sum(file.size for file in plan.adds),
            added=len(plan.adds),
            removed=len(plan.removes),
        )
        report.done += 1
        _log.info("%s is at version %d, offset %d", pair.copy.tp, version, plan.end or 0)

    def follow_starts(self) -> None:
        """The source's retention moves its log starts, also where no new rows come."""
        with self._committing:
            for where, pair in self._pairs.items():
                self._context.check()
                self._commit(where, *self._logs(pair), [])


def _source(context: JobContext) -> StoredCluster:
    options = context.options
    settings = context.settings
    if options.source_config is not None:
        settings = load_settings(options.source_config, {})
    root = options.source if "://" in options.source else str(Path(options.source).resolve())
    storage = replace(settings.storage, root=root)
    source = open_cluster(settings=replace(settings, storage=storage), clock=context.clock, read_only=True)
    if source.cluster_id == context.cluster.cluster_id:
        raise InvalidRequest("--source is the cluster itself", field="source")
    return source


def _chosen(context: JobContext, source: StoredCluster) -> list[TopicMeta]:
    """Topics of the source that `--topic` names; internal ones belong to their cluster."""
    targets = source.targets(context.options.topic)
    names = {target.ref.topic for target in targets if not target.internal}
    return [meta for meta in source.topics() if meta.name in names and not meta.internal]


def _source_options(settings: Settings) -> dict[str, Any]:
    from sluice.streaming.spark.address import STORAGE_PREFIX  # only where Spark is

    storage = settings.storage
    return {"path": storage.root} | {f"{STORAGE_PREFIX}{name}": value for name, value in storage.options.items()}


def _as_ours(error: Exception) -> SluiceError:
    if isinstance(error, SluiceError):
        return error
    return StorageError(f"the stream failed: {type(error).__name__}: {' '.join(str(error).split())[:1_000]}")


JOB = Mirror()

if __name__ == "__main__":
    from sluice.jobs.command_line import script

    script("mirror")
