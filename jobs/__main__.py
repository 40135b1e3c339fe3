"""`python -m sluice.jobs run|schedule|list|status`: what `sluice jobs …` runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import load_settings
from sluice.jobs.command_line import FAILED, OK, USAGE, common_options, run_command
from sluice.jobs.output import Output
from sluice.jobs.registry import MODULES, job_named
from sluice.jobs.status import status_rows
from sluice.log_store.errors import InvalidRequest, SluiceError
from sluice.log_store.store import open_store

PROG = "sluice jobs"


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"] and len(given) > 1 and not given[1].startswith("-"):
        # The rest belongs to the job, which has options of its own.
        try:
            job = job_named(given[1])
        except InvalidRequest as error:
            Output().trouble(error.message)
            return USAGE
        return run_command(job, given[2:], f"{PROG} run {given[1]}")
    options = _parser().parse_args(given)
    output = Output(as_json=options.as_json)
    try:
        return int(options.work(options, output))
    except ConfigurationError as error:
        output.trouble(str(error))
        return USAGE
    except SluiceError as error:
        output.trouble(f"{error.message} ({error.error})")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROG, description="Maintenance of a cluster.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a job now: run NAME [options]; run NAME --help shows its options")
    run.add_argument("name", choices=sorted(MODULES))
    listing = commands.add_parser("list", help="list the jobs")
    listing.add_argument("--json", action="store_true", dest="as_json", help="print JSON instead of a table")
    listing.set_defaults(work=_list)
    status = commands.add_parser(
        "status", help="show when each job ran last and what it did", parents=[common_options()]
    )
    status.add_argument("name", nargs="?", choices=sorted(MODULES), help="the runs of one job, newest first")
    status.set_defaults(work=_status)
    schedule = commands.add_parser(
        "schedule", help="run the jobs on their schedules until SIGTERM", parents=[common_options()]
    )
    schedule.add_argument("--metrics-port", type=int, help="serve metrics for Prometheus here; default: the setting")
    schedule.set_defaults(work=_schedule)
    return parser


def _list(_options: argparse.Namespace, output: Output) -> int:
    output.table([{"job": name, "what it does": job_named(name).summary} for name in sorted(MODULES)])
    return OK


def _status(options: argparse.Namespace, output: Output) -> int:
    settings = load_settings(options.config, os.environ)
    storage = settings.storage if options.root is None else replace(settings.storage, root=options.root)
    if "://" not in storage.root and not os.path.isdir(storage.root):
        raise InvalidRequest(f"{storage.root} does not exist", field="root")
    store = open_store(storage.root, fsync=storage.fsync, storage_options=storage.options)
    output.table(status_rows(store, options.name, full=output.as_json))
    return OK


def _schedule(options: argparse.Namespace, _output: Output) -> int:
    from sluice.jobs.scheduler import schedule_command  # a server and threads that no other command needs

    return schedule_command(options)


if __name__ == "__main__":
    sys.exit(main())
