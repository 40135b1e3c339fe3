"""The options of the consumer job: read from the command line, checked together, refused by name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from sluice.log_store.errors import InvalidConfig, InvalidRequest
from sluice.streaming.spark.job_source import check_source, with_extra

PROGRAM = "consumer.py"
DEFAULT_INTERVAL = "5 seconds"


class Kind(StrEnum):
    DELTA = "delta"
    PARQUET = "parquet"
    CONSOLE = "console"
    FUNCTION = "function"


@dataclass(frozen=True, slots=True)
class Target:
    """Where records go: a folder for delta and parquet, `module:function` for a function."""

    kind: Kind
    place: str = ""

    def __str__(self) -> str:
        if self.kind in (Kind.CONSOLE, Kind.FUNCTION):
            return self.place or str(self.kind)
        return f"{self.kind}:{self.place}"


@dataclass(frozen=True, slots=True)
class Trigger:
    """What `writeStream.trigger` is told."""

    name: str
    interval: str = ""

    @property
    def arguments(self) -> dict[str, str | bool]:
        return {self.name: self.interval if self.name == "processingTime" else True}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    target: Target
    source: Mapping[str, str] = field(hash=False)
    """Options of the Spark source, as it names them."""
    group: str | None = None
    checkpoint: str | None = None
    """None: a temporary one of this run, where progress is kept elsewhere or not at all."""
    trigger: Trigger = Trigger("processingTime", DEFAULT_INTERVAL)
    server: str | None = None
    path: str | None = None
    token: str | None = None
    ca_file: str | None = None
    each: str | None = None
    """`module:function`, called with every record on the executors before the target."""
    json_schema: str | None = None
    dead_letter: str | None = None
    name: str | None = None
    metrics_file: str | None = None
    master: str | None = None

    @property
    def application(self) -> str:
        return self.name or f"sluice-{self.group or 'consumer'}"


class UsageError(InvalidRequest):
    """Wrong options: exit code 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


# --- the command line -----------------------------------------------------------------------------


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> JobOptions:
    """UsageError names the option that is wrong, and the rule."""
    given = _parser().parse_args(arguments)
    server = given.server or (None if given.path else environment.get("SLUICE_SERVER"))
    target, trigger = parse_target(given.to), parse_trigger(given.trigger)
    _check_together(given, target, server)
    token = given.token or environment.get("SLUICE_TOKEN") or None
    ca_file = given.ca_file or environment.get("SLUICE_CA_FILE") or None
    named = {
        "server": server,
        "path": given.path,
        "token": token if server else None,
        "ca.file": ca_file if server else None,
        "subscribe": given.topics,
        "subscribePattern": given.topics_pattern,
        "group.id": given.group,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": given.max_offsets_per_trigger,
    }
    try:
        source = with_extra({name: str(value) for name, value in named.items() if value is not None}, given.option)
        check_source(source, given.dead_letter, environment)
    except InvalidConfig as error:
        raise UsageError(error.message) from None
    return JobOptions(
        target=target,
        source=source,
        group=given.group,
        checkpoint=given.checkpoint,
        trigger=trigger,
        server=server,
        path=given.path,
        token=token,
        ca_file=ca_file,
        each=None if given.each is None else _function_name("--each", given.each),
        json_schema=given.json_schema,
        dead_letter=given.dead_letter,
        name=given.name,
        metrics_file=given.metrics_file,
        master=given.master,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Reads topics with Spark, alone or as a member of a consumer group, and writes them somewhere.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--topics", metavar="T[,U]", help="topics to read, by name")
    add("--topics-pattern", metavar="REGEX", help="instead: all topics whose whole name matches")
    add("--to", required=True, metavar="TARGET", help="delta:PATH, parquet:PATH, console or MODULE:FUNCTION")
    add("--group", help="be a member of this consumer group; needs --server")
    add("--server", metavar="URL", help="address of the service (default: SLUICE_SERVER)")
    add("--path", metavar="ROOT", help="storage root; alone it needs no service")
    add("--token", help="access token (default: SLUICE_TOKEN, which other users of the machine cannot see)")
    add("--ca-file", metavar="PEM", help="authorities to trust for https (default: SLUICE_CA_FILE)")
    add("--checkpoint", metavar="DIR", help="progress of this job; one for each job, on storage that outlives it")
    add(
        "--trigger",
        default=f"processingTime={DEFAULT_INTERVAL}",
        metavar="WHEN",
        help="processingTime[=INTERVAL], availableNow or once, which is the same (default: %(default)s)",
    )
    add("--starting-offsets", metavar="WHERE", help="of a first run: earliest, latest or JSON")
    add("--max-offsets-per-trigger", type=_positive, metavar="N", help="records of one batch at most")
    add("--each", metavar="MODULE:FUNCTION", help="called with every record; may change, leave out or reject it")
    add("--json-schema", metavar="DDL", help="fields of JSON values that become columns: 'id LONG, item STRING'")
    add("--dead-letter", metavar="TOPIC", help="where rejected records go; needs --server")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="further options of the source; repeatable")
    add("--metrics-file", metavar="FILE", help="keep rows, rates and lag in this file, in Prometheus' text format")
    add("--name", help="of the application, as Spark shows it")
    add("--master", metavar="URL", help="outside spark-submit: Spark's master (default: local[*])")
    return parser


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return int(text)


