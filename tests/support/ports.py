"""Ports for servers that must be told theirs before they start."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_RANGE = (20_000, 32_000)
"""Below what Linux gives to outgoing connections: nobody gets one of these by chance before the server has it."""


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            port = random.SystemRandom().randint(*_RANGE)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
