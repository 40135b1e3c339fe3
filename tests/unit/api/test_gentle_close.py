"""From its close on a gentle transport takes nothing more, and hands over what it was given before."""

from __future__ import annotations

import asyncio
from typing import cast

from sluice.api.gentle_close import GentleTransport


class Closing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gentle = GentleTransport(cast("asyncio.Transport", transport), self, lambda: True)
        gentle.write(b"answer")
        gentle.close()
        assert gentle.is_closing()
        gentle.write(b"of an earlier request, too late")
        gentle.close()


def test_nothing_is_written_after_the_end() -> None:
    async def talk() -> bytes:
        server = await asyncio.get_running_loop().create_server(Closing, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"x" * 100_000)
            found = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            await writer.wait_closed()
        return found

    assert asyncio.run(talk()) == b"answer"
