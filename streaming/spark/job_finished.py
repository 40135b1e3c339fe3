"""How a job that stops tells the planner of its query, which is another process, what was finished last.

The planner of a member commits that before it leaves its group. Without it, the commit would have to wait for the next
trigger.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from sluice.log_store.errors import SluiceError
from sluice.streaming.spark.group_options import FINISHED_FILE
from sluice.streaming.spark.job_batches import planned_batch
from sluice.streaming.spark.job_log import say
from sluice.streaming.spark.job_options import JobOptions
from sluice.streaming.spark.job_progress import write_whole

TAKEN_WITHIN_S, LOOK_S = 20.0, 0.05


@contextmanager
def told_what_is_finished(options: JobOptions) -> Iterator[JobOptions]:
    """The options with a file for `note_finished`. Planner and driver are on one machine."""
    if options.group is None:
        yield options
        return
    with tempfile.TemporaryDirectory(prefix="sluice-finished-") as folder:
        file = Path(folder, "batch.json")
        yield replace(options, source={**options.source, FINISHED_FILE: str(file)})
        _wait_until_taken(file)


def _wait_until_taken(file: Path) -> None:
    """The query has ended, but not its planner: it removes the file when it has committed and left."""
    pause = threading.Event()
    for _ in range(int(TAKEN_WITHIN_S / LOOK_S)):
        if not file.exists():
            return
        pause.wait(LOOK_S)
    say("the last batch may not be committed", why="the planner of the query did not answer")


def note_finished(spark: SparkSession, options: JobOptions, checkpoint: str, number: int) -> None:
    """Batch `number` is in the target and in the checkpoint."""
    file = options.source.get(FINISHED_FILE)
    if file is None:
        return
    try:
        write_whole(Path(file), json.dumps(dict(planned_batch(spark, checkpoint, number).stamp)))
    except (SluiceError, Py4JError, OSError) as error:  # whoever takes over reads the batch again
        say("the last batch will not be committed", batch=number, error=str(error))
