"""Queries of one group on one topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.played_groups import QUICK, Make
from tests.support.played_query import Checkpoint, PlayedQuery
from tests.support.server import Server


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def query(server: Server, topic: str, group: str) -> Iterator[Make]:
    """Another member of the group."""
    with ExitStack() as stack:

        def make(checkpoint: Checkpoint | None = None, **changes: str | None) -> PlayedQuery:
            """None: without the option."""
            options = {"server": server.url, "subscribe": topic, "group.id": group, **QUICK}
            options |= {name.replace("_", "."): value for name, value in changes.items()}  # type: ignore[misc]
            made = PlayedQuery({name: value for name, value in options.items() if value is not None}, checkpoint)
            stack.callback(made.stop)
            return made

        yield make
