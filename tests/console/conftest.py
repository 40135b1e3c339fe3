"""A service with tokens and a stream of records, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.http.checks import V3
from tests.support.group_http import QUICK_GROUPS
from tests.support.server import Server, running

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 60_000
"""Only what is broken waits so long, however busy the machine is."""
expect.set_options(timeout=WAIT_MS)


@dataclass
class Service:
    server: Server
    admin: str
    """A token that may do everything."""

    def token(self, *grants: str, name: str = "test") -> dict[str, Any]:
        answer = self.server.client.post(f"{V3}/tokens", json={"name": name, "grants": list(grants)})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        body = {"topic_name": name, "partitions_count": partitions, "configs": given}
        answer = self.server.client.post(f"{V3}/topics", json=body)
        assert answer.status_code == 201, answer.text
        return name

    def produce(self, topic: str, *records: dict[str, Any], partition: int = 0) -> None:
        answer = self.server.client.post(f"/topics/{topic}/partitions/{partition}", json={"records": list(records)})
        assert answer.status_code == 200, answer.text

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        body = {"offsets": [{"topic_name": topic, "partition_id": partition, "offset": offset}]}
        answer = self.server.client.post(f"{V3}/consumer-groups/{quote(group, safe='')}/offsets", json=body)
        assert answer.status_code == 200, answer.text

    def committed(self, group: str) -> list[int]:
        answer = self.server.client.get(f"{V3}/consumer-groups/{group}/offsets").json()
        return [row["offset"] for row in answer["offsets"]]


def started(server: Server) -> Service:
    made = server.client.post(f"{V3}/tokens", json={"name": "root", "grants": ["admin"]}).json()
    server.client.headers["Authorization"] = f"Bearer {made['token']}"
    return Service(server, made["token"])


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("console") / "root", **QUICK_GROUPS) as server:
        yield started(server)


def furnish(service: Service) -> None:
    """Something to see on every page: topics with their files, groups with members and lag, a run of a job."""
    rng = random.Random(7)
    service.topic("shop-orders", 3)
    service.topic("shop-payments", 2, cleanup_policy="compact")
    service.topic("shop-readings", 4, segment_bytes=2_000, retention_ms=3_600_000)
    old_ms = int(time.time() * 1000) - 57 * 60_000  # three minutes before retention takes them
    for number in range(8):
        late = {"value": {"reading": number, "text": "x" * 300}, "timestamp": old_ms}
        service.produce("shop-readings", *[late] * 20, partition=number % 4)
    for number in range(6):
        for topic, partitions in (("shop-orders", 3), ("shop-payments", 2), ("shop-readings", 4)):
            records = [
                {
                    "key": f"c-{rng.randrange(40)}",
                    "value": {"order": number, "item": rng.choice(["lamp", "chair", "desk"]), "price": rng.random()},
                    "headers": [{"name": "trace", "value": "YWJj"}],
                }
                for _ in range(25)
            ]
            service.produce(topic, *records, partition=number % partitions)
    service.produce("shop-orders", {"key": "c-7", "value": None})
    service.commit("shop-billing", "shop-orders", 3)
    for instance in ("one", "two"):
        service.commit(f"shop-report-{instance}", "shop-payments", 20)


def chromium() -> str | None:
    given = os.environ.get("CHROMIUM")
    names = [given] if given else ["chromium", "chromium-browser", "google-chrome"]
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of one module: as long as Playwright runs, nothing else can use asyncio in this thread."""
    path = chromium()
    if path is None:
        pytest.skip("no Chromium was found: run `make test-tools`, or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


class Console:
    """A tab of the console. When the test ends, nothing may have gone wrong in it, and nothing may have left it."""

    def __init__(self, context: BrowserContext, service: Service) -> None:
        self.service = service
        self.origin = service.server.url
        self.context = context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.refusals = False
        """Whether the service is to refuse something; the browser reports each refusal."""
        self.page.on("console", lambda line: self._said(line.type, line.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _said(self, kind: str, text: str) -> None:
        refusal = text.startswith("Failed to load resource: the server responded with a status of 4")
        if kind in ("error", "warning") and not (refusal and self.refusals):
            self.errors.append(text)

    def sign_in(self, token: str | None = None) -> Console:
        """As after a reload: the token is in the tab's storage. `test_access` types one in."""
        self.page.add_init_script(f"sessionStorage.setItem('sluice.token', '{token or self.service.admin}')")
        self.page.goto(f"{self.origin}/console")
        expect(self.page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
        return self

    def open(self, *parts: str) -> Page:
        """A page by its address. Its heading says when it is there."""
        hash_ = "#/" + "/".join(quote(part, safe="") for part in parts)
        self.page.evaluate("hash => { location.hash = hash; }", hash_)
        return self.page

    def check(self) -> None:
        assert self.errors == []
        away = [url for url in self.requests if not url.startswith((f"{self.origin}/", "data:"))]
        assert away == []
        assert not any(self.service.admin in url for url in self.requests)


@pytest.fixture
def console(browser: Browser, service: Service) -> Iterator[Console]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Console(context, service)
    yield found
    context.close()
    found.check()


@pytest.fixture(scope="session")
def shots() -> Path:
    """Where pictures of the pages go; a person looks at them."""
    folder = Path(__file__).parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
