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

        def make(checkpoint: Checkpoint | None = None, **changes: str) -> PlayedQuery:
            options = {"server": server.url, "subscribe": topic, "group.id": group}
            made = PlayedQuery(options | QUICK | {k.replace("_", "."): v for k, v in changes.items()}, checkpoint)
            stack.callback(made.stop)
            return made

        yield make
