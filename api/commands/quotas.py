"""`sluice quotas`: list, set, remove. They hold at once and survive restarts."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

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

app = typer.Typer(help="Rates that users, clients and topics are held to.", no_args_is_help=True)
PATH = "/v3/clusters/-/quotas"
DEFAULT = "*"

User = Annotated[
    str | None, typer.Option("--user", help="Name of a token, or * for every other one.", show_default=False)
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", help="Sluice-Client-Id, or * for every other one.", show_default=False)
]
Topic = Annotated[str | None, typer.Option("--topic", help="A topic, or * for every other one.", show_default=False)]


@app.command("list")
def list_quotas(
    user: User = None,
    client_id: ClientId = None,
    topic: Topic = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the quotas, or those of one user, client or topic."""
    wanted = {name: "" if value is None else value for name, value in _entity(user, client_id, topic).items()}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in wanted.items())
    with connected(server, token, ca_file) as client:
        answer = client.connection.json("GET", f"{PATH}?{query}" if query else PATH, repeatable=True)
    _print(answer, as_json)


@app.command("set")
def set_quotas(
    values: Annotated[
        list[str],
        typer.Argument(
            help="NAME=RATE: producer_byte_rate, consumer_byte_rate, controller_mutation_rate.", show_default=False
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    topic: Topic = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Set rates per second."""
    rates = {name: _rate(name, text) for name, text in assignments(values, "RATE").items()}
    _alter(_named(user, client_id, topic), rates, server, token, ca_file, as_json)


@app.command()
def remove(
    names: Annotated[list[str] | None, typer.Argument(help="Only these rates.", show_default=False)] = None,
    user: User = None,
    client_id: ClientId = None,
    topic: Topic = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove rates; without names all of the user, client or topic."""
    entity = _named(user, client_id, topic)
    every = ("producer_byte_rate", "consumer_byte_rate", *(() if topic else ("controller_mutation_rate",)))
    _alter(entity, dict.fromkeys(names or every), server, token, ca_file, as_json)


def _alter(
    entity: dict[str, str | None],
    values: dict[str, Any],
    server: str,
    token: str | None,
    ca_file: str | None,
    as_json: bool,
) -> None:
    body = {"entries": [{"entity": entity, "values": values}]}
    with connected(server, token, ca_file) as client:
        # Setting the same twice is setting it once.
        answer = client.connection.json("POST", PATH, repeatable=True, body=body)
    _print(answer, as_json)


def _entity(user: str | None, client_id: str | None, topic: str | None) -> dict[str, str | None]:
    given = {"user": user, "client_id": client_id, "topic": topic}
    return {name: None if value == DEFAULT else value for name, value in given.items() if value is not None}


def _named(user: str | None, client_id: str | None, topic: str | None) -> dict[str, str | None]:
    entity = _entity(user, client_id, topic)
    if not entity:
        usage("for whom? give --user, --client-id, both, or --topic")
    return entity


def _rate(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        usage(f"{name}={text}: must be a number")


def _print(answer: dict[str, Any], as_json: bool) -> None:
    found = [{"entity": one["entity"], "values": one["values"]} for one in answer["data"]]
    if as_json:
        print_json(found)
        return
    rows = [
        {
            **{part: _shown(one["entity"], part) for part in ("user", "client_id", "topic")},
            **{kind: one["values"].get(kind) for kind in ("producer_byte_rate", "consumer_byte_rate")},
            "controller_mutation_rate": one["values"].get("controller_mutation_rate"),
        }
        for one in found
    ]
    print_rows(rows, as_json=False)


def _shown(entity: dict[str, str | None], part: str) -> str | None:
    return (entity[part] or DEFAULT) if part in entity else None
