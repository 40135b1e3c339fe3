"""`sluice sql-view`: the statement that makes a topic one relation for anything that reads Delta with Spark SQL."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from sluice.api.commands.common import SERVER, AsJson, CaFile, Server, Token, print_json, reported, usage
from sluice.streaming.spark.views import find_tables, view_sql


def sql_view(
    topic: Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)],
    name: Annotated[
        str | None, typer.Option("--name", help="Of the view, such as lake.orders; default: the topic's name.")
    ] = None,
    temporary: Annotated[bool, typer.Option("--temporary", help="A view of the session only.")] = False,
    root: Annotated[
        str | None, typer.Option("--root", help="Look at this storage root instead of asking.", show_default=False)
    ] = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the CREATE VIEW statement of a whole topic, for spark-sql."""
    if root is None and not server.startswith(("http://", "https://")):
        usage(f"--server {server!r}: must begin with http:// or https://")
    if name is not None and not all(name.split(".")):
        usage(f"--name {name!r}: must be a name, or names with dots between them")
    with reported():
        found = find_tables(server, topic, token, ca_file) if root is None else find_tables(root, topic)
    statement = view_sql(found, name, temporary=temporary)
    if as_json:
        print_json({**dataclasses.asdict(found), "sql": statement})
        return
    typer.echo(f"{statement};")
    if found.unwritten:
        numbers = ", ".join(map(str, found.unwritten))
        typer.echo(f"sluice: partition {numbers} has no table yet: make the view again once it has records", err=True)
