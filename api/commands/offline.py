"""Commands that ask no service. They still take --server and --token, so that one set of options fits every command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

_HELP = "Taken as by every command; this one asks no service."
NoServer = Annotated[str | None, typer.Option("--server", help=_HELP, show_default=False)]
NoToken = Annotated[str | None, typer.Option("--token", help=_HELP, show_default=False)]


def without_service(arguments: Sequence[str]) -> list[str]:
    """The same for commands that hand their arguments on to a program of their own."""
    return list(_used(iter(arguments)))


def _used(arguments: Iterator[str]) -> Iterator[str]:
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name not in ("--server", "--token"):
            yield argument
        elif not equals:
            next(arguments, None)
