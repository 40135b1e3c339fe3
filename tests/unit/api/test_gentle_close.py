"""From its close on a gentle transport takes nothing more, and hands over what it was given before."""

from __future__ import annotations

import asyncio
from typing import cast

from sluice.api.gentle_close import GentleTransport


class Closing(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gentle = GentleTransport(cast("asyncio.Transport", transport), self, lambda: True)
        gentle.write(b"answer")
        gentle.close()
        assert gentle.is_closing()
        gentle.write(b"of an earlier request, too late")
        gentle.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


def test_nothing_is_written_after_the_end() -> None:
    async def talk() -> bytes:
        closing = Closing()
        server = await asyncio.get_running_loop().create_server(lambda: closing, "127.0.0.1", 0)
        async with server, asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"x" * 100_000)
            found = await reader.read()
            writer.close()
            await writer.wait_closed()
            await closing.lost.wait()
        return found

    assert asyncio.run(talk()) == b"answer"
