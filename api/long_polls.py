"""The shortcut of long polls: those that are at the end of a partition wait here, ten thousand of them if need be.

A poll is an entry in a table and a timer. A commit wakes the partition's entries; polls that ask for the same, and
after a commit most do, are answered by one read and one encoding.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from sluice.api.appending import LARGE_BYTES
from sluice.api.errors import JSON
from sluice.api.fetch import ROUTES, Asked, asked_of, encode, enough, head_of
from sluice.api.produce import ARROW
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.api.shortcuts import Answer, Headers, Recognise, Reply
from sluice.api.small_produce import PLAIN, plain_query
from sluice.log_store.errors import SluiceError
from sluice.log_store.partition import PartitionLog
from sluice.log_store.partition_reads import Fetched, PartitionReads

_ADDRESS = re.compile(
    rb"/v3/clusters/([A-Za-z0-9-]{1,64})/topics/([A-Za-z0-9._-]{1,249})/partitions/([0-9]{1,10})/records"
    rb"\?([A-Za-z0-9_=&-]{0,300})"
)
_QUERY = frozenset({"offset", "max_records", "max_bytes", "min_bytes", "max_wait_ms", "format"})
_ACCEPTS: Mapping[bytes, str] = {b"*/*": JSON, b"application/json": JSON, ARROW.encode(): ARROW}


class Address(NamedTuple):
    topic: str
    number: int
    asked: Asked
    params: Mapping[str, str]


class _Entry:
    __slots__ = ("answer", "asked", "partition", "timer")

    def __init__(self, partition: PartitionLog, asked: Asked, answer: Answer) -> None:
        self.partition = partition
        self.asked = asked
        self.answer = answer
        self.timer: asyncio.TimerHandle


_Entries = dict[Asked, dict[_Entry, None]]


class LongPolls:
    """Belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[PartitionLog, _Entries] = {}
        self._listeners: dict[PartitionLog, Callable[[int], None]] = {}
        service.at_stop.append(self._stop)

    def add(self, partition: PartitionLog, asked: Asked, answer: Answer) -> Callable[[], None]:
        """Answer when there is enough, or the time is over; returns how to forget it."""
        loop = asyncio.get_running_loop()
        if partition not in self._waiting:
            self._waiting[partition] = {}
            self._listeners[partition] = partial(self._on_commit, loop, partition)
            partition.add_listener(self._listeners[partition])
        entry = _Entry(partition, asked, answer)
        self._waiting[partition].setdefault(asked, {})[entry] = None
        entry.timer = loop.call_later(asked.max_wait_s, self._time_out, entry)
        self._service.waiting.entered()
        # Looked at after the listener is in place: a commit between the two is not missed.
        if partition.high_watermark > asked.offset:
            loop.call_soon(self._woken, partition)
        return partial(self._gone, entry)

    def _on_commit(self, loop: asyncio.AbstractEventLoop, partition: PartitionLog, _high_watermark: int) -> None:
        """From a thread of the log."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._woken, partition)

    def _woken(self, partition: PartitionLog) -> None:
        for asked, entries in list(self._waiting.get(partition, {}).items()):
            self._answer(partition, asked, list(entries), final=False)

    def _time_out(self, entry: _Entry) -> None:
        self._answer(entry.partition, entry.asked, [entry], final=True)

    def _stop(self) -> None:
        for partition, by_asked in list(self._waiting.items()):
            for asked, entries in list(by_asked.items()):
                self._answer(partition, asked, list(entries), final=True)

    def _answer(self, partition: PartitionLog, asked: Asked, entries: list[_Entry], *, final: bool) -> None:
        reply = self._reply(partition, asked, len(entries), final=final)
        if reply is _NOT_YET:
            return
        for entry in entries:
            if self._removed(entry):
                entry.answer(reply)

    def _gone(self, entry: _Entry) -> None:
        if self._removed(entry):
            self._service.active -= 1

    def _removed(self, entry: _Entry) -> bool:
        by_asked = self._waiting.get(entry.partition, {})
        entries = by_asked.get(entry.asked, {})
        if entry not in entries:
            return False
        del entries[entry]
        entry.timer.cancel()
        self._service.waiting.left()
        if not entries:
            del by_asked[entry.asked]
        if not by_asked:
            del self._waiting[entry.partition]
            entry.partition.remove_listener(self._listeners.pop(entry.partition))
        return True

    def _reply(self, partition: PartitionLog, asked: Asked, polls: int, *, final: bool) -> Reply | None:
        """`_NOT_YET` to go on waiting; None if the ordinary way has to find out."""
        log, ref = self._service.log, partition.ref
        try:
            log.catalog.state.get(ref.topic, ref.topic_id)  # a poll that waited may find its topic gone
            if log.fenced or not _in_memory(self._service, partition, asked):
                return None
            found = PartitionReads(partition).fetch(
                asked.offset, max_records=asked.max_records, max_bytes=asked.max_bytes
            )
            if not final and not enough(asked, found):
                return _NOT_YET
            return self._encoded(partition, asked, found, polls)
        except SluiceError:
            return None

    def _encoded(self, partition: PartitionLog, asked: Asked, found: Fetched, polls: int) -> Reply | None:
        size = sum(batch.nbytes for batch in found.rows.batches)
        if size >= LARGE_BYTES:
            return None
        for _ in range(polls):
            self._service.metrics.fetched(partition.ref.topic, found.rows.count, size)
        lines = {"content-type": ARROW if asked.format == "arrow" else JSON, **head_of(found)}
        head = "".join(f"{name.lower()}: {value}\r\n" for name, value in lines.items())
        return Reply(200, head.encode(), encode(partition.ref, asked, found))


_NOT_YET = Reply(0, b"", b"")


def _in_memory(service: Service, partition: PartitionLog, asked: Asked) -> bool:
    at_the_end = asked.offset >= partition.high_watermark
    return at_the_end or bool(service.log.runtime.tails.get(partition.ref.folder, asked.offset))


class LongPoll:
    method = "GET"
    __slots__ = ("_address", "_partition", "_polls")

    def __init__(self, polls: LongPolls, partition: PartitionLog, address: Address) -> None:
        self._polls = polls
        self._partition = partition
        self._address = address

    @property
    def route(self) -> RawRoute:
        return ROUTES[0]

    @property
    def params(self) -> Mapping[str, str]:
        return self._address.params

    def begin(self, _body: bytes, answer: Answer) -> Callable[[], None] | None:
        return self._polls.add(self._partition, self._address.asked, answer)


def recogniser(service: Service) -> Recognise:
    polls = LongPolls(service)

    @lru_cache(maxsize=4096)
    def address_of(url: bytes, arrow: bool) -> Address | None:
        return _parse(service, url, arrow)

    def recognise(url: bytes, headers: Headers) -> LongPoll | None:
        if not url.startswith(b"/v3/") or service.waiting.stopping or service.waiting.full:
            return None
        media = _media_of(headers)
        address = None if media is None else address_of(url, media == ARROW)
        if address is None:
            return None
        try:
            partition = service.log.partition(address.topic, address.number)
        except SluiceError:
            return None
        # Only what waits: the ordinary way reads files without holding up the loop.
        if not partition.opened or service.log.fenced or address.asked.offset != partition.high_watermark:
            return None
        return LongPoll(polls, partition, address)

    return recognise


def _media_of(headers: Headers) -> str | None:
    """What it asks for, where that takes no weighing; None: the ordinary way finds out."""
    media: str | None = None
    for name, value in headers:
        if name == b"accept":
            if media is not None or (media := _ACCEPTS.get(value)) is None:
                return None
        elif name not in PLAIN or name == b"content-length":
            return None
    return media or JSON


def _parse(service: Service, url: bytes, arrow: bool) -> Address | None:
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return None
    cluster, topic, number, query = (part.decode() for part in found.groups())
    values = plain_query(query, _QUERY)
    if values is None or cluster not in ("-", service.log.cluster_id):
        return None
    try:
        asked = asked_of(values, service, arrow=arrow)
    except SluiceError:
        return None
    # One that does not wait is answered at once, and has nothing to gain here.
    return Address(topic, int(number), asked, {"c": cluster, "t": topic, "p": number}) if asked.max_wait_s else None
