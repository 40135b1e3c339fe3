"""Figures of a batch from the progress that Spark reports."""

from __future__ import annotations

import json
from pathlib import Path

from sluice.log_store.values import TopicPartition
from sluice.streaming.spark.job_batches import logged_offset
from sluice.streaming.spark.job_progress import figures_of, metrics_text, write_whole
from sluice.streaming.spark.offsets import SourceOffset

END = {"a": {"0": 9, "1": 12}, "@": {"from": {"a": {"0": 5, "1": 12}}, "ids": {"a": "id"}}}
PROGRESS = {
    "batchId": 7,
    "numInputRows": 4,
    "processedRowsPerSecond": 8.04,
    "durationMs": {"triggerExecution": 512},
    "sources": [{"endOffset": json.dumps(END), "latestOffset": {"a": {"0": 30, "1": 12}, "b": {"0": 3}}}],
}


def test_lag_is_what_lies_behind_the_end_of_the_partitions_that_were_read():
    figures = figures_of(PROGRESS)
    assert (figures.batch, figures.rows, figures.rows_per_s, figures.seconds) == (7, 4, 8.0, 0.512)
    assert figures.lag == {TopicPartition("a", 0): 21, TopicPartition("a", 1): 0}
    assert figures.total_lag == 21


def test_a_query_that_has_read_nothing_has_no_lag():
    figures = figures_of({"batchId": 0, "sources": [{"endOffset": None, "latestOffset": None}]})
    assert (figures.rows, figures.total_lag) == (0, 0)


def test_metrics_are_whole_and_escaped(tmp_path: Path):
    text = metrics_text('a"b', figures_of(PROGRESS), 100)
    assert 'sluice_job_rows_total{job="a\\"b"} 100\n' in text
    assert 'sluice_job_lag{job="a\\"b",topic="a",partition="0"} 21\n' in text
    write_whole(tmp_path / "m.prom", "old")
    write_whole(tmp_path / "m.prom", text)
    assert [path.read_text() for path in tmp_path.iterdir()] == [text]


def test_a_batch_is_read_back_from_the_log_of_spark():
    entry = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(END)}'
    assert logged_offset(entry) == SourceOffset.from_json(END)
