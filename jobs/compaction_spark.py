"""The two passes of a cleaning on Spark: executors read and write the files, only hashes and offsets travel.

First pass: each task reads offsets and keys of some files and answers the last offset of each key hash, 24 bytes a key.
Spark finds the last of all by a shuffle of these, and the rows of the clean part whose hash came again by a semi-join;
what is left are offsets, 8 bytes each, kept on disk. Second pass: the offsets go to the piece of work that holds them,
and a task for each piece rewrites its files. The driver sees file names and counts, never a key or a row.

Files are read and written by the log's own reader and encoder rather than by delta-spark: a rewrite must notice a
damaged page before it becomes a good-looking file (I-10), and its output must have our names, checksums and statistics
(I-4, I-12). Which files there are is the snapshot at the plan's base version, as delta-spark would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from sluice.jobs.cluster import StoreSpec
from sluice.log_store.compaction import FileGroup
from sluice.log_store.compaction_files import Cleaned, Cleaning, Verdict, clean_group, hashed_keys
from sluice.log_store.compaction_keys import SLAB_ROWS, Hashed, KeyHasher, LastOffsets
from sluice.log_store.delta_log import DataFile
from sluice.log_store.errors import PlanRefused

LEAST_TASK_BYTES, MOST_TASK_BYTES = 4 << 20, 128 << 20
MOST_TASKS = 2_000
MOST_KEYS = 1_000_000
"""Keys that a task holds before it hands them on: about 100 MB with what sorting takes."""
SHUFFLED_KEYS = 1_000_000
"""Rows of the dirty range for each task that finds the last of all."""
_HASHES = "high bigint, low bigint, offset bigint"
_NO_OFFSET = -1

_T = TypeVar("_T")


class SparkPasses:
    """One cleaning of one partition."""

    def __init__(self, spark: SparkSession, spec: StoreSpec) -> None:
        self._spark = spark
        self._spec = spec
        self._stored: list[DataFrame] = []
        self._verdict: DataFrame

    def __enter__(self) -> SparkPasses:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._stored:
            frame.unpersist()

    # --- the first pass ------------------------------------------------------------------------

    def judge(self, job: Cleaning, groups: Sequence[FileGroup]) -> None:
        dirty = [file for group in groups if group.dirty for file in group.files]
        clean = [file for group in groups if not group.dirty for file in group.files]
        # By number and by hash: what is kept cannot be made fewer tasks later, and both sides of the join fit together.
        shuffled = self._shuffle_tasks(sum(file.records for file in dirty)), "high", "low"
        found = self._read(_last_of(self._spec, job), self._tasks(dirty)).repartition(*shuffled)
        last = self._keep(found.groupBy("high", "low").agg(F.max("offset").alias("offset")))
        verdict = last.select("offset")
        if clean:
            came_again = self._read(_all_of(self._spec, job), self._tasks(clean)).repartition(*shuffled)
            shadowed = came_again.join(last.select("high", "low"), ["high", "low"], "left_semi")
            verdict = verdict.unionAll(shadowed.select("offset"))
        self._verdict = self._keep(verdict)
        _run(self._verdict.count)

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.DISK_ONLY)
        self._stored.append(kept)
        return kept

    def _shuffle_tasks(self, records: int) -> int:
        return min(MOST_TASKS, max(self._spark.sparkContext.defaultParallelism, records // SHUFFLED_KEYS))

    def _tasks(self, files: Sequence[DataFile]) -> list[list[DataFile]]:
        """Neighbours together, a few tasks for each core."""
        wanted = sum(file.size for file in files) // (4 * max(1, self._spark.sparkContext.defaultParallelism))
        most = max(LEAST_TASK_BYTES, min(MOST_TASK_BYTES, wanted))
        tasks: list[list[DataFile]] = []
        size = most
        for file in files:
            if size >= most:
                tasks.append([])
                size = 0
            tasks[-1].append(file)
            size += file.size
        return tasks

    def _read(self, keys: Callable[[list[DataFile]], Iterator[Hashed]], tasks: list[list[DataFile]]) -> DataFrame:
        def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    for found in keys(tasks[number]):
                        yield from _as_batches(found)

        count = len(tasks)
        return self._spark.range(0, count, 1, max(1, count)).mapInArrow(read, _HASHES)

    # --- the second pass -----------------------------------------------------------------------

    def clean(self, job: Cleaning, groups: Sequence[FileGroup]) -> list[Cleaned]:
        pieces, spec = list(groups), self._spec

        def rewrite(table: pa.Table) -> pa.Table:
            piece = pieces[table.column("piece")[0].as_py()]
            offsets = np.sort(table.column("offset").to_numpy())
            offsets = offsets[offsets != _NO_OFFSET]
            done = clean_group(spec.open(), job, piece, Verdict(offsets, offsets))
            return pa.table({"cleaned": pa.array([msgspec.msgpack.encode(done)], pa.binary())})

        # A piece none of whose offsets was named needs a task as well: it may have to go whole.
        every = self._spark.range(len(pieces)).select(
            F.col("id").cast("int").alias("piece"), F.lit(_NO_OFFSET).cast("bigint").alias("offset")
        )
        placed = self._verdict.mapInArrow(_placing(pieces), "piece int, offset bigint").unionAll(every)
        # By number: left to itself Spark would make one task of what is little to it, and much to rewrite.
        spread = placed.repartition(min(len(pieces), MOST_TASKS), "piece")
        frame = spread.groupBy("piece").applyInArrow(rewrite, "cleaned binary")
        return [msgspec.msgpack.decode(row.cleaned, type=Cleaned) for row in _run(frame.collect)]


def _last_of(spec: StoreSpec, job: Cleaning) -> Callable[[list[DataFile]], Iterator[Hashed]]:
    def keys(files: list[DataFile]) -> Iterator[Hashed]:
        found, start = LastOffsets(), max(job.first_dirty, job.log_start)
        for some in hashed_keys(spec.open(), job, files, KeyHasher(job.seed), start, job.end):
            found.add(some)
            # Spark takes the last of several, so memory need not grow with the file.
            if found.size > MOST_KEYS:
                yield found.rows
                found = LastOffsets()
        yield found.rows

    return keys


def _all_of(spec: StoreSpec, job: Cleaning) -> Callable[[list[DataFile]], Iterator[Hashed]]:
    def keys(files: list[DataFile]) -> Iterator[Hashed]:
        return hashed_keys(spec.open(), job, files, KeyHasher(job.seed), job.log_start, job.first_dirty)

    return keys


def _as_batches(keys: Hashed) -> Iterator[pa.RecordBatch]:
    # Spark has no unsigned numbers; which number a hash is does not matter.
    columns = [pa.array(keys.high.view(np.int64)), pa.array(keys.low.view(np.int64)), pa.array(keys.offsets)]
    rows = pa.record_batch(columns, ["high", "low", "offset"])
    return (rows.slice(first, SLAB_ROWS) for first in range(0, rows.num_rows, SLAB_ROWS))


def _placing(pieces: Sequence[FileGroup]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Offsets to (number of the piece that holds it, offset); those of other pieces are left out."""
    order = sorted(range(len(pieces)), key=lambda number: pieces[number].start)
    numbers = np.array(order, dtype=np.int32)
    starts = np.array([pieces[number].start for number in order], dtype=np.int64)
    ends = np.array([pieces[number].end for number in order], dtype=np.int64)

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            offsets = batch.column(0).to_numpy()
            at = np.searchsorted(starts, offsets, side="right") - 1
            inside = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
            columns = [pa.array(numbers[at[inside]]), pa.array(offsets[inside])]
            yield pa.record_batch(columns, ["piece", "offset"])

    return place


def _run(action: Callable[[], _T]) -> _T:
    try:
        return action()
    except PySparkException as error:
        if "FileVanished" in str(error):
            raise PlanRefused("a file was removed and deleted while it was compacted") from error
        raise
