"""Small produce requests that come at the same time go the rest of the way together.

Most of what a request of one record costs does not depend on how many records there are: columns, partitions, locks,
futures. So requests to one topic that arrive within a moment are parsed one by one, and then are one batch. An idle
service lets nobody wait; a busy one gathers for milliseconds, but only where the last group went just now: a flood to
one topic is no reason for those who send a little to another one to wait.

Whatever is not plain (a body with an error, a record that breaks a rule, a topic or partition that is not open, hooks)
is sent back to go its way alone, before anything of it was appended: errors are those of the request itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sluice.api.appending import Outcome, PartOutcome, Target, default_acks, too_late
from sluice.api.service import Service
from sluice.ingest import binary_v2, json_v2, partitioner
from sluice.ingest.hooks import NO_HOOKS
from sluice.ingest.limits import IngestLimits
from sluice.ingest.partitioner import Part
from sluice.ingest.request import NOT_GIVEN, Decoded, Int64s
from sluice.ingest.validate import validate
from sluice.log_store.errors import RequestTimedOut, SluiceError
from sluice.log_store.pending import Acks, AppendResult

_log = logging.getLogger(__name__)
SMALL_BYTES = 256 << 10
"""Bodies above it gain nothing from company."""
GATHER_S, GATHER_MOST_S = 0.001, 0.005
GATHER_TIMES = 3
"""A busy service gathers for that many times as long as the last group took on the loop: a fourth of it at most."""
GATHER_FOR = 3
"""And for at least `GATHER_S` for each request of the last group, up to so many. What comes alone does not wait longer;
where several come at a time, a longer wait made the slowest faster, and a shorter one slower, at 2,000 a second."""
REMEMBERED = 1000
"""Destinations of which it is known when the last group went there, whether that matters or not."""
GATHER_BYTES = 512 << 10
"""Gathered bytes that wait no longer."""

TURN_S = 0.2
"""A few times as long as a busy partition waits between two commits: a turn begins with a version of the few records
that came first, which costs as much as one of many."""

JSON, BINARY = "json", "binary"


class Format(NamedTuple):
    records_of: Callable[[bytes, IngestLimits], Sequence[Any]]
    """All of one class: the plain one, or the one that has every member."""
    columns_of: Callable[..., Decoded]
    plain: type
    """What the first record says of its members must hold for all: plain ones come behind the others."""


_FORMATS = {
    JSON: Format(json_v2.records_of, json_v2.columns_of, json_v2.PlainRecord),
    BINARY: Format(binary_v2.records_of, binary_v2.columns_of, binary_v2.PlainRecord),
}


@dataclass(frozen=True, slots=True, eq=False)
class Destination:
    """What requests must have in common to be gathered: one object for each address, so that it is quickly found."""

    target: Target
    format: str


class Single(NamedTuple):
    """The outcome of a request of one record: what nearly all gathered requests are, so it is made of nothing else."""

    partition: int
    offset: int


class Many(NamedTuple):
    """The outcome of a request of several records, all of which are appended: where each of them is."""

    partitions: Int64s
    offsets: Int64s


Answer = Callable[[Single | Many | Outcome | None], None]
"""Told the outcome, once; None if the request has to go alone."""


class _Request(NamedTuple):
    body: bytes
    answer: Answer


class _Parsed(NamedTuple):
    requests: list[_Request]
    records: list[Any]
    """Of all of them."""
    counts: list[int]
    """How many each has."""

    def before(self, other: _Parsed) -> _Parsed:
        return _Parsed(self.requests + other.requests, self.records + other.records, self.counts + other.counts)


class _Alone(SluiceError):
    """Not for clients: the requests are taken one by one."""


class Gathering:
    """Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[Destination, list[_Request]] = {}
        self._sizes: dict[Destination, int] = {}
        self._quiet_until = 0.0
        self._sent: dict[Destination, float] = {}
        """When the last group went there; no older than matters, but for the last few."""

    def add(self, destination: Destination, body: bytes, answer: Answer) -> None:
        waiting = self._waiting.get(destination)
        if waiting is None:
            waiting = self._waiting[destination] = []
            self._sizes[destination] = 0
            loop = asyncio.get_running_loop()
            quiet_until = min(self._quiet_until, self._sent.get(destination, 0.0) + GATHER_MOST_S)
            if loop.time() < quiet_until:
                loop.call_at(quiet_until, self._send, destination, waiting)
            else:
                # Still after everything that the loop has at hand: what came together goes together.
                loop.call_soon(self._send, destination, waiting)
        waiting.append(_Request(body, answer))
        self._sizes[destination] += len(body)
        if self._sizes[destination] >= GATHER_BYTES:
            self._send(destination, waiting)

    def _send(self, destination: Destination, waiting: list[_Request]) -> None:
        if self._waiting.get(destination) is not waiting:
            return  # it was large enough to go before its time
        del self._waiting[destination], self._sizes[destination]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        parsed = self._parsed(_FORMATS[destination.format], waiting)
        if parsed.requests:
            self._append(destination, parsed)
        ended = loop.time()
        if len(self._sent) >= REMEMBERED:
            self._sent = {known: at for known, at in self._sent.items() if at + GATHER_MOST_S > ended}
        self._sent[destination] = ended
        least = GATHER_S * min(len(waiting), GATHER_FOR)
        self._quiet_until = ended + min(max(GATHER_TIMES * (ended - begun), least), GATHER_MOST_S)

    def _parsed(self, form: Format, waiting: Sequence[_Request]) -> _Parsed:
        """Requests that can be taken further, if there are any."""
        limits = self._service.limits
        full, plain = _Parsed([], [], []), _Parsed([], [], [])
        for request in waiting:
            try:
                found = form.records_of(request.body, limits)
            except Exception:  # noqa: BLE001 - whatever it is, the ordinary way meets it as well, and tells
                request.answer(None)
                continue
            parsed = plain if isinstance(found[0], form.plain) else full
            parsed.requests.append(request)
            parsed.records.extend(found)
            parsed.counts.append(len(found))
        if full.requests and plain.requests:
            return full.before(plain)
        return full if full.requests else plain

    def _append(self, to: Destination, parsed: _Parsed) -> None:
        now_ms = self._service.log.runtime.clock.wall_ms()
        try:
            decoded = _FORMATS[to.format].columns_of(parsed.records, now_ms, self._service.limits)
            sent = _Sent(self._service, to.target, parsed.requests, parsed.counts, decoded)
            sent.check(now_ms)
        except Exception as error:  # noqa: BLE001 - also of a bug each has to hear, alone
            if not isinstance(error, SluiceError):
                _log.exception("requests to %s go alone", to.target.topic)
            for request in parsed.requests:
                request.answer(None)
        else:
            sent.go()


