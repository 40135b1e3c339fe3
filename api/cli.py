"""The `sluice` command. It grows with the service; what is not there yet says so."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sluice.api.doctor import examine
from sluice.conf.declare import keys_of
from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import GROUPS, Settings, load_settings_with_origins

app = typer.Typer(
    name="sluice",
    help="A streaming log on Delta tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@dataclasses.dataclass(frozen=True, slots=True)
class EffectiveSetting:
    key: str
    value: bool | int | str
    origin: str


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sluice {version('sluice')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def config(
    path: Annotated[
        Path | None, typer.Option("--config", envvar="SLUICE_CONFIG", help="Settings file (TOML).", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Print the effective settings and where each comes from."""
    settings, origins = _load(path)
    rows = [EffectiveSetting(key, value, origins[key]) for key, value in _flat(settings)]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        Console().print(_table(rows))


@app.command()
def doctor(
    path: Annotated[
        Path | None, typer.Option("--config", envvar="SLUICE_CONFIG", help="Settings file (TOML).", show_default=False)
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", help="Storage root; default: the setting storage.root.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Check this machine, the settings and the cluster's storage. Changes nothing; exit code 1 if something fails."""
    settings = _load(path)[0]
    if root is not None:
        settings = dataclasses.replace(settings, storage=dataclasses.replace(settings.storage, root=root))
    checks = examine(settings, os.environ)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        table = Table("check", "verdict", "what was found")
        for check in checks:
            table.add_row(check.name, check.verdict, check.text)
        Console().print(table)
    if any(check.verdict == "fail" for check in checks):
        raise typer.Exit(code=1)


@app.command()
def serve() -> None:
    """Start the HTTP service (not part of this version)."""
    typer.echo(
        "sluice: the HTTP service is not part of this version. "
        "What works today is the log store as a Python library (sluice.log_store); see README.md.",
        err=True,
    )
    raise typer.Exit(code=1)


def _load(path: Path | None) -> tuple[Settings, Mapping[str, str]]:
    try:
        return load_settings_with_origins(path, os.environ)
    except ConfigurationError as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(code=2) from error


def _flat(settings: Settings) -> Iterator[tuple[str, bool | int | str]]:
    for name, group in GROUPS.items():
        for attribute, key in keys_of(group):
            value = getattr(getattr(settings, name), attribute)
            yield key.name, "***" if key.secret and value else value


def _table(rows: list[EffectiveSetting]) -> Table:
    table = Table("key", "value", "from")
    for row in rows:
        shown = row.value if isinstance(row.value, str) else json.dumps(row.value)
        table.add_row(row.key, shown, row.origin)
    return table


def main() -> None:
    app()
