"""`sluice tokens`: create, list, revoke. Through the service, or with `--root` in storage while no service runs."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.api.client import NewToken, TokenInfo
from sluice.api.commands.common import (
    SERVER,
    AsJson,
    CaFile,
    Server,
    Token,
    connected,
    print_json,
    print_rows,
    reported,
    usage,
)
from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import load_settings

if TYPE_CHECKING:
    from sluice.log_store.engine import LogStore
    from sluice.log_store.tokens import Token as StoredToken

app = typer.Typer(help="Access tokens of the service.", no_args_is_help=True)

Root = Annotated[
    str | None,
    typer.Option("--root", help="Work on this storage root; no service may run on it.", show_default=False),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", envvar="SLUICE_CONFIG", help="Settings file, with --root.", show_default=False),
]
_LIFE = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


@app.command()
def create(
    name: Annotated[str, typer.Option("--name", "-n", help="What it is for.", show_default=False)],
    grant: Annotated[
        list[str] | None,
        typer.Option(
            "--grant",
            "-g",
            help="admin, or OPERATION:topic|group:PATTERN with produce, consume or admin; may be repeated.",
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="After so long: 90s, 45m, 12h, 30d, 8w.", show_default=False)
    ] = None,
    root: Root = None,
    config: Config = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it, this once. The first one must grant admin."""
    life = None if expires is None else _milliseconds(expires)
    if root is None:
        with connected(server, token, ca_file) as client:
            made = client.tokens.create(name, grant or (), expires_in_ms=life)
    else:
        with _offline(root, config) as log:
            made = _issue(log, name, grant or [], life)
    if as_json:
        print_json(made)
        return
    typer.echo(made.token)
    typer.echo(f"sluice: token {made.token_id} was created; it cannot be shown again", err=True)


@app.command("list")
def list_tokens(
    root: Root = None,
    config: Config = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """List the tokens: what they are for and what they grant."""
    if root is None:
        with connected(server, token, ca_file) as client:
            found = client.tokens.list()
    else:
        with _offline(root, config) as log:
            now_ms = log.runtime.clock.wall_ms()
            found = [_info(stored, now_ms) for stored in log.catalog.tokens.all()]
    if as_json:
        print_json(found)
    else:
        print_rows([_row(info) for info in found], as_json=False)


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="Of the token, as listed.", show_default=False)],
    root: Root = None,
    config: Config = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token: the next request with it is refused."""
    if root is None:
        with connected(server, token, ca_file) as client:
            client.tokens.revoke(token_id)
    else:
        from sluice.log_store.tokens_admin import revoke as revoke_stored

        with _offline(root, config) as log:
            revoke_stored(log.catalog, token_id, now_ms=log.runtime.clock.wall_ms())
    if as_json:
        print_json({"revoked": token_id})
    else:
        typer.echo(f"revoked {token_id}")


# --- without a service ---------------------------------------------------------------------------


@contextmanager
def _offline(root: str, config: Path | None) -> Iterator[LogStore]:
    """Leads the cluster for the moment: while a service leads it, this is refused with its address."""
    from sluice.log_store.engine import LogStore  # heavy, and most uses go through a service

    try:
        settings = load_settings(config, os.environ)
    except ConfigurationError as error:
        usage(str(error))
    storage = dataclasses.replace(settings.storage, root=root)
    with reported(), LogStore.open(dataclasses.replace(settings, storage=storage)) as log:
        yield log


def _issue(log: LogStore, name: str, grants: list[str], life_ms: int | None) -> NewToken:
    from sluice.log_store.tokens_admin import issue

    now_ms = log.runtime.clock.wall_ms()
    issued = issue(log.catalog, name, grants, now_ms=now_ms, expires_in_ms=life_ms)
    return NewToken(**dataclasses.asdict(_info(issued.token, now_ms)), token=issued.text)


def _info(stored: StoredToken, now_ms: int) -> TokenInfo:
    return TokenInfo(
        token_id=stored.token_id,
        name=stored.name,
        grants=tuple(str(grant) for grant in stored.grants),
        created_ms=stored.created_ms,
        expires_ms=stored.expires_ms,
        expired=stored.expired(now_ms),
    )


# --- how it is shown -----------------------------------------------------------------------------


def _row(info: TokenInfo) -> dict[str, object]:
    expires = "never" if info.expires_ms is None else _time(info.expires_ms) + (" (expired)" if info.expired else "")
    return {
        "id": info.token_id,
        "name": info.name,
        "grants": " ".join(info.grants),
        "created": _time(info.created_ms),
        "expires": expires,
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _milliseconds(text: str) -> int:
    found = _LIFE.fullmatch(text)
    if found is None:
        usage(f"--expires {text!r}: must be a whole number followed by s, m, h, d or w, such as 30d")
    return int(found[1]) * _UNIT_MS[found[2]]
