"""A streaming query without Spark: plays the calls of Spark's engine on the real planner, and keeps a checkpoint.

The order is that of Spark 4.2: the end of a batch is logged, the batch is planned and read, then it is finished; the
next look gets the end of the last finished batch. After a crash the logged and unfinished batch is read again first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from sluice.log_store.clock import SystemClock
from sluice.log_store.errors import SluiceError
from sluice.streaming.source import make_follower
from sluice.streaming.spark.options import SourceOptions
from sluice.streaming.spark.planning import Slice
from sluice.streaming.spark.reading import read_slice
from sluice.streaming.spark.stream_reader import Planner

Row = tuple[str, int, int]
"""topic, partition, offset"""


class Checkpoint:
    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.finished = 0


class PlayedQuery:
    def __init__(self, options: dict[str, str], checkpoint: Checkpoint | None = None) -> None:
        self.options = SourceOptions.parse(options, streaming=True, environ={})
        self.checkpoint = checkpoint or Checkpoint()
        self.planner = Planner(self.options, make_follower, SystemClock())
        self.rows: list[Row] = []
        """What this run has read, in order."""
        self.failure: SluiceError | None = None
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._initial: dict[str, Any] | None = None

    # --- step by step ----------------------------------------------------------------------------

    def look(self) -> dict[str, Any] | None:
        """Plan and log the next batch; None if there is nothing to read."""
        log = self.checkpoint
        if len(log.logged) > log.finished:
            return log.logged[-1]
        start = log.logged[-1] if log.logged else self._first()
        limits = (self.options.max_offsets_per_trigger, self.options.min_offsets_per_trigger)
        limited = any(limit is not None for limit in limits)
        end = self.planner.next_end(start, limited=limited)
        if end == start:
            return None
        log.logged.append(end)
        return end

    def _first(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = self.planner.initial()
        return self._initial

    def read(self, end: dict[str, Any]) -> list[Row]:
        return [row for piece in self.planner.tasks(end) if isinstance(piece, Slice) for row in self._rows(piece)]

    def _rows(self, piece: Slice) -> Iterable[Row]:
        for batch in read_slice(self.options, piece):
            columns = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
            yield from zip(*columns, strict=True)

    def finish(self, rows: list[Row]) -> None:
        self.rows += rows
        self.checkpoint.finished = len(self.checkpoint.logged)

    def trigger(self) -> list[Row]:
        """One whole batch, or nothing."""
        end = self.look()
        if end is None:
            return []
        rows = self.read(end)
        self.finish(rows)
        return rows

    def available_now(self) -> list[Row]:
        """Until there is nothing more, as Trigger.AvailableNow."""
        self.planner.fix_target()
        found: list[Row] = []
        while rows := self.trigger():
            found += rows
        return found

    # --- in the background -----------------------------------------------------------------------

    def run(self) -> PlayedQuery:
        """Trigger after trigger, until `stop` or `kill`."""
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        return self

    def _loop(self) -> None:
        while not self._ends.wait(0.02):
            try:
                self.trigger()
            except SluiceError as error:
                self.failure = error
                return

    def rest(self) -> None:
        """No more triggers; the planner process is still there."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(60)

    def stop(self) -> None:
        self.rest()
        self.planner.close()

    @property
    def is_fenced(self) -> bool:
        """Whether it knows that another process has its instance id."""
        return self.planner._follower._membership.fenced is not None

    def crash(self) -> None:
        """Nothing is said to the group any more, as after kill -9."""
        self.rest()
        self.planner._follower._connection.close()
