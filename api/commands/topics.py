"""`sluice topics`: create, list, describe, alter, delete."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from sluice.api.commands.common import (
    SERVER,
    AsJson,
    CaFile,
    Server,
    Token,
    assignments,
    connected,
    print_json,
    print_rows,
    usage,
)

app = typer.Typer(help="Create, look at and change topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]
Config = Annotated[
    list[str] | None, typer.Option("--config", "-c", help="NAME=VALUE; may be repeated.", show_default=False)
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Default: num.partitions of the server.")
    ] = None,
    config: Config = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    configs = assignments(config or (), "--config")
    with connected(server, token, ca_file) as client:
        info = client.topics.create(name, partitions, configs)
    if as_json:
        print_json(info)
    else:
        typer.echo(f"created {info.name} with {info.partitions} partition{'s' if info.partitions != 1 else ''}")


@app.command("list")
def list_topics(server: Server = SERVER, token: Token = None, ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """List the topics."""
    with connected(server, token, ca_file) as client:
        topics = client.topics.list()
    print_rows([dataclasses.asdict(topic) for topic in topics], as_json)


@app.command()
def describe(
    name: Name,
    every: Annotated[bool, typer.Option("--all", help="Also the configs that were never set.")] = False,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show partitions, offsets and configs of a topic."""
    with connected(server, token, ca_file) as client:
        info, offsets = client.topics.describe(name), client.offsets(name)
        configs = [config for config in client.topics.configs(name) if every or not config.is_default]
    if as_json:
        print_json({**dataclasses.asdict(info), "offsets": offsets, "configs": configs})
        return
    typer.echo(f"{info.name}: {info.partitions} partitions, replication factor {info.replication_factor}")
    print_rows([dataclasses.asdict(entry) for entry in offsets], as_json=False)
    if configs:
        print_rows([dataclasses.asdict(config) for config in configs], as_json=False)


@app.command()
def alter(
    name: Name,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--delete-config", "-d", help="Back to the default; may be repeated.", show_default=False),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Grow to this many.", show_default=False)
    ] = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Change configs, or grow the number of partitions."""
    changes: dict[str, str | None] = {**assignments(config or (), "--config"), **dict.fromkeys(unset or ())}
    if not changes and partitions is None:
        usage("nothing to change: give --config, --delete-config or --partitions")
    with connected(server, token, ca_file) as client:
        if changes:
            client.topics.alter(name, changes)
        if partitions is not None:
            client.topics.grow(name, partitions)
        info = client.topics.describe(name)
    if as_json:
        print_json(info)
    else:
        typer.echo(f"altered {name}")


@app.command()
def delete(
    name: Name, server: Server = SERVER, token: Token = None, ca_file: CaFile = None, as_json: AsJson = False
) -> None:
    """Delete a topic and everything in it."""
    with connected(server, token, ca_file) as client:
        client.topics.delete(name)
    if as_json:
        print_json({"deleted": name})
    else:
        typer.echo(f"deleted {name}")
