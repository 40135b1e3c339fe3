"""Does what `merge` chose: reads neighbours, writes one file, hands the leader a plan. Never on the ack path.

Bounded by construction: one merge at a time in the process, in a thread of low priority, a few row groups in
memory beside the encoded output, and rests between merges that keep its share of a core below the setting.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluice.log_store import reader
from sluice.log_store.compaction_tombstones import carried
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused
from sluice.log_store.merge import choose_merge, choose_trim
from sluice.log_store.parquet import EncodedFile, FileEncoder
from sluice.log_store.partition import PartitionLog
from sluice.log_store.plans import Plan, PlanKind
from sluice.log_store.segments import segment_bounds
from sluice.log_store.topic import TopicConfig, codec

_log = logging.getLogger(__name__)
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Merged:
    """One rewrite that was committed."""

    version: int
    files: int
    records: int
    bytes_before: int
    bytes_after: int


def merge_once(partition: PartitionLog, config: TopicConfig, *, quiet: bool) -> Merged | None:
    """Do the next merge or trim of a partition; None when there is none worth while."""
    partition.open()
    files, count, log_start, end = partition.view()
    state = partition.state
    segments = segment_bounds(tuple(state.rolls), log_start, end)
    boundary = choose_trim(files[:count], log_start)
    if boundary is not None:
        return _rewrite(partition, config, [boundary], log_start, end, PlanKind.TRIM, "rows below the log start")
    choice = choose_merge(files[:count], segments, config.merge_target_bytes, quiet=quiet)
    if choice is None:
        return None
    return _rewrite(partition, config, choice.files, choice.files[0].base_offset, end, PlanKind.MERGE, choice.reason)


def _rewrite(
    partition: PartitionLog,
    config: TopicConfig,
    files: Sequence[DataFile],
    start: int,
    end: int,
    kind: PlanKind,
    reason: str,
) -> Merged | None:
    runtime, folder = partition.runtime, partition.ref.folder
    version = partition.state.version
    encoded = _encode(partition, files, start, end, config)
    name = f"{encoded.base_offset:020d}-{runtime.leadership.epoch}-{uuid.uuid4().hex}.parquet"
    runtime.store.put(f"{folder}/{name}", encoded.data)
    # The inputs may be deleted once the plan is committed: the output must be on disk before.
    runtime.store.sync([f"{folder}/{name}"])
    added = DataFile.of(name, encoded, runtime.clock.wall_ms(), carried(files, encoded.base_offset))
    plan = Plan(
        plan_id=uuid.uuid4().hex,
        kind=kind,
        reason=reason,
        base_version=version,
        removes=tuple(file.path for file in files),
        adds=(added,),
    )
    try:
        committed = partition.apply_plan(plan)
    except PlanRefused as refused:
        # The partition moved on (records were deleted, another plan won): the new file is ours alone to remove.
        runtime.store.delete(f"{folder}/{name}")
        _log.info("merge of %s came too late: %s", partition.ref.tp, refused)
        return None
    before = sum(file.size for file in files)
    return Merged(committed, len(files), encoded.records, before, encoded.size)


def _encode(
    partition: PartitionLog, files: Sequence[DataFile], start: int, end: int, config: TopicConfig
) -> EncodedFile:
    rows = _rows(partition, files, start, min(end, files[-1].end_offset))
    return FileEncoder(*codec(config.compression_type)).write_all(rows)


def _rows(partition: PartitionLog, files: Sequence[DataFile], start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows of neighbouring files. Those that were just appended are still in memory: opening a hundred files of a
    few rows each is most of the cost of merging them."""
    runtime, folder = partition.runtime, partition.ref.folder
    cached_from, tables = runtime.tails.between(folder, start, end)
    on_disk = [file for file in files if file.base_offset < cached_from]
    yield from reader.scan(runtime.store, folder, on_disk, start, cached_from)
    for table in tables:
        yield from table.to_batches()


def lower_priority() -> None:
    """Give way to everything that answers clients. Threads have priorities of their own on Linux."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    except OSError as error:
        _log.debug("merge thread keeps its priority: %s", error)
