"""When gathered commits are written: at once if it is quiet, a moment later if they keep coming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

GATHER_S = 0.002
"""Short against a commit of the log, long against a turn of the loop."""


class FlushSoon:
    """Belongs to the event loop. Called with what writes everything that has come until then."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def __call__(self, flush: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        quiet = loop.time() - self._last > 2 * GATHER_S
        self._last = loop.time()
        if quiet:
            loop.call_soon(flush)
        else:
            loop.call_later(GATHER_S, flush)