class _Sent:
    """Requests on their way together, from the partitioner to their acknowledgements."""

    def __init__(
        self, service: Service, target: Target, requests: list[_Request], counts: list[int], decoded: Decoded
    ) -> None:
        self._service = service
        self._target = target
        self._answers: list[Answer | None] = [request.answer for request in requests]
        """None where it was given."""
        self._decoded = decoded
        self._size = decoded.batch.nbytes
        self._counts = counts
        self._ends: Int64s = np.cumsum(counts)
        self._parts: dict[int, Part] = {}
        self._results: dict[int, AppendResult | SluiceError] = {}
        self._open: list[int] = []
        """Per request, the parts that are not answered yet."""
        self._places: Many | None = None
        """Of all records whose parts are appended; None while each request has one, or a part was refused."""
        self._acks = Acks.ALL
        self._timer: asyncio.TimerHandle | None = None

    def check(self, now_ms: int) -> None:
        """SluiceError if each has to go alone."""
        log, target = self._service.log, self._target
        meta = log.catalog.state.get(target.topic)
        config = log.partition(meta.name, 0).config
        if self._service.hooks.chain(config) is not NO_HOOKS or meta.internal:
            raise _Alone("")
        validate(self._decoded.batch, config, now_ms)
        self._parts = dict(self._split(meta.partitions))
        if not all(log.partition(meta.name, number).ready for number in self._parts):
            raise _Alone("")
        self._acks = target.acks if target.acks is not None else default_acks(self._service, config)

    def _split(self, partitions: int) -> dict[int, Part]:
        wished, number = self._decoded.explicit_partitions, self._target.partition
        if number is None and self._goes_anywhere():
            return {self._turn(partitions): Part(self._decoded.batch, np.arange(self._decoded.count))}
        if number is None:
            placed = partitioner.assign(self._decoded.batch, wished, partitions, random.randrange(partitions))
            return dict(partitioner.split(self._decoded.batch, placed))
        if number >= partitions or (wished is not None and bool(((wished != NOT_GIVEN) & (wished != number)).any())):
            raise _Alone("")
        return {number: Part(self._decoded.batch, np.arange(self._decoded.count))}

    def _goes_anywhere(self) -> bool:
        """Requests of one record without key or partition: each may begin its round anywhere."""
        batch, wished = self._decoded.batch, self._decoded.explicit_partitions
        alone = len(self._counts) == self._decoded.count
        return alone and wished is None and batch.column("key").null_count == batch.num_rows

    def _turn(self, partitions: int) -> int:
        """Where records go that may go anywhere. While they come thick and fast, one partition has its turn after the
        other, as with Kafka's own partitioner: what stays together is committed together, and a version costs the same
        whatever is in it. Whoever comes alone goes where chance has it."""
        if self._decoded.count == 1:
            return random.randrange(partitions)
        return int(asyncio.get_running_loop().time() / TURN_S) % partitions

    def go(self) -> None:
        """From here on there are only answers."""
        owners = {number: self._owners_of(part) for number, part in self._parts.items()}
        self._open = [0] * len(self._answers)
        for numbers in owners.values():
            for owner in numbers:
                self._open[owner] += 1
        if len(self._answers) < self._decoded.count and self._acks is not Acks.NONE:
            self._places = Many(*np.full((2, self._decoded.count), -1, np.int64))
        loop = asyncio.get_running_loop()
        self._service.bell.attach(loop)
        self._timer = loop.call_later(self._target.timeout_s, self._time_out)
        for number, part in sorted(self._parts.items()):
            self._append(number, part, owners[number])

    def _owners_of(self, part: Part) -> list[int]:
        """The requests that have records in a part."""
        if len(self._counts) == self._decoded.count:
            owners: list[int] = part.indices.tolist()
            return owners
        found: list[int] = np.unique(np.searchsorted(self._ends, part.indices, side="right")).tolist()
        return found

    def _append(self, number: int, part: Part, owners: list[int]) -> None:
        try:
            future = self._service.log.append(
                self._target.topic, number, part.batch, acks=self._acks, size=self._size_of(part)
            )
        except SluiceError as error:
            self._done(number, owners, error)
            return
        except Exception:  # noqa: BLE001 - a bug: it may or may not be queued, and nobody may be left waiting
            _log.exception("append to %s-%d failed", self._target.topic, number)
            self._done(number, owners, RequestTimedOut("unexpected error: the outcome is not known"))
            return
        if future.done():
            self._done(number, owners, _result(future))
        else:
            future.add_done_callback(partial(self._called_back, number, owners))

    def _size_of(self, part: Part) -> int:
        return int(self._size * len(part.indices) // self._decoded.count)

    def _called_back(self, number: int, owners: list[int], future: Future[AppendResult]) -> None:
        """From a thread of the log."""
        self._service.bell.ring(partial(self._done, number, owners, _result(future)))

    # --- answers ---------------------------------------------------------------------------------

    def _done(self, number: int, owners: list[int], result: AppendResult | SluiceError) -> None:
        self._results[number] = result
        if isinstance(result, AppendResult):
            self._service.metrics.produced(self._target.topic, result.count, self._size_of(self._parts[number]))
            if len(owners) == result.count and self._acks is not Acks.NONE:
                self._answer_singles(number, owners, result.base_offset)
            if self._places is not None:
                _place(self._places, number, self._parts[number].indices, result.base_offset)
        else:
            self._places = None
        for owner in owners:
            self._open[owner] -= 1
            if not self._open[owner] and self._answers[owner] is not None:
                self._tell(owner, self._outcome(owner))
        if len(self._results) == len(self._parts) and self._timer is not None:
            self._timer.cancel()

    def _answer_singles(self, number: int, owners: list[int], offset: int) -> None:
        """Each request has one record in this part; those that have no other are answered."""
        counts = self._counts
        for owner in owners:
            if counts[owner] == 1:
                self._tell(owner, Single(number, offset))
            offset += 1

    def _tell(self, owner: int, outcome: Single | Many | Outcome) -> None:
        answer, self._answers[owner] = self._answers[owner], None
        if answer is not None:
            answer(outcome)

    def _outcome(self, owner: int) -> Many | Outcome:
        """What this request would have been told had it come alone."""
        end = int(self._ends[owner])
        start = end - self._counts[owner]
        if self._places is not None and not self._open[owner]:
            partitions, offsets = self._places
            return Many(partitions[start:end], offsets[start:end])
        parts = {}
        for number, part in self._parts.items():
            low, high = np.searchsorted(part.indices, [start, end]).tolist()
            if low == high:
                continue
            result = self._results.get(number) or too_late()
            if isinstance(result, AppendResult):
                result = AppendResult(result.base_offset + low, high - low, result.append_ms, result.log_start)
            parts[number] = PartOutcome(part.indices[low:high] - start, result)
        return Outcome(end - start, self._acks, parts)

    def _time_out(self) -> None:
        for owner in range(len(self._answers)):
            if self._answers[owner] is not None:
                self._tell(owner, self._outcome(owner))


def _place(places: Many, number: int, indices: Int64s, base_offset: int) -> None:
    places.partitions[indices] = number
    places.offsets[indices] = np.arange(base_offset, base_offset + len(indices))


def _result(future: Future[AppendResult]) -> AppendResult | SluiceError:
    error = future.exception()
    if error is None:
        return future.result()
    return error if isinstance(error, SluiceError) else RequestTimedOut(f"unexpected error: {error!r}")
