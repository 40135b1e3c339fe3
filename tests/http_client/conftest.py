"""The client and the command line against a real service in a process of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice.api.cli import app
from sluice.api.client import SluiceClient
from tests.support.server import Server, running

GROUPS = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
    "SLUICE_OFFSETS_TOPIC_NUM_PARTITIONS": "2",
}
"""Groups that settle at once."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("http_client") / "root", **GROUPS) as found:
        yield found


@pytest.fixture
def client(server: Server) -> Iterator[SluiceClient]:
    with SluiceClient(server.url) as found:
        yield found


@pytest.fixture
def topic(client: SluiceClient) -> str:
    """A topic of three partitions for one test."""
    return client.topics.create(f"t-{uuid.uuid4().hex[:8]}", partitions=3).name


@pytest.fixture
def sluice(server: Server) -> Callable[..., Any]:
    """The command, with the server in its environment."""

    def run(*arguments: str, stdin: bytes = b"") -> Any:
        environment = {"SLUICE_SERVER": server.url, "COLUMNS": "200"}
        return CliRunner().invoke(app, list(arguments), input=stdin, env=environment)

    return run
