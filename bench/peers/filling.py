"""The same records in both logs, for those who read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.data import batch
from bench.harness import cluster
from bench.peers.service import TOPIC
from bench.peers.sizes import PARTITIONS

FILE_RECORDS = 250_000


@dataclass(frozen=True, slots=True)
class Filled:
    records: int
    parquet: tuple[str, ...]
    """The data files of the log."""
    lines: Path
    """The same values, one on a line."""


def fill(root: Path, lines: Path, records: int, topic: str = TOPIC) -> Filled:
    """A topic in files as large as merging leaves them, appended in this process."""
    each = records // PARTITIONS
    with cluster(root, fsync=False, merge=False) as log, lines.open("wb") as out:
        log.create_topic(topic, partitions=PARTITIONS)
        for number in range(PARTITIONS):
            for done in range(0, each, FILE_RECORDS):
                rows = batch(min(FILE_RECORDS, each - done), seed=number * 1_000 + done // FILE_RECORDS)
                log.append(topic, number, rows).result()
                out.write(b"\n".join(rows.column("value").to_pylist()) + b"\n")
        partitions = [log.partition(topic, number) for number in range(PARTITIONS)]
        paths = [str(root / one.ref.folder / file.path) for one in partitions for file in one.state.files]
    return Filled(each * PARTITIONS, tuple(paths), lines)
