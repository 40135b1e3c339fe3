"""Rows of a small batch that travel with its plan, so that no task has to call Python for them.

A task that calls a Python worker costs tens of milliseconds of processor time, whatever it reads; a batch of a few
records costs little else. PySpark spares its `SimpleDataSourceStreamReader` that: the planner process sends the rows
with the answer to `partitions`, the driver keeps them as a block, and a task that finds its block reads it. Whether a
reader may do so PySpark decides by the class it belongs to, and that class gives up admission control and
`reportLatestOffset` in exchange. A reader with `CarriesRows` says that it belongs to it while it has rows to send, and
only then.

Nothing depends on it: a block that got lost, or a batch that turned out too large, is read by its task as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

from sluice.log_store.errors import SluiceError
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.planning import Slice
from sluice.streaming.spark.reading import read_slice

logger = logging.getLogger("sluice.spark")

CARRIED_ROWS = 4_000
CARRIED_BYTES = 2 * 1024 * 1024
"""More is better read by tasks: the driver copies carried rows one by one."""


class CarriesRows:
    """For stream readers. PySpark asks `isinstance` between `partitions` and `getCache`, in one thread."""

    _carried: list[pa.RecordBatch] | None = None

    def carry(self, rows: list[pa.RecordBatch] | None) -> None:
        """What to send with the plan that is being made; None: the tasks read."""
        self._carried = rows

    def _shown_class(self) -> type[Any]:
        return type(self) if self._carried is None else _SimpleStreamReaderWrapper

    __class__ = property(_shown_class)

    def getCache(self, start: Any, end: Any) -> Iterator[pa.RecordBatch]:  # noqa: N802
        rows, self._carried = self._carried, None
        return iter(rows or ())


def rows_to_carry(options: SourceOptions, slices: tuple[Slice, ...]) -> list[pa.RecordBatch] | None:
    """All rows of the slices, in order. None if they are too many, or cannot be read here."""
    if sum(piece.wanted.count for piece in slices) > CARRIED_ROWS:
        return None
    rows: list[pa.RecordBatch] = []
    size = 0
    try:
        for batch in chain.from_iterable(read_slice(options, piece) for piece in slices):
            size += batch.nbytes
            if size > CARRIED_BYTES:
                return None
            rows.append(batch)
    except SluiceError as error:
        logger.warning("rows of a batch are left to its tasks: %s", error)
        return None
    return rows
