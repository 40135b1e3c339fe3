"""`sluice produce`: standard input to a topic, a record per line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sluice.api.client import Delivery, Producer, ProducerOptions, SluiceClient
from sluice.api.client_values import Headers
from sluice.api.commands.common import SERVER, AsJson, CaFile, Server, Token, connected, fail, print_json, usage

CHUNK = 1 << 16
SHOW_EVERY = 500
"""Records between two moves of the progress line, which costs more than a record."""
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0"}


class AcksChoice(StrEnum):
    NONE, LEADER, ALL = "0", "1", "all"


class CompressionChoice(StrEnum):
    NONE, GZIP, ZSTD = "none", "gzip", "zstd"


class FormatChoice(StrEnum):
    RAW, JSON = "raw", "json"


class Tally:
    """Counts what came back; called by the producer's thread."""

    def __init__(self) -> None:
        self.delivered: Counter[int] = Counter()
        self.failed = 0
        self.error: BaseException | None = None

    def __call__(self, delivery: Delivery | None, error: BaseException | None) -> None:
        if delivery is not None:
            self.delivered[delivery.partition] += 1
        else:
            self.failed += 1
            self.error = self.error or error


def produce(  # noqa: PLR0913, PLR0917 - each is an option of the command
    topic: Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)],
    key_separator: Annotated[
        str | None, typer.Option("-K", "--key-separator", help="Splits a line into key and value.", show_default=False)
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("-H", "--header", help="NAME=VALUE for every record; may be repeated.", show_default=False),
    ] = None,
    null: Annotated[
        bool, typer.Option("-Z", "--null", help="An empty value is a tombstone, an empty key none.")
    ] = False,
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, help="Send everything there.", show_default=False)
    ] = None,
    acks: Annotated[AcksChoice, typer.Option("--acks", help="What an answer promises.")] = AcksChoice.ALL,
    record_format: Annotated[
        FormatChoice, typer.Option("--format", help="raw: bytes as they are. json: keys and values must be JSON.")
    ] = FormatChoice.RAW,
    compression: Annotated[
        CompressionChoice, typer.Option("-z", "--compression", help="Of the requests.")
    ] = CompressionChoice.NONE,
    delimiter: Annotated[str, typer.Option("-D", "--delimiter", help="Ends a record.")] = "\\n",
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Produce a record for each line of standard input. Exit code 0 only if every one was acknowledged."""
    end, separator = unescaped(delimiter, "--delimiter"), unescaped(key_separator, "--key-separator")
    headers = [_header(text) for text in header or ()]
    options = ProducerOptions(
        acks=acks.value,
        compression=compression.value,
        format="json" if record_format is FormatChoice.JSON else "raw",
    )
    tally = Tally()
    with connected(server, token, ca_file) as client:
        _check_reachable(client)
        with client.producer(options) as producer, progress() as advance:
            lines = records_of(sys.stdin.buffer, end or b"\n")
            _send_all(producer, topic, lines, separator, headers, null, partition, tally, advance)
    if tally.error is not None:
        fail(f"{tally.failed} records were not produced: {tally.error}")
    total = sum(tally.delivered.values())
    if as_json:
        print_json({"topic": topic, "records": total, "partitions": dict(sorted(tally.delivered.items()))})
    elif sys.stderr.isatty():
        typer.echo(f"{total} records", err=True)


def _check_reachable(client: SluiceClient) -> None:
    """A wrong address is told before anything is read, not after two minutes of repeats."""
    client.connection.call("GET", "/healthz", repeatable=True)


def _send_all(
    producer: Producer,
    topic: str,
    lines: Iterator[bytes],
    separator: bytes | None,
    headers: Headers,
    null: bool,
    partition: int | None,
    tally: Tally,
    advance: Progress | None,
) -> None:
    task = advance.add_task("records", total=None) if advance else None
    for count, line in enumerate(lines, start=1):
        if tally.error is not None:
            return
        key, value = split(line, separator, null)
        producer.send(topic, value, key, partition=partition, headers=headers, on_delivery=tally)
        if advance is not None and task is not None and count % SHOW_EVERY == 0:
            advance.update(task, completed=count)


def split(line: bytes, separator: bytes | None, null: bool) -> tuple[bytes | None, bytes | None]:
    """Key and value; a line without the separator is a value without a key."""
    key: bytes | None = None
    value: bytes | None = line
    if separator:
        head, found, rest = line.partition(separator)
        if found:
            key, value = head, rest
    return (key or None, value or None) if null else (key, value)


def records_of(stream: BinaryIO, end: bytes) -> Iterator[bytes]:
    """The stream cut at `end`; what follows the last one is a record if it is not empty."""
    if end == b"\n":
        for line in stream:
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while chunk := stream.read(CHUNK):
        *whole, rest = (rest + chunk).split(end)
        yield from whole
    if rest:
        yield rest


@contextmanager
def progress() -> Iterator[Progress | None]:
    """Only on a terminal, and never between what a person types."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar


def unescaped(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    if not text:
        usage(f"{option}: must not be empty")
    return ESCAPES.get(text, text).encode()


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        usage(f"--header {text!r}: must be NAME=VALUE")
    return name, value.encode() if equals else None
