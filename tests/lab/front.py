"""The address that all clients know: a TCP relay to whichever services are at work, on a network that can go wrong."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

HOST = "127.0.0.1"
_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time at all."""


class Front:
    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="front", daemon=True)
        self._pairs: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None
        self.port = 0
        self.targets: tuple[int, ...] = ()
        """Ports of the services; with two of them each connection goes to either."""
        self.delay_s = 0.0
        """How long each piece takes, either way."""
        self.broken = 0.0
        """Share of pieces in which the connection breaks, in the middle of them."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Every connection is reset."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writers in self._pairs.values():
            for writer in writers:
                # Without this the peer would see an orderly end if it had nothing unread. One that has just ended by
                # itself must not spare the others.
                with suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._pairs)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._pairs[task] = [writer]
        try:
            if not self.targets:
                return
            inner, outer = await asyncio.open_connection(HOST, self._dice.choice(self.targets))
            writers.append(outer)
            ways = [
                asyncio.ensure_future(self._relay(reader, outer)),
                asyncio.ensure_future(self._relay(inner, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # a side went away, or all ends
        finally:
            del self._pairs[task]
            for one in writers:
                one.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_CHUNK):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            if self.broken and self._dice.random() < self.broken:
                writer.write(piece[: len(piece) // 2])
                await writer.drain()
                return
            writer.write(piece)
            await writer.drain()


def while_set(front: Front, name: str, value: float, wait: Callable[[float], Any], seconds: float) -> None:
    """One of the front's troubles, for some time."""
    setattr(front, name, value)
    try:
        wait(seconds)
    finally:
        setattr(front, name, 0.0)
