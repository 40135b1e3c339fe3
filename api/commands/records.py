"""`sluice offsets` and `sluice records delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluice.api.commands.common import (
    SERVER,
    AsJson,
    CaFile,
    Server,
    Token,
    connected,
    milliseconds,
    print_json,
    print_rows,
    usage,
)

app = typer.Typer(help="Delete records.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]


def offsets(
    topic: Topic,
    at: Annotated[
        str | None, typer.Option("--at", help="Also the first offset at this time or later.", show_default=False)
    ] = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show where the partitions of a topic begin and end."""
    moment = None if at is None else milliseconds(at, "--at")
    with connected(server, token, ca_file) as client:
        rows: list[dict[str, object]] = []
        for entry in client.offsets(topic):
            row: dict[str, object] = {
                "partition": entry.partition,
                "earliest": entry.earliest,
                "latest": entry.latest,
                "records": entry.latest - entry.earliest,
            }
            if moment is not None:
                row["at"] = client.offset_at(topic, entry.partition, moment)
            rows.append(row)
    print_rows(rows, as_json)


@app.callback()
def _records() -> None:
    """Delete records."""


@app.command()
def delete(
    topic: Topic,
    before: Annotated[
        list[str], typer.Option("--before", help="PARTITION:OFFSET; may be repeated.", show_default=False)
    ],
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete all records of a partition that lie before an offset."""
    bounds = dict(_bound(text) for text in before)
    with connected(server, token, ca_file) as client:
        client.delete_records(topic, bounds)
        left = [entry for entry in client.offsets(topic) if entry.partition in bounds]
    if as_json:
        print_json(left)
    else:
        for entry in left:
            typer.echo(f"{topic}-{entry.partition} begins at {entry.earliest}")


def _bound(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    try:
        return int(partition), int(offset)
    except ValueError:
        usage(f"--before {text!r}: must be PARTITION:OFFSET")
