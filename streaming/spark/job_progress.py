"""What a query says after each batch, as one log line, and as a file that Prometheus' node exporter can collect."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sluice.log_store.values import TopicPartition
from sluice.streaming.spark.job_log import say
from sluice.streaming.spark.offsets import DETAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    batch: int
    rows: int
    rows_per_s: float
    seconds: float
    lag: Mapping[TopicPartition, int] = field(default_factory=dict, hash=False)
    """Records behind the end of the log, of the partitions that this query reads."""

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())


def figures_of(progress: Mapping[str, Any]) -> BatchFigures:
    """From the JSON of a StreamingQueryProgress."""
    lag: dict[TopicPartition, int] = {}
    for source in progress.get("sources", ()):
        read, latest = dict(_flat(source.get("endOffset"))), dict(_flat(source.get("latestOffset")))
        lag |= {tp: max(0, latest[tp] - offset) for tp, offset in read.items() if tp in latest}
    return BatchFigures(
        batch=int(progress["batchId"]),
        rows=int(progress.get("numInputRows") or 0),
        rows_per_s=round(float(progress.get("processedRowsPerSecond") or 0.0), 1),
        seconds=round(float((progress.get("durationMs") or {}).get("triggerExecution", 0)) / 1000, 3),
        lag=lag,
    )


def _flat(offsets: object) -> Iterator[tuple[TopicPartition, int]]:
    """Spark gives offsets as JSON, or as a text of it."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    if not isinstance(found, dict):
        return
    for topic, numbers in found.items():
        if topic != DETAILS and isinstance(numbers, dict):
            for partition, offset in numbers.items():
                yield TopicPartition(topic, int(partition)), int(offset)


def metrics_text(application: str, figures: BatchFigures, rows_total: int) -> str:
    job = f'job="{_escaped(application)}"'
    lines = []
    for name, kind, doc, value in (
        ("batch", "gauge", "Number of the last finished batch.", figures.batch),
        ("rows_total", "counter", "Records read since the job started.", rows_total),
        ("rows_per_second", "gauge", "Records per second of the last batch.", figures.rows_per_s),
        ("batch_seconds", "gauge", "How long the last batch took.", figures.seconds),
    ):
        lines += [f"# HELP sluice_job_{name} {doc}", f"# TYPE sluice_job_{name} {kind}"]
        lines.append(f"sluice_job_{name}{{{job}}} {value}")
    lines += ["# HELP sluice_job_lag Records behind the end of the log.", "# TYPE sluice_job_lag gauge"]
    for tp, behind in sorted(figures.lag.items(), key=lambda item: (item[0].topic, item[0].partition)):
        lines.append(f'sluice_job_lag{{{job},topic="{_escaped(tp.topic)}",partition="{tp.partition}"}} {behind}')
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_whole(file: Path, text: str) -> None:
    """A reader sees the old text or the new one, never a part."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(file)


class ProgressListener(StreamingQueryListener):
    def __init__(self, application: str, metrics_file: str | None) -> None:
        self._application = application
        self._file = None if metrics_file is None else Path(metrics_file)
        self._rows = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        say("started", query=str(event.id), run=str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        figures = figures_of(json.loads(event.progress.json))
        self._rows += figures.rows
        say(
            "progress",
            batch=figures.batch,
            rows=figures.rows,
            rows_per_s=figures.rows_per_s,
            seconds=figures.seconds,
            lag=figures.total_lag,
            lags={str(tp): behind for tp, behind in figures.lag.items() if behind},
        )
        if self._file is not None:
            try:
                write_whole(self._file, metrics_text(self._application, figures, self._rows))
            except OSError as error:  # figures are not worth failing for
                say("the metrics file cannot be written", file=str(self._file), error=str(error))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        say("terminated", query=str(event.id), run=str(event.runId))
