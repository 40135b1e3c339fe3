"""`sluice groups`: list, describe, delete, reset."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sluice.api.client import PartitionLag, PlannedOffset, SluiceClient
from sluice.api.commands.common import (
    SERVER,
    AsJson,
    CaFile,
    Server,
    Token,
    connected,
    print_json,
    print_rows,
    usage,
)
from sluice.log_store.errors import GroupIdNotFound

app = typer.Typer(help="Look at consumer groups, and move them.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="Name of the group.", show_default=False)]
Plans = dict[str, Sequence[PlannedOffset]]


@app.command("list")
def list_groups(server: Server = SERVER, token: Token = None, ca_file: CaFile = None, as_json: AsJson = False) -> None:
    """List the groups, their states and how far behind they are."""
    with connected(server, token, ca_file) as client:
        rows: list[dict[str, object]] = []
        for info in client.groups.list():
            try:
                lags = client.groups.lags(info.group)
            except GroupIdNotFound:
                continue  # deleted meanwhile
            rows.append(dataclasses.asdict(info) | {"lag": _total(lags), "lag_seconds": _oldest(lags)})
    print_rows(rows, as_json)


@app.command()
def describe(
    group: Group,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the members of a group, what each reads, and the lag in records and seconds."""
    with connected(server, token, ca_file) as client:
        info = client.groups.describe(group)
        members = client.groups.members(group)
        lags = sorted(client.groups.lags(group), key=lambda one: (one.topic, one.partition))
    rows = [dataclasses.asdict(one) for one in lags]
    if as_json:
        print_json(dataclasses.asdict(info) | {"members": members, "partitions": rows, "lag": _total(lags)})
        return
    chosen = f", {info.partition_assignor}" if info.partition_assignor else ""
    many = "member" if len(members) == 1 else "members"
    typer.echo(f"{info.group}: {info.state}{chosen}, {len(members)} {many}, lag {_total(lags)}")
    print_rows([_shown(row) for row in rows], as_json=False)
    busy = {one.member_id for one in lags}
    for member in members:
        if member.member_id not in busy:
            typer.echo(f"{member.member_id} reads nothing")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(help="Names of the groups.", show_default=False)],
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete groups that have no members, with their offsets."""
    with connected(server, token, ca_file) as client:
        for group in groups:
            client.groups.delete(group)
            if not as_json:
                typer.echo(f"deleted {group}")
    if as_json:
        print_json({"deleted": groups})


@app.command()
def reset(  # noqa: PLR0913, PLR0917  # the options of a command are its arguments
    groups: Annotated[list[str] | None, typer.Argument(help="Names of the groups.", show_default=False)] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups instead of some.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="A topic, or some of its partitions: t:0,2; may be repeated.", show_default=False),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All that the group has committed.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To what is committed, or else the end.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="To this offset.", show_default=False)] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By so many offsets, back if negative.", show_default=False)
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", help="To 2026-01-31T12:00:00.000, UTC or +hh:mm.", show_default=False)
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="Back by an ISO duration: P1DT2H.", show_default=False)
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", help="CSV of topic,partition,offset, as --export prints.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan. This is the default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Carry the plan out.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV without a header.")] = False,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of groups that have no members."""
    scenario = _scenario(
        to_earliest=to_earliest or None,
        to_latest=to_latest or None,
        to_current=to_current or None,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=None if from_file is None else _content(from_file),
    )
    if dry_run and execute:
        usage("--dry-run and --execute: give one of them")
    if export and as_json:
        usage("--export and --json: give one of them")
    if bool(groups) == all_groups:
        usage("name groups, or give --all-groups, not both")
    if from_file is None and bool(topic) == all_topics:
        usage("give --topic or --all-topics, not both")
    if from_file is not None and (topic or all_topics):
        usage("--from-file says which partitions: give neither --topic nor --all-topics")
    with connected(server, token, ca_file) as client:
        plans: Plans = {
            group: client.groups.reset(group, scenario, topics=topic or (), all_topics=all_topics, execute=execute)
            for group in _groups(client, groups)
        }
    _print(plans, as_json=as_json, export=export, executed=execute, several=all_groups or len(groups or ()) > 1)


def _groups(client: SluiceClient, given: list[str] | None) -> list[str]:
    return given or [info.group for info in client.groups.list()]


def _scenario(**given: object) -> dict[str, object]:
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        usage(f"give exactly one of {names}")
    return chosen


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        usage(f"--from-file {path}: {getattr(error, 'strerror', None) or 'is no UTF-8 text'}")


def _print(plans: Plans, *, as_json: bool, export: bool, executed: bool, several: bool) -> None:
    if export:
        typer.echo(_csv(plans, several), nl=False)
        return
    rows = [{"group": group} | dataclasses.asdict(row) for group, plan in plans.items() for row in plan]
    if as_json:
        print_json({"executed": executed, "plan": rows})
        return
    print_rows(rows, as_json=False)
    if rows:
        typer.echo("done" if executed else "nothing was changed: --execute carries it out")


def _csv(plans: Plans, several: bool) -> str:
    """Long names may hold anything, so they are quoted where they must be."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, plan in plans.items():
        for row in plan:
            fields = [row.topic, row.partition, row.new_offset]
            writer.writerow([group, *fields] if several else fields)
    return out.getvalue()


def _total(lags: Sequence[PartitionLag]) -> int:
    return sum(one.lag or 0 for one in lags)


def _oldest(lags: Sequence[PartitionLag]) -> float | None:
    known = [one.lag_seconds for one in lags if one.lag_seconds is not None]
    return max(known, default=None)


def _shown(row: dict[str, object]) -> dict[str, object]:
    """For people: a dash for what there is not, and only the columns that say something."""
    names = ("topic", "partition", "current_offset", "log_end_offset", "lag", "lag_seconds", "member_id", "client_id")
    return {name: "-" if row[name] is None else row[name] for name in names}
