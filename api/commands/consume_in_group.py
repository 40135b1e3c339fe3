"""`sluice consume --group`: the same as a member of a consumer group."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import typer

from sluice.api.client import Consumer, SluiceClient, TopicPartition
from sluice.api.client_values import Start
from sluice.api.commands.common import usage
from sluice.api.commands.printing import Printer
from sluice.log_store.errors import IllegalGeneration, RebalanceInProgress, UnknownMemberId

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    topic: str
    group: str
    start: Start
    """Only where the group has committed nothing."""
    count: int | None
    stop_at_end: bool


def check(start: Start, partitions: Sequence[int] | None) -> None:
    if partitions:
        usage("--group and --partition: the group decides who reads which partition")
    if start not in ("earliest", "latest"):
        usage("--group: --offset must be beginning or end, for where the group has committed nothing")


def print_all(client: SluiceClient, wanted: Wanted, printer: Printer) -> None:
    """Whatever one poll brought is written, flushed and then committed: what was not printed is read again."""
    ends = {
        TopicPartition(wanted.topic, entry.partition): entry.latest for entry in client.offsets(wanted.topic)
    }  # also says at once that there is no such topic
    reset: Literal["earliest", "latest"] = "latest" if wanted.start == "latest" else "earliest"
    out, left = sys.stdout.buffer, wanted.count
    joined = client.consumer(group=wanted.group, auto_offset_reset=reset, enable_auto_commit=False)
    with _leaving_on_sigterm(), joined as consumer:
        consumer.subscribe([wanted.topic])
        while True:
            records = consumer.poll(POLL_S, left)
            out.write(b"".join(map(printer, records)))
            out.flush()
            if records:
                _commit(consumer)
            if left is not None:
                left -= len(records)
            if left == 0 or (wanted.stop_at_end and _at_end(consumer, ends)):
                return


@contextmanager
def _leaving_on_sigterm() -> Iterator[None]:
    """Out of the loop in order: the others need not wait for this member's session to end."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit()
    except (RebalanceInProgress, IllegalGeneration, UnknownMemberId) as error:
        typer.echo(f"sluice: not committed, some records may come again: {error.message}", err=True)


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Of what this member reads; the other partitions are for other members."""
    if consumer.rebalancing:
        return False
    return all(consumer.position(one) >= ends.get(one, 0) for one in consumer.assignment)
