"""The options that all jobs take, and one run from a command line to an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import Settings, load_settings
from sluice.jobs.framework import Job, run_job
from sluice.jobs.output import Output
from sluice.jobs.registry import job_named
from sluice.jobs.work import DONE, NOTHING
from sluice.log_store.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, FAILED, USAGE = 0, 1, 2


def common_options() -> argparse.ArgumentParser:
    """Those that find a cluster: for `parents`."""
    env = os.environ
    parser = argparse.ArgumentParser(add_help=False)
    place = parser.add_argument_group("which cluster")
    place.add_argument("--config", type=Path, default=_path(env.get("SLUICE_CONFIG")), help="settings file (TOML)")
    place.add_argument("--root", help="storage root; default: the setting storage.root")
    place.add_argument(
        "--server", default=env.get("SLUICE_SERVER"), help="address of the leader; default: as its claim in the root"
    )
    place.add_argument("--token", default=env.get("SLUICE_TOKEN"), help="access token that grants admin")
    place.add_argument("--ca-file", default=env.get("SLUICE_CA_FILE"), help="PEM file of the authorities to trust")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of tables")
    parser.add_argument("-v", "--verbose", action="store_true", help="say on standard error what is going on")
    return parser


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def job_parser(job: Job, prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog, description=job.summary, parents=[common_options()])
    parser.add_argument("--dry-run", action="store_true", help="print the plan with a reason for each line and stop")
    if job.selects_partitions:
        chosen = parser.add_argument_group("which partitions")
        chosen.add_argument(
            "--topic", action="append", default=[], metavar="PATTERN", help="topic or pattern such as log-*; repeatable"
        )
        chosen.add_argument("--partition", action="append", default=[], type=int, metavar="N", help="repeatable")
    job.configure(parser)
    return parser


def run_command(job: Job, arguments: Sequence[str], prog: str) -> int:
    """Parse, run, print; the exit code."""
    options = job_parser(job, prog).parse_args(arguments)
    output = Output(as_json=options.as_json)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING, format="%(levelname)s %(message)s", force=True
    )
    try:
        settings = load_settings(options.config, os.environ)
    except ConfigurationError as error:
        output.trouble(str(error))
        return USAGE
    stop = stop_on_signals()
    try:
        report = run_job(
            job,
            options,
            settings,
            output=output,
            spark=spark_factory(settings, f"sluice {job.name}"),
            stopping=stop.is_set,
        )
    except SluiceError as error:
        output.trouble(f"{error.message} ({error.error})")
        return FAILED
    return OK if report.outcome in (DONE, NOTHING) else FAILED


def script(name: str) -> None:
    """`spark-submit jobs/<name>.py …`: the same as `sluice jobs run <name> …`."""
    sys.exit(run_command(job_named(name), sys.argv[1:], f"{name}.py"))


def stop_on_signals() -> threading.Event:
    """Set by SIGTERM and SIGINT. The second of them ends the process at once: a job may be killed at any point."""
    stop = threading.Event()

    def asked(number: int, _frame: object) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    return stop


def spark_factory(settings: Settings, app_name: str) -> Callable[[], SparkSession]:
    def start() -> SparkSession:
        # Heavy, and most runs that find nothing to do never need it.
        from sluice.conf.spark import is_submitted, spark_session, submitted_session

        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        submitted = is_submitted(os.environ)
        session = submitted_session(app_name) if submitted else spark_session(settings.spark, app_name)
        if threading.current_thread() is threading.main_thread():
            # PySpark puts its own handler for SIGINT in place of ours.
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return session

    return start
