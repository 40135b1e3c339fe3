"""What /metrics says of the log: partitions, commits, clean-up, the write-ahead log."""

from __future__ import annotations

from collections.abc import Iterator

from sluice.api.prometheus import NONE, Labels, family, histograms, single
from sluice.log_store.engine import LogStore
from sluice.log_store.partition import PartitionLog

HOUSEKEEPING = {
    "merges": "Merges of small files.",
    "merged_files": "Files that were merged.",
    "merged_bytes": "Bytes of files that were merged.",
    "removed_deleted": "Data files deleted after a commit had removed them.",
    "orphans_deleted": "Data files deleted that no commit ever named.",
    "leftovers_deleted": "Hidden sidecars and temporaries deleted.",
    "failures": "Merges and sweeps that failed and are tried again.",
}
COMPACTION = {
    "compactions": "Key compactions by the service itself.",
    "records_dropped": "Records that they dropped.",
    "failures": "Key compactions that failed and are tried again.",
    "too_large": "Looks at a partition that is due and too large: run the job `compaction`.",
}
RETENTION = {
    "segments": "Segments that retention took inside the service; jobs report for themselves.",
    "records": "Records of these segments.",
    "bytes": "Bytes of these segments.",
    "failures": "Partitions that retention failed on; the next check tries again.",
}
FIGURES = {
    "checkpoints": "Delta checkpoints written.",
    "cleaned_commits": "Commit files deleted behind a checkpoint.",
    "cleaned_checkpoints": "Old checkpoints deleted.",
    "cleaned_states": "Old state snapshots deleted.",
    "cleaned_checksums": "Version checksums of delta-spark (`n.crc`) deleted with their versions.",
}


def lines(log: LogStore, most_partitions: int) -> Iterator[str]:
    yield from _partitions(log, most_partitions)
    figures, counters = log.runtime.figures, log.background.housekeeping.counters
    doc = "Time to put one Delta version, after its data files; the count is the number of versions."
    yield from histograms("sluice_commit_seconds", doc, [(NONE, figures.commits)])
    yield from single("sluice_versions_total", "counter", "Delta versions committed.", figures.commits.count)
    for name, doc in FIGURES.items():
        yield from single(f"sluice_{name}_total", "counter", doc, getattr(figures, name))
    for name, doc in HOUSEKEEPING.items():
        yield from single(f"sluice_housekeeping_{name}_total", "counter", doc, getattr(counters, name))
    for name, doc in RETENTION.items():
        yield from single(f"sluice_retention_{name}_total", "counter", doc, getattr(log.retention.counters, name))
    compaction = log.background.housekeeping.compaction.counters
    for name, doc in COMPACTION.items():
        yield from single(f"sluice_compaction_{name}_total", "counter", doc, getattr(compaction, name))
    wal = log.runtime.wal
    yield from single("sluice_wal_bytes", "gauge", "Bytes in the write-ahead log.", wal.size_bytes if wal else 0)
    yield from single("sluice_wal_fill", "gauge", "The same as a share of wal.max.bytes.", wal.fill if wal else 0)
    parked = len(wal.parked()) if wal else 0
    yield from single("sluice_wal_parked_files", "gauge", "Batches set aside until their partition can commit.", parked)
    yield from single("sluice_fenced", "gauge", "1 when another process leads.", int(log.fenced))


def _partitions(log: LogStore, most: int) -> Iterator[str]:
    topics, led = log.topics(internal=True), log.opened_partitions()
    yield from single("sluice_topics", "gauge", "Topics, internal ones included.", len(topics))
    total = sum(meta.partitions for meta in topics)
    yield from single("sluice_partitions", "gauge", "Partitions of all topics.", total)
    yield from single("sluice_partitions_open", "gauge", "Partitions that were used since the start.", len(led))
    shown: list[tuple[Labels, PartitionLog]] = [
        ({"topic": partition.ref.topic, "partition": partition.ref.partition}, partition) for partition in led[:most]
    ]
    yield from single("sluice_partitions_shown", "gauge", "Those among them that follow one by one.", len(shown))
    for attribute, doc in (
        ("high_watermark", "Offset after the last committed record."),
        ("log_end", "Offset that the next record gets."),
        ("log_start", "First offset that can be read."),
    ):
        samples = ((labels, getattr(partition, attribute)) for labels, partition in shown)
        yield from family(f"sluice_partition_{attribute}", "gauge", doc, samples)
    versions = ((labels, partition.state.version) for labels, partition in shown)
    yield from family("sluice_partition_version", "gauge", "Delta version of the partition's table.", versions)
