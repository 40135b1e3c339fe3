"""Verification on Spark: logs and files are read by executors, rows are compared by the JVM.

Nothing is hashed or counted record by record in Python: executors hand Arrow batches to Spark, and Spark computes the
same order-independent checksum for our reader, for delta-rs and for its own Delta reader.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sluice.jobs.cluster import StoreSpec
from sluice.jobs.verify_facts import FileFacts
from sluice.jobs.verify_findings import Finding, notice, placed
from sluice.jobs.verify_partition import Evidence, gather, moved_on
from sluice.jobs.verify_rows import cleaned_range, delta_rs_batches, keys_found, null_keys_found, our_batches
from sluice.jobs.verify_workers import Bundle, Compared, Facts, bundles, read_bundle
from sluice.log_store.delta_log import DataFile
from sluice.log_store.reader import scan as scan_files
from sluice.log_store.records import RECORD_SCHEMA
from sluice.log_store.store import Store
from sluice.log_store.values import PartitionRef

TABLES_AT_ONCE = 32
"""Partitions compared by one query: each is a table of its own to Spark."""
MOST_KEYS = 1_000
MOST_TASKS = 2_000
OURS, DELTA_RS, DELTA_SPARK = "sluice", "delta-rs", "delta-spark"
_ROWS = (
    "label int, reader string, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
# The flags keep a null apart from a neighbour that moved into its place: xxhash64 passes over nulls.
_HASH = (
    "CAST(xxhash64(offset, unix_micros(timestamp), key, key IS NULL, value, value IS NULL, headers, headers IS NULL) "
    "AS DECIMAL(38, 0))"
)

_T = TypeVar("_T")
_R = TypeVar("_R")


class Scan(NamedTuple):
    """Rows of one partition to be read by an executor, through one reader: ours takes it in pieces."""

    label: int
    reader: str
    folder: str
    version: int
    files: tuple[DataFile, ...] = ()


class KeyScan(NamedTuple):
    """Keys of some files of a compacted part."""

    label: int
    folder: str
    files: tuple[DataFile, ...]
    start: int
    end: int


class Checksum(NamedTuple):
    rows: int
    digest: str


class SparkWorkers:
    def __init__(self, spark: SparkSession, spec: StoreSpec) -> None:
        self._spark = spark
        self._spec = spec
        self._store = spec.open()

    # --- logs and files ------------------------------------------------------------------------

    def gather(self, refs: Sequence[PartitionRef]) -> list[Evidence]:
        return self._spread(gather, refs)

    def facts(self, evidences: Sequence[Evidence]) -> dict[str, dict[str, FileFacts]]:
        found: dict[str, dict[str, FileFacts]] = {evidence.ref.folder: {} for evidence in evidences}
        for folder, facts in self._spread(_read, list(bundles(evidences))):
            found[folder].update({one.path: one for one in facts})
        return found

    def _spread(self, work: Callable[[Store, _T], _R], items: Sequence[_T]) -> list[_R]:
        """`work(store, item)` for each item, on the executors, in any order."""
        if not items:
            return []
        spec = self._spec

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = spec.open()
            for batch in batches:
                for item in batch.column(0).to_pylist():
                    # Written by our own driver a moment ago.
                    answer = pickle.dumps(work(store, pickle.loads(item)))  # noqa: S301
                    yield pa.record_batch([pa.array([answer], pa.binary())], ["item"])

        frame = self._items(items).mapInArrow(run, "item binary")
        return [pickle.loads(bytes(row.item)) for row in frame.collect()]  # noqa: S301 - as above

    def _items(self, items: Sequence[object]) -> DataFrame:
        rows = [(bytearray(pickle.dumps(item)),) for item in items]
        return self._spark.createDataFrame(rows, "item binary").repartition(min(len(rows), MOST_TASKS))

    # --- rows ----------------------------------------------------------------------------------

    def compare(self, evidences: Sequence[Evidence], facts: Mapping[str, Facts]) -> Compared:
        """`facts` are not needed here: all three readers read the rows."""
        findings: list[Finding] = []
        vanished: list[PartitionRef] = []
        chosen = [evidence for evidence in evidences if evidence.state.exists]
        for at in range(0, len(chosen), TABLES_AT_ONCE):
            some = chosen[at : at + TABLES_AT_ONCE]
            try:
                findings += self._compare(some)
            except Exception:  # noqa: BLE001 - one table that cannot be read must not hide the others
                for evidence in some:
                    self._compare_alone(evidence, findings, vanished)
        return Compared(findings, vanished)

    def _compare_alone(self, evidence: Evidence, findings: list[Finding], vanished: list[PartitionRef]) -> None:
        try:
            findings += self._compare([evidence])
        except Exception as error:  # noqa: BLE001 - whatever a stock reader raises is an answer
            if moved_on(self._store, evidence):
                vanished.append(evidence.ref)
                return
            text = f"a stock reader cannot read it: {_shortly(error)}"
            findings += placed([Finding("I-11", text, version=evidence.state.version)], evidence.ref)

    def _compare(self, evidences: Sequence[Evidence]) -> list[Finding]:
        tables: dict[int, DataFrame] = {}
        findings: list[Finding] = []
        for label, evidence in enumerate(evidences):
            try:
                tables[label] = self._delta_table(evidence)
            except Exception as error:  # of PySpark, or of the gateway to the JVM
                if not _no_file_system(error):
                    raise
                text = "Spark has no file system for this root (hadoop-aws or alike): not compared with delta-spark"
                findings += placed([notice("I-11", text)], evidence.ref)
        sums = self._checksums(evidences, tables)
        for label, evidence in enumerate(evidences):
            readers = [DELTA_RS, *([DELTA_SPARK] if label in tables else [])]
            ours = sums.get((label, OURS), _EMPTY)
            for reader in readers:
                theirs = sums.get((label, reader), _EMPTY)
                findings += placed(check_checksums(reader, ours, theirs, evidence.state.version), evidence.ref)
        for label, found in self._cleaned(evidences):
            findings += placed(found, evidences[label].ref)
        return findings

    def _delta_table(self, evidence: Evidence) -> DataFrame:
        root = str(self._store.local_path or self._store.url.replace("s3://", "s3a://", 1))
        path = f"{root.rstrip('/')}/{evidence.ref.folder}"
        return self._spark.read.format("delta").option("versionAsOf", evidence.state.version).load(path)

    def _checksums(
        self, evidences: Sequence[Evidence], tables: Mapping[int, DataFrame]
    ) -> dict[tuple[int, str], Checksum]:
        scans = [scan for label, evidence in enumerate(evidences) for scan in _scans(label, evidence)]
        spec = self._spec

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = spec.open()
            for batch in batches:
                for item in batch.column(0).to_pylist():
                    yield from _labelled(store, pickle.loads(item))  # noqa: S301 - written by our own driver

        rows = self._items(scans).mapInArrow(read, _ROWS)
        for label, table in tables.items():
            rows = rows.union(
                table.select(
                    sql.lit(label).alias("label"),
                    sql.lit(DELTA_SPARK).alias("reader"),
                    *("offset", *RECORD_SCHEMA.names),
                )
            )
        summed = rows.groupBy("label", "reader").agg(
            sql.count("*").alias("rows"), sql.expr(f"sum({_HASH})").alias("digest")
        )
        return {(row["label"], row["reader"]): Checksum(row["rows"], str(row["digest"])) for row in summed.collect()}

    def _cleaned(self, evidences: Sequence[Evidence]) -> Iterator[tuple[int, list[Finding]]]:
        """Keys that stand twice, by our own reader: Spark need not know the file system of the root."""
        scans = [scan for label, evidence in enumerate(evidences) for scan in _key_scans(label, evidence)]
        if not scans:
            return
        spec = self._spec

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = spec.open()
            for batch in batches:
                for item in batch.column(0).to_pylist():
                    yield from _keys(store, pickle.loads(item))  # noqa: S301 - written by our own driver

        keys = self._items(scans).mapInArrow(read, "label int, offset bigint, key binary")
        counted = keys.groupBy("label", "key").agg(
            sql.count("*").alias("offset_count"),
            sql.min("offset").alias("offset_min"),
            sql.max("offset").alias("offset_max"),
        )
        rows = [row.asDict() for row in counted.where("offset_count > 1 OR key IS NULL").limit(MOST_KEYS).collect()]
        for label in sorted({row["label"] for row in rows}):
            version = evidences[label].state.version
            mine = [row for row in rows if row["label"] == label]
            nulls = [null_keys_found(r["offset_count"], r["offset_min"], version) for r in mine if r["key"] is None]
            yield label, [*keys_found([row for row in mine if row["key"] is not None], version), *nulls]


_EMPTY = Checksum(0, "None")


def check_checksums(reader: str, ours: Checksum, theirs: Checksum, version: int) -> Iterator[Finding]:
    if ours.rows != theirs.rows:
        text = f"{reader} returns {theirs.rows} rows where {ours.rows} are committed"
        yield Finding("I-11", text, version=version)
    elif ours.digest != theirs.digest:
        yield Finding("I-11", f"{reader} returns other rows than were committed", version=version)


def _scans(label: int, evidence: Evidence) -> Iterator[Scan]:
    folder, version = evidence.ref.folder, evidence.state.version
    yield Scan(label, DELTA_RS, folder, version)
    files = {file.path: file for file in evidence.state.files}
    for bundle in bundles([evidence]):
        yield Scan(label, OURS, folder, version, tuple(files[path] for path in bundle.paths))


def _key_scans(label: int, evidence: Evidence) -> Iterator[KeyScan]:
    if (cleaned := cleaned_range(evidence.state)) is None:
        return
    files = {file.path: file for file in evidence.state.files}
    for bundle in bundles([evidence]):
        inside = [files[path] for path in bundle.paths if files[path].base_offset < cleaned[1]]
        if inside:
            yield KeyScan(label, evidence.ref.folder, tuple(inside), *cleaned)


def _keys(store: Store, scan: KeyScan) -> Iterator[pa.RecordBatch]:
    for batch in scan_files(store, scan.folder, scan.files, scan.start, scan.end, columns=["offset", "key"]):
        label = pa.nulls(batch.num_rows, pa.int32()).fill_null(scan.label)
        columns = [label, batch.column("offset"), batch.column("key")]
        yield pa.record_batch(columns, names=["label", "offset", "key"])


def _read(store: Store, bundle: Bundle) -> tuple[str, list[FileFacts]]:
    return bundle.folder, read_bundle(store, bundle)


def _labelled(store: Store, scan: Scan) -> Iterator[pa.RecordBatch]:
    if scan.reader == OURS:
        batches = our_batches(store, scan.folder, scan.files)
    else:
        batches = delta_rs_batches(store, scan.folder, scan.version)
    for batch in batches:
        label = pa.nulls(batch.num_rows, pa.int32()).fill_null(scan.label)
        name = pa.nulls(batch.num_rows, pa.string()).fill_null(scan.reader)
        yield pa.record_batch([label, name, *batch.columns], names=["label", "reader", *batch.schema.names])


def _no_file_system(error: Exception) -> bool:
    return "No FileSystem for scheme" in str(error) or "S3AFileSystem" in str(error)


def _shortly(error: Exception) -> str:
    """The first line of what comes from the JVM does not say what happened."""
    return " ".join(str(error).split())[:300] or type(error).__name__
