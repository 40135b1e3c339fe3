"""`sluice consume`: a topic to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from sluice.api.client import At, Last, Reader
from sluice.api.client_values import Start
from sluice.api.commands import consume_in_group
from sluice.api.commands.common import SERVER, AsJson, CaFile, Server, Token, connected, milliseconds, usage
from sluice.api.commands.printing import Printer, envelope, formatted


def consume(  # noqa: PLR0913, PLR0917  # the options of a command are its arguments
    topic: Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)],
    offset: Annotated[
        str, typer.Option("-o", "--offset", help="beginning, end, an offset, -N (the last N) or s@TIME.")
    ] = "beginning",
    count: Annotated[
        int | None, typer.Option("-c", "--count", min=1, help="Stop after this many records.", show_default=False)
    ] = None,
    stop_at_end: Annotated[
        bool, typer.Option("-e", "--exit", help="Stop at what is the end now, instead of waiting for more.")
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            "-f", "--format", help="Such as '%t %p %o %k %s %T %h\\n'; %K and %S are lengths.", show_default=False
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("-K", "--key-separator", help="Print key, separator, value.", show_default=False)
    ] = None,
    null: Annotated[bool, typer.Option("-Z", "--null", help="Print NULL for a tombstone or a missing key.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", min=0, help="Only this one; may be repeated.", show_default=False),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Read as a member of this group, and commit.", show_default=False),
    ] = None,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the records of a topic and wait for more, until -c, -e or Ctrl-C ends it."""
    printer = _printer(template, key_separator, null, as_json)
    start = start_of(offset)
    if group is not None:
        consume_in_group.check(start, partition)
        with connected(server, token, ca_file) as client, _ended_by_the_other_side():
            wanted = consume_in_group.Wanted(topic, group, start, count, stop_at_end)
            consume_in_group.print_all(client, wanted, printer)
        return
    with connected(server, token, ca_file) as client:
        reader = client.reader(
            topic, start=start, partitions=tuple(partition) if partition else None, stop_at_end=stop_at_end
        )
        with reader, _ended_by_the_other_side():
            _print_all(reader, count, printer)


def _print_all(reader: Reader, count: int | None, printer: Printer) -> None:
    """Whatever one fetch brought is written and flushed as one piece."""
    out, left = sys.stdout.buffer, count
    for fetched in reader.batches():
        records = fetched.records[:left]
        out.write(b"".join(map(printer, records)))
        out.flush()
        if left is not None:
            left -= len(records)
            if left == 0:
                return


@contextmanager
def _ended_by_the_other_side() -> Iterator[None]:
    """Ctrl-C and `| head` are how a consumer ends; neither is an error."""
    try:
        yield
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at exit


def _printer(template: str | None, key_separator: str | None, null: bool, as_json: bool) -> Printer:
    if as_json:
        return envelope
    if template is None:
        template = "%s\\n" if key_separator is None else f"%k{key_separator.replace('%', '%%')}%s\\n"
    try:
        return formatted(template, b"NULL" if null else b"")
    except ValueError as error:
        usage(f"--format: {error}")


def start_of(text: str) -> Start:
    if text in ("beginning", "earliest"):
        return "earliest"
    if text in ("end", "latest"):
        return "latest"
    if text.startswith("s@"):
        return At(timestamp_ms=milliseconds(text[2:], "--offset"))
    try:
        number = int(text)
    except ValueError:
        usage(f"--offset {text!r}: must be beginning, end, an offset, -N or s@TIME")
    return Last(count=-number) if number < 0 else number
