"""Starts Spark sessions that read and write Delta. The only place with spark.* keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.conf.jars import ensure_jars, jars_folder, resolve_with_ivy
from sluice.conf.settings import SparkSettings

# Compiles quickly rather than well: for sessions that live for seconds, such as those of the tests.
QUICK_START = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}

# What reading and writing our tables needs, whoever chose master and memory.
DELTA_OPTIONS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default of 50 tasks per table state costs seconds on tables as small as a partition's log.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def delta_jars(settings: SparkSettings) -> list[Path]:
    """Delta's two jars, fetched at first use. MissingJarsError says what to put where if that fails."""
    return ensure_jars(jars_folder(settings.jars_dir, os.environ), resolve_with_ivy)


def spark_session(settings: SparkSettings, app_name: str, extra: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process. If one is running already Spark returns that, whatever was asked here."""
    jars = delta_jars(settings)
    _prepare_environment(settings.master, os.environ)
    builder = SparkSession.Builder().master(settings.master).appName(app_name)
    for key, value in (session_options(settings, jars) | dict(extra or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def submitted_session(app_name: str) -> SparkSession:
    """The session of a program that spark-submit started: master, memory and jars are what its command line says."""
    builder = SparkSession.Builder().appName(app_name)
    for key, value in DELTA_OPTIONS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_submitted(env: Mapping[str, str]) -> bool:
    """Whether this process was started by spark-submit, which has the JVM already."""
    return "PYSPARK_GATEWAY_PORT" in env


def session_options(settings: SparkSettings, jars: list[Path]) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        **DELTA_OPTIONS,
    }


def _prepare_environment(master: str, env: MutableMapping[str, str]) -> None:
    """Workers must run the interpreter that runs us. A cluster's own choice is left alone."""
    if master.startswith("local"):
        env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = sys.executable
        env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        env.setdefault("PYSPARK_PYTHON", sys.executable)
        env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
