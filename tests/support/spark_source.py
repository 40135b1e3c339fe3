"""Streaming queries of the session of the tests: where they read, and what they deliver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from sluice.log_store.engine import LogStore


@dataclass(frozen=True)
class Place:
    """A root and the log that lives there."""

    root: str
    log: LogStore
    keys: dict[str, str]
    """Options that open it."""


class Sink:
    """What a query delivered, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = frame.collect()

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """(partition, offset) in the order of delivery."""
        return [(row.partition, row.offset) for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in sorted(self.batches.items())]


def stream(spark: SparkSession, place: Place, **options: Any) -> DataFrame:
    given = {"subscribe": "t", "startingOffsets": "earliest"} | place.keys | options
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return spark.readStream.format("sluice").options(**texts).load(place.root)


def start(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def to_the_end(frame: DataFrame, checkpoint: Path, **trigger: Any) -> Sink:
    sink = Sink()
    query = start(frame, sink, checkpoint, **(trigger or {"availableNow": True}))
    assert query.awaitTermination(120)
    return sink
