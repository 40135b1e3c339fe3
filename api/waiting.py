"""Waiting without threads: for append futures, and for commits of a partition."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from sluice.log_store.errors import Overloaded
from sluice.log_store.partition import PartitionLog
from sluice.log_store.pending import AppendResult

_log = logging.getLogger(__name__)


class Bell:
    """Calls into the event loop from other threads, many at the price of one.

    A commit answers hundreds of requests: were the loop woken for each, the two threads would take turns hundreds of
    times.
    """

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = False

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            self._loop, self._rung = loop, False

    def ring(self, call: Callable[[], None]) -> None:
        """From any thread. Queued before the flag is read; `_answer` lowers the flag before it looks: none is lost."""
        self._calls.append(call)
        if not self._rung and self._loop is not None and not self._loop.is_closed():
            self._rung = True
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._rung = False
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - one bug must not leave the others waiting
                _log.exception("a wake-up failed")


def spread(seconds: float) -> float:
    """A little longer, by chance: connections that came together and are too slow do not all end at one moment, when
    everybody else would have to wait for them."""
    return seconds * (1 + random.random() / 8)


async def settled(bell: Bell, futures: Sequence[Future[AppendResult]], timeout_s: float) -> None:
    """Until all are done or the time is over; who asks looks at the futures itself."""
    open_ones = [future for future in futures if not future.done()]
    if not open_ones:
        return
    loop = asyncio.get_running_loop()
    bell.attach(loop)
    woken: asyncio.Future[None] = loop.create_future()
    left = len(open_ones)

    def one_done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _release(woken)

    def called_back(_future: Future[AppendResult]) -> None:
        bell.ring(one_done)

    for future in open_ones:
        future.add_done_callback(called_back)
    timer = loop.call_later(timeout_s, _release, woken)
    try:
        await woken
    finally:
        timer.cancel()


async def while_connected(receive: Receive, wait: Coroutine[Any, Any, None]) -> None:
    """Await it; ClientDisconnect as soon as nobody is there to be told, so that they who leave do not go on waiting."""
    waiting, gone = asyncio.ensure_future(wait), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()
        await asyncio.gather(waiting, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Watch:
    """The long polls of one partition behind one listener: a commit costs one call into the loop, however many wait."""

    def __init__(self, partition: PartitionLog, loop: asyncio.AbstractEventLoop) -> None:
        self.partition = partition
        self.waiters: set[asyncio.Future[None]] = set()
        self._loop = loop
        partition.add_listener(self._on_commit)

    def _on_commit(self, _high_watermark: int) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        for waiter in self.waiters:
            _release(waiter)

    def close(self) -> None:
        self.partition.remove_listener(self._on_commit)


class Waiting:
    def __init__(self, most: int) -> None:
        self._most = most
        self._watches: dict[PartitionLog, _Watch] = {}
        self._pauses: set[asyncio.Future[None]] = set()
        self._timeouts: set[asyncio.Timeout] = set()
        self._count = 0
        self.stopping = False

    @property
    def count(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count >= self._most

    def entered(self) -> None:
        """One more waits, but not here."""
        self._count += 1

    def left(self) -> None:
        self._count -= 1

    async def past(self, partition: PartitionLog, high_watermark: int, timeout_s: float) -> None:
        """Until the partition is past this high watermark, the time is over, or the service stops."""
        if self.stopping or timeout_s <= 0:
            return
        if self.full:
            raise Overloaded(f"{self._most} long polls are waiting already", retry_after_s=1)
        loop = asyncio.get_running_loop()
        watch = self._watches.get(partition)
        if watch is None:
            watch = self._watches[partition] = _Watch(partition, loop)
        waiter: asyncio.Future[None] = loop.create_future()
        watch.waiters.add(waiter)
        self._count += 1
        timer = loop.call_later(timeout_s, _release, waiter)
        try:
            # Looked at after the listener is in place: a commit between the read and now is not missed.
            if partition.high_watermark <= high_watermark:
                await waiter
        finally:
            timer.cancel()
            self._count -= 1
            watch.waiters.discard(waiter)
            if not watch.waiters and self._watches.get(partition) is watch:
                del self._watches[partition]
                watch.close()

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        """`asyncio.timeout` that a stop ends at once: who gets a TimeoutError looks at `stopping`."""
        if self.stopping:
            raise TimeoutError
        async with asyncio.timeout(seconds) as limit:
            self._timeouts.add(limit)
            try:
                yield
            finally:
                self._timeouts.discard(limit)

    async def pause(self, seconds: float) -> None:
        """Let time pass for somebody who was too fast. A stop ends it."""
        if self.stopping or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _release, waiter)
        self._pauses.add(waiter)
        self._count += 1
        try:
            await waiter
        finally:
            timer.cancel()
            self._count -= 1
            self._pauses.discard(waiter)

    def stop(self) -> None:
        self.stopping = True
        for waiter in self._pauses:
            _release(waiter)
        for limit in self._timeouts:
            limit.reschedule(asyncio.get_running_loop().time())
        for watch in self._watches.values():
            watch.wake()
