"""Shared by all tests: a clean environment, fast folders first, one Spark session."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from _pytest.logging import LogCaptureHandler

from tests import counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.s3_server import S3Server

_TESTS = Path(__file__).parent
_LOGGERS = (logging.getLogger(), logging.getLogger("sluice"))
_FULL_TIMEOUT_S = 1_200
_PROPERTY_TIMEOUT_S = 600
"""Hypothesis makes an example that fails smaller for up to 300 s: cut off there, it would look like a hanging test."""
_FOLDER_ORDER = (
    "unit",
    "property",
    "contract",
    "http",
    "http_client",
    "examples",
    "fault",
    "disk",
    "s3",
    "lab",
    "console",
    "spark",
)

# A developer's own settings must not decide a test. Where this machine keeps the jars is not a setting of ours.
for _name in [name for name in os.environ if name.startswith("SLUICE_")]:
    if not _name.startswith("SLUICE_TEST_") and _name != "SLUICE_JARS_DIR":
        del os.environ[_name]

hypothesis.settings.register_profile(
    "sluice",
    deadline=None,
    max_examples=counts.HYPOTHESIS_EXAMPLES,
    stateful_step_count=counts.STATEFUL_STEPS,
    # The same examples in every run of `make test`; `make test-full` looks for new ones.
    derandomize=not counts.FULL,
)
hypothesis.settings.load_profile("sluice")


def _folder(item: pytest.Item) -> str:
    parts = item.path.relative_to(_TESTS).parts if item.path.is_relative_to(_TESTS) else ()
    return parts[0] if len(parts) > 1 else ""


def _rank(item: pytest.Item) -> int:
    folder = _folder(item)
    return _FOLDER_ORDER.index(folder) if folder in _FOLDER_ORDER else len(_FOLDER_ORDER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (folder := _folder(item)) in ("spark", "fault", "s3"):
            item.add_marker(folder)
        if item.get_closest_marker("full") and not counts.FULL:
            item.add_marker(pytest.mark.skip(reason="only with SLUICE_TEST_FULL=1"))
        if item.get_closest_marker("timeout") is None and (counts.FULL or folder == "property"):
            item.add_marker(pytest.mark.timeout(_FULL_TIMEOUT_S if counts.FULL else _PROPERTY_TIMEOUT_S))
    items.sort(key=_rank)


@pytest.fixture(autouse=True)
def _process_as_it_was() -> Iterator[None]:
    """A command that runs in this process takes over its log and its signals, and writes to streams of its own test."""
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    loggers = {logger: (logger.level, logger.propagate, *logger.handlers) for logger in _LOGGERS}
    yield
    for number, handler in signals.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    for logger, (level, propagate, *known) in loggers.items():
        logger.setLevel(level)
        logger.propagate = propagate
        for new in set(logger.handlers).difference(known):
            if not isinstance(new, LogCaptureHandler):  # pytest's own, for each phase of a test
                logger.removeHandler(new)


@pytest.fixture
def tmp_root(tmp_path: Path) -> Path:
    """An empty folder to use as a storage root."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The one S3 server of the test run: a process of its own on loopback."""
    from tests.support.s3_server import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test run, with Delta."""
    from sluice.conf.settings import SparkSettings
    from sluice.conf.spark import spark_session
    from tests.support.quick_jvm import java_options

    # Nothing of the session may land in the repository.
    work = tmp_path_factory.mktemp("spark")
    extra = {
        "spark.driver.extraJavaOptions": java_options(),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.local.dir": str(work / "local"),
    }
    session = spark_session(SparkSettings(driver_memory="1g"), "sluice-tests", extra)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
