"""The `sluice` command: settings, doctor and serve here, everything else in `commands`."""

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

from sluice.api.commands import (
    assign,
    backup,
    bench,
    consume,
    groups,
    jobs,
    produce,
    quotas,
    records,
    sql_view,
    storage,
    tokens,
    topics,
)
from sluice.api.commands.offline import NoServer, NoToken
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
app.add_typer(topics.app, name="topics")
app.add_typer(records.app, name="records")
app.add_typer(bench.app, name="bench")
app.add_typer(groups.app, name="groups")
app.add_typer(quotas.app, name="quotas")
app.add_typer(tokens.app, name="tokens")
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(records.offsets)
app.command()(storage.dump)
app.command("log-dirs")(storage.log_dirs)
app.command("assign")(assign.assign_partitions)
app.command("sql-view")(sql_view.sql_view)
app.command("jobs", context_settings=jobs.TAKES_ALL)(jobs.jobs)
app.command("backup", context_settings=jobs.TAKES_ALL)(backup.backup)
app.command("restore", context_settings=jobs.TAKES_ALL)(backup.restore)


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
    _server: NoServer = None,
    _token: NoToken = None,
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
    _server: NoServer = None,
    _token: NoToken = None,
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
def serve(
    path: Annotated[
        Path | None, typer.Option("--config", envvar="SLUICE_CONFIG", help="Settings file (TOML).", show_default=False)
    ] = None,
    root: Annotated[
        str | None, typer.Option("--root", help="Storage root; default: the setting storage.root.", show_default=False)
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Address; default: the setting server.host.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port, 0 for any free one; default: the setting server.port."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve on an address that others can reach, without tokens.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Lead at once, even if another process still does: it is fenced.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the line that says where it listens as JSON.")] = False,
) -> None:
    """Start the HTTP service. SIGTERM stops it in order."""
    from sluice.api.main import serve as run  # the server is a heavy import that no other command needs
    from sluice.log_store.errors import SluiceError

    settings = _load(path)[0]
    storage = settings.storage if root is None else dataclasses.replace(settings.storage, root=root)
    server = dataclasses.replace(
        settings.server,
        host=settings.server.host if host is None else host,
        port=settings.server.port if port is None else port,
    )
    try:
        chosen = dataclasses.replace(settings, storage=storage, server=server)
        run(chosen, insecure=insecure, force=force, as_json=as_json)
    except ConfigurationError as error:
        typer.echo(f"sluice: {error}", err=True)
        raise typer.Exit(code=2) from error
    except SluiceError as error:
        typer.echo(f"sluice: {error.error}: {error.message}", err=True)
        raise typer.Exit(code=1) from error


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