# --- single options -------------------------------------------------------------------------------


def parse_target(text: str) -> Target:
    if text == Kind.CONSOLE:
        return Target(Kind.CONSOLE)
    scheme, colon, place = text.partition(":")
    if scheme in (Kind.DELTA, Kind.PARQUET) and colon:
        if not place:
            raise UsageError(f"--to {text}: the path is missing")
        if not place.startswith("/") and ":/" not in place:
            raise UsageError(f"--to {text}: the path must be absolute, or a URL")
        return Target(Kind(scheme), place)
    return Target(Kind.FUNCTION, _function_name("--to", text))


def _function_name(option: str, text: str) -> str:
    module, colon, function = text.partition(":")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        others = "delta:PATH, parquet:PATH, console or " if option == "--to" else ""
        raise UsageError(f"{option} {text!r}: must be {others}MODULE:FUNCTION")
    return text


_SHORT_INTERVAL = re.compile(r"(\d+)\s*(ms|s|m|h)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


def parse_trigger(text: str) -> Trigger:
    name, equals, interval = text.partition("=")
    if name in ("availableNow", "once") and not equals:
        # Spark's own Once looks at nothing after its only batch, so that a group would never hear of it.
        return Trigger("availableNow")
    if name != "processingTime" or (equals and not interval.strip()):
        raise UsageError(f"--trigger {text!r}: must be processingTime[=INTERVAL], availableNow or once")
    if not equals:
        return Trigger(name, "0 seconds")
    if short := _SHORT_INTERVAL.fullmatch(interval.strip()):
        return Trigger(name, f"{short[1]} {_UNITS[short[2]]}")
    if not re.fullmatch(r"\d+ (millisecond|second|minute|hour)s?", interval.strip()):
        raise UsageError(f"--trigger {text!r}: the interval must be such as '10 seconds' or 500ms")
    return Trigger(name, interval.strip())


def _check_together(given: argparse.Namespace, target: Target, server: str | None) -> None:
    assigned = any(pair.lower().startswith("assign=") for pair in given.option)
    if sum((given.topics is not None, given.topics_pattern is not None, assigned)) != 1:
        raise UsageError("exactly one of --topics, --topics-pattern and --option assign=… must be given")
    if server is None and given.path is None:
        raise UsageError("--server or --path must be given: where the topics are")
    if given.group is not None and server is None:
        raise UsageError("--group: needs --server, which coordinates the group")
    if given.group == "":
        raise UsageError("--group: must not be empty")
    if given.dead_letter is not None and server is None:
        raise UsageError("--dead-letter: needs --server, which appends them")
    if given.dead_letter is not None and given.each is None and given.json_schema is None:
        raise UsageError("--dead-letter: nothing can be rejected without --each or --json-schema")
    if given.checkpoint is None and given.group is None and target.kind is not Kind.CONSOLE:
        raise UsageError("--checkpoint: must be given, or every run would begin anew (only a --group keeps progress)")
