"""From its close on a gentle transport takes nothing more, and hands over what it was given before."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from sluice.api.gentle_close import (
    CATCH_UP_S,
    DISCARD_RATE,
    LINGER_BYTES,
    LINGER_S,
    SHORTEST_PAUSE_S,
    GentleTransport,
    Pace,
)


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


def seconds_to_read(total: int, piece: int, late_s: float = 0.0) -> float:
    """Of a sender that always has more, by a reader that is woken so much too late."""
    now, pace = 100.0, Pace(100.0)
    for _ in range(total // piece):
        if pause_s := pace.pause_s(piece, now):
            assert pause_s >= SHORTEST_PAUSE_S
            now += pause_s + late_s
    return now - 100.0


@pytest.mark.parametrize("piece", [1000, 8 << 10, 64 << 10, 256 << 10, 1 << 20])
def test_what_nobody_wants_is_read_at_the_rate_in_whatever_pieces_it_comes(piece: int) -> None:
    total = 16 << 20
    assert total / DISCARD_RATE - SHORTEST_PAUSE_S <= seconds_to_read(total, piece) <= total / DISCARD_RATE


def test_a_reader_that_is_woken_late_catches_up_but_has_nothing_saved_up() -> None:
    assert seconds_to_read(LINGER_BYTES, 256 << 10, late_s=CATCH_UP_S / 2) < LINGER_S
    pace = Pace(0.0)
    assert pace.pause_s(1 << 20, 1000.0) < (1 << 20) / DISCARD_RATE
    assert pace.pause_s(int(DISCARD_RATE), 1000.0) > 1.0 - CATCH_UP_S
