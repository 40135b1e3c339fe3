"""What the commands share: the options that all take, errors as one line, tables and JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from sluice.api.client import DEFAULT_SERVER, RetryPolicy, SluiceClient
from sluice.log_store.errors import SluiceError

Server = Annotated[str, typer.Option("--server", envvar="SLUICE_SERVER", help="Address of the service.")]
Token = Annotated[str | None, typer.Option("--token", envvar="SLUICE_TOKEN", help="Access token.", show_default=False)]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca-file", envvar="SLUICE_CA_FILE", help="PEM file of the authorities to trust for https.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SERVER = DEFAULT_SERVER
WIDE = 240
"""Columns of a table that goes to a file or a pipe, where nothing should be cut."""

# Somebody waits at the other end: an overloaded server gets a while, a wrong address is told at once.
RETRY = RetryPolicy(budget_s=15.0, refused_connection=False)


def fail(message: str) -> NoReturn:
    typer.echo(f"sluice: {' '.join(message.split())}", err=True)
    raise typer.Exit(code=1)


def usage(message: str) -> NoReturn:
    typer.echo(f"sluice: {message}", err=True)
    raise typer.Exit(code=2)


@contextmanager
def reported() -> Iterator[None]:
    """Errors on purpose become one line on stderr and exit code 1; anything else is a bug and stays a traceback."""
    try:
        yield
    except SluiceError as error:
        fail(f"{error.message} ({error.error})" if error.error != SluiceError.error else error.message)


@contextmanager
def connected(server: str, token: str | None, ca_file: str | None = None) -> Iterator[SluiceClient]:
    if not server.startswith(("http://", "https://")):
        usage(f"--server {server!r}: must begin with http:// or https://")
    with reported(), SluiceClient(server, token, ca_file=ca_file, retry=RETRY) as client:
        yield client


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def print_rows(rows: Sequence[Mapping[str, object]], as_json: bool, title: str | None = None) -> None:
    """The same rows as JSON for programs and as a table for people."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        typer.echo("nothing")
        return
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


def assignments(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`name=value` of a repeated option."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            usage(f"{option} {pair!r}: must be NAME=VALUE")
        found[name] = value
    return found


def milliseconds(text: str, option: str) -> int:
    """Milliseconds since 1970, or an RFC 3339 date; without a zone it is UTC."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        usage(f"{option} {text!r}: must be milliseconds since 1970 or a date such as 2026-01-31T12:00:00Z")
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
