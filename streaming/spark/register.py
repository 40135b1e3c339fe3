"""Makes `format("sluice")` known to a session where PySpark cannot find it by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Needed where Sluice came with `--py-files`, or is an editable install; harmless elsewhere.

    PySpark looks for sources in processes that do not have `--py-files`, and a source that it finds by itself does not
    bring them along to the executors. One that is registered does, but not to the processes beside the driver that plan
    a stream: they are told by their environment where the zip is.
    """
    from sluice.streaming.source import SluiceDataSource

    archive = Path(__file__).parents[3]
    if archive.is_file():
        environment = spark.sparkContext.environment
        known = environment.get("PYTHONPATH", "").split(os.pathsep)
        if str(archive) not in known:
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(archive), *known]))
    spark.dataSource.register(SluiceDataSource)
