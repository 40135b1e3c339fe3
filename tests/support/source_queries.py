"""A streaming query without Spark: the planner calls in Spark's order, the tasks one after the other.

::

    query = Query(root, subscribe="orders", startingOffsets="earliest")
    assert values(query.trigger()) == ["a", "b"]
    assert query.trigger() is None               # idle
    query.restart()                              # a new planner, the same checkpoint
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.log_store.clock import Clock, ManualClock
from sluice.streaming.source import make_follower
from sluice.streaming.spark.batch_reader import BatchReader
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.planning import Slice
from sluice.streaming.spark.reading import read_slice
from sluice.streaming.spark.stream_reader import Planner

Row = dict[str, Any]


def source_options(root: Path | str, *, streaming: bool = True, **given: Any) -> SourceOptions:
    texts = {name: str(value) for name, value in given.items()}
    return SourceOptions.parse(texts | {"path": str(root)}, streaming=streaming, environ={})


def rows_of(options: SourceOptions, slices: Iterable[Any]) -> list[Row]:
    found: list[Row] = []
    for piece in slices:
        assert isinstance(piece, Slice)
        sent = pickle.loads(pickle.dumps(piece))
        found += pa.Table.from_batches(list(read_slice(options, sent)), _schema(options)).to_pylist()
    return found


def _schema(options: SourceOptions) -> pa.Schema:
    from sluice.streaming.spark.schema import arrow_schema

    return arrow_schema(options.columns)


def values(rows: list[Row] | None) -> list[str]:
    assert rows is not None, "the query was idle"
    return [row["value"].decode() for row in rows]


def read_batch(root: Path | str, **given: Any) -> list[Row]:
    options = source_options(root, streaming=False, **given)
    return rows_of(options, BatchReader(options).partitions())


class Query:
    def __init__(self, root: Path | str, *, clock: Clock | None = None, **given: Any) -> None:
        self.options = source_options(root, **{"fetchOffset.retryIntervalMs": 1, **given})
        self._clock = clock or ManualClock()
        self.planner = self._new()
        self.position: dict[str, Any] | None = None

    def _new(self) -> Planner:
        return Planner(self.options, make_follower, self._clock)

    def restart(self) -> None:
        self.planner = self._new()

    def available_now(self) -> None:
        self.planner.fix_target()

    def begin(self) -> None:
        if self.position is None:
            self.position = _stored(self.planner.initial())

    def next_end(self, *, limited: bool = True) -> dict[str, Any] | None:
        """The end that Spark would log; None when the query is idle."""
        self.begin()
        assert self.position is not None
        end = _stored(self.planner.next_end(self.position, limited=limited))
        return None if end == self.position else end

    def tasks(self, end: dict[str, Any]) -> list[Any]:
        return self.planner.tasks(end)

    def run(self, end: dict[str, Any]) -> list[Row]:
        rows = rows_of(self.options, self.tasks(end))
        self.position = end
        return rows

    def trigger(self, *, limited: bool = True) -> list[Row] | None:
        end = self.next_end(limited=limited)
        return None if end is None else self.run(end)


def _stored(offset: dict[str, Any]) -> dict[str, Any]:
    """As the checkpoint gives it back."""
    back: dict[str, Any] = json.loads(json.dumps(offset))
    return back
