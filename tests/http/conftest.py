"""One server for the tests that do not stop it, and an application in this process for those that need its inside."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest

from sluice.api.app import build_app
from sluice.api.service import Service
from tests.support.logs import memory_cluster
from tests.support.server import Server, running

SMALL = {"SLUICE_REQUEST_MAX_BYTES": "1 MiB", "SLUICE_MERGE_QUIET_MS": "600000"}
"""No merge comes between, however long a test takes."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("http") / "root", **SMALL) as found:
        yield found


@pytest.fixture
def http(server: Server) -> httpx.Client:
    return server.client


@pytest.fixture
def topic(http: httpx.Client) -> str:
    """A topic of three partitions for one test."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    created = http.post("/v3/clusters/-/topics", json={"topic_name": name, "partitions_count": 3})
    assert created.status_code == 201, created.text
    return name


class App:
    """The application without a server, on a log in memory."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.log = service.log
        self._app = build_app(service)

    def run(self, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
        async def inside() -> Any:
            transport = httpx.ASGITransport(app=self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://sluice", timeout=60) as client:
                return await work(client)

        return asyncio.run(inside())

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        response: httpx.Response = self.run(lambda client: client.request(method, path, **options))
        return response


@pytest.fixture
def app() -> Iterator[App]:
    with memory_cluster() as cluster:
        log = cluster.open()
        service = Service(log, cluster.settings)
        yield App(service)
        service.close()
