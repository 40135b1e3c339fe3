"""Batches between acceptance and commit, and what their producers wait for."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum

import pyarrow as pa

from sluice.log_store.errors import InvalidRequiredAcks
from sluice.log_store.values import ProducerStamp, SinkStamp


class Acks(IntEnum):
    NONE = 0
    LEADER = 1
    ALL = -1

    @classmethod
    def parse(cls, text: str | int) -> Acks:
        names = {"0": cls.NONE, "1": cls.LEADER, "-1": cls.ALL, "all": cls.ALL}
        try:
            return names[str(text).lower()]
        except KeyError:
            raise InvalidRequiredAcks(f"acks must be 0, 1, all or -1, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class AppendResult:
    base_offset: int
    count: int
    append_ms: int
    log_start: int
    duplicate: bool = False
    """The batch was in the log already; these are its first offsets."""


Waiter = tuple[Acks, Future[AppendResult], bool]
"""Level, answer, and whether it is the answer to a repeat."""


class Logged(Enum):
    """Where a batch stands with the WAL."""

    NO = "no"
    QUEUED = "queued"
    YES = "yes"
    FAILED = "failed"
    """The WAL was closed over it: it may or may not be found again."""


@dataclass(slots=True, eq=False)
class Pending:
    batch: pa.RecordBatch
    base_offset: int
    size: int
    append_ms: int
    max_ms: int
    stamp: ProducerStamp | None = None
    sink: SinkStamp | None = None
    logged: Logged = Logged.NO
    waiters: list[Waiter] = field(default_factory=list)

    @property
    def count(self) -> int:
        return int(self.batch.num_rows)

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count

    def result(self, log_start: int, duplicate: bool) -> AppendResult:
        return AppendResult(self.base_offset, self.count, self.append_ms, log_start, duplicate)

    def producer_entry(self) -> list[int] | None:
        """How commitInfo carries the producer's stamp; `PartitionState.record_producer` reads it."""
        if (stamp := self.stamp) is None:
            return None
        identity = [stamp.producer_id, stamp.epoch, stamp.sequence]
        return [
            *identity,
            self.count,
            self.base_offset,
            self.append_ms,
            stamp.partitions,
            stamp.crc,
            stamp.body_count,
        ]

    def sink_entry(self) -> list[str | int] | None:
        """How commitInfo carries the piece of a sink's batch; `PartitionState.apply` reads it."""
        return None if (sink := self.sink) is None else [sink.query, sink.batch, sink.piece, self.append_ms]


def settle(future: Future[AppendResult], outcome: AppendResult | BaseException) -> None:
    """Answer a waiter, once. One that gave up before its batch was queued is passed over."""
    with suppress(InvalidStateError):
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
