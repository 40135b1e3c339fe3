"""`sluice bench`: how fast this server takes and gives records from here. A quick look, not a benchmark suite."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import Progress

from sluice.api.client import Producer, ProducerOptions, SluiceClient
from sluice.api.commands.common import SERVER, AsJson, CaFile, Server, Token, connected, print_json
from sluice.api.commands.produce import AcksChoice, CompressionChoice, Tally
from sluice.log_store.clock import SystemClock

app = typer.Typer(help="Measure a server from here.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic; it keeps the records.", show_default=False)]
ARROW_BATCH = 10_000
STEP = 1_000
"""Records between two moves of the progress bar, which costs more than a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    records: int
    bytes: int
    seconds: float
    records_per_s: int
    mb_per_s: float


@app.command()
def produce(
    topic: Topic,
    records: Annotated[int, typer.Option("-n", "--records", min=1)] = 100_000,
    size: Annotated[int, typer.Option("-s", "--size", min=1, help="Bytes of a value.")] = 100,
    arrow: Annotated[bool, typer.Option("--arrow", help=f"Arrow tables of {ARROW_BATCH} records.")] = False,
    acks: Annotated[AcksChoice, typer.Option("--acks")] = AcksChoice.ALL,
    compression: Annotated[CompressionChoice, typer.Option("-z", "--compression")] = CompressionChoice.NONE,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Produce records of random bytes and say how long it took until the last was acknowledged."""
    value = random.randbytes(size)
    options = ProducerOptions(acks=acks.value, compression=compression.value)
    with connected(server, token, ca_file) as client, _bar() as bar:
        task = bar.add_task("produce", total=records)
        clock = SystemClock()
        started = clock.boottime()
        with client.producer(options) as producer:
            send = _send_tables if arrow else _send
            for count in send(producer, topic, value, records):
                bar.advance(task, count)
        seconds = clock.boottime() - started
    _print(records, records * size, seconds, as_json)


def _send(producer: Producer, topic: str, value: bytes, records: int) -> Iterator[int]:
    tally = Tally()
    for begin in range(0, records, STEP):
        count = min(STEP, records - begin)
        for _ in range(count):
            producer.send(topic, value, on_delivery=tally)
        yield count
    producer.flush()
    if tally.error is not None:
        raise tally.error


def _send_tables(producer: Producer, topic: str, value: bytes, records: int) -> Iterator[int]:
    futures = []
    for begin in range(0, records, ARROW_BATCH):
        count = min(ARROW_BATCH, records - begin)
        futures.append(producer.send_arrow(topic, pa.table({"value": pa.array([value] * count, pa.binary())})))
        yield count
    for future in futures:
        future.result()


@app.command()
def consume(
    topic: Topic,
    server: Server = SERVER,
    token: Token = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Read everything that is in a topic now, as Arrow, and say how long it took."""
    with connected(server, token, ca_file) as client, _bar() as bar:
        clock = SystemClock()
        started = clock.boottime()
        count, size = _read_all(client, topic, bar)
        seconds = clock.boottime() - started
    _print(count, size, seconds, as_json)


def _read_all(client: SluiceClient, topic: str, bar: Progress) -> tuple[int, int]:
    partitions = client.offsets(topic)
    task = bar.add_task("consume", total=sum(one.latest - one.earliest for one in partitions))
    count = size = 0
    for one in partitions:
        position = one.earliest
        while position < one.latest:
            found = client.fetch_arrow(topic, one.partition, position, max_wait_ms=1_000)
            count, size, position = count + found.table.num_rows, size + found.table.nbytes, found.next_offset
            bar.advance(task, found.table.num_rows)
    return count, size


def _bar() -> Progress:
    return Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _print(records: int, size: int, seconds: float, as_json: bool) -> None:
    found = Figures(
        records=records,
        bytes=size,
        seconds=round(seconds, 3),
        records_per_s=round(records / seconds),
        mb_per_s=round(size / seconds / 1e6, 2),
    )
    if as_json:
        print_json(found)
    else:
        typer.echo(
            f"{found.records} records, {found.bytes} bytes in {found.seconds} s: "
            f"{found.records_per_s} records/s, {found.mb_per_s} MB/s"
        )
