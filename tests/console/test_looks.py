"""How the console looks, and to whom: every page at two widths and in two colour schemes, judged by axe-core.

The pictures are left in build/screenshots, for somebody to look at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from sluice.api.console.pulse import HISTORY
from tests.console.conftest import Console, Service, furnish
from tests.support.group_http import Member
from tests.support.jobs import ran

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": TAGS}}
FIRST_VIEW_BYTES = 300_000
PAGES: dict[tuple[str, ...], str] = {
    (): "Overview",
    ("topics",): "Topics",
    ("topics", "shop-readings"): "shop-readings",
    ("messages", "shop-orders"): "Messages",
    ("produce", "shop-orders"): "Produce",
    ("groups",): "Consumer groups",
    ("groups", "shop-billing"): "shop-billing",
    ("groups", "shop-readers"): "shop-readers",
    ("jobs",): "Jobs",
    ("jobs", "vacuum"): "Job vacuum",
    ("tokens",): "Access tokens",
}
WIDTHS = {"phone": 390, "desktop": 1280}


@pytest.fixture(scope="module")
def furnished(service: Service) -> Service:
    furnish(service)
    Member(service.server.client, "shop-readers", ["shop-orders", "shop-payments"], session_ms=120_000).enter()
    ran("vacuum", service.server.root, "--token", service.admin)
    return service


@pytest.fixture
def look(browser: Browser, furnished: Service, request: pytest.FixtureRequest) -> Iterator[Console]:
    scheme, width = request.param
    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": WIDTHS[width], "height": 900},
        reduced_motion="reduce",
        bypass_csp=True,  # axe is injected; the other tests obey the policy
    )
    found = Console(context, furnished).sign_in()
    yield found
    context.close()
    found.check()


def settled(page: Page, title: str) -> None:
    expect(page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.evaluate("() => document.fonts.ready")


def fits(page: Page) -> None:
    """Tables scroll in their own boxes; the page itself never moves sideways."""
    wide, shown = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= shown, page.url


@pytest.mark.parametrize(
    "look",
    [("light", "desktop"), ("dark", "desktop"), ("light", "phone"), ("dark", "phone")],
    ids="-".join,
    indirect=True,
)
def test_every_page(look: Console, shots: Path, request: pytest.FixtureRequest) -> None:
    scheme, width = request.node.callspec.params["look"]
    page, found = look.page, {}
    # Colours are judged in both schemes, structure at both widths: two of the four are enough for axe.
    judged = (scheme, width) in (("light", "desktop"), ("dark", "phone"))
    for path, title in PAGES.items():
        look.open(*path)
        settled(page, title)
        _open_up(page, path)
        fits(page)
        page.screenshot(path=shots / f"{'-'.join(path) or 'overview'}-{scheme}-{width}.png", full_page=True)
        if judged and (wrong := violations(page)):
            found["/".join(path)] = wrong
    assert found == {}


def _open_up(page: Page, path: tuple[str, ...]) -> None:
    if path[:1] == ("messages",):
        page.get_by_role("button", name="Record 0:").nth(1).click()
    if path == ("topics", "shop-readings"):
        expect(page.get_by_role("img", name="Partition 0")).to_be_visible()
    if path == ("groups", "shop-readers"):
        expect(page.get_by_role("cell", name="reads it").first).to_be_visible()
    if path == ("groups", "shop-billing"):
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("Preview: 1 partition would move.")).to_be_visible()


def violations(page: Page) -> list[str]:
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE)
    answer: dict[str, Any] = page.evaluate("rules => axe.run(document, rules)", RULES)
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
        for one in answer["violations"]
        for node in one["nodes"][:3]
    ]


def test_sign_in_and_dialogs(browser: Browser, furnished: Service, shots: Path) -> None:
    context = browser.new_context(viewport={"width": WIDTHS["phone"], "height": 800}, bypass_csp=True)
    console = Console(context, furnished)
    console.refusals = True
    page = console.page
    page.goto(f"{console.origin}/console")
    expect(page.get_by_label("Access token")).to_be_visible()
    page.screenshot(path=shots / "sign-in-light-phone.png")
    wrong = violations(page)
    console.sign_in()
    topic = ["topics", "shop-orders"]
    for button, path in (("Create topic", ["topics"]), ("Create token", ["tokens"]), ("Delete topic", topic)):
        console.open(*path)
        page.get_by_role("button", name=button).click()
        page.screenshot(path=shots / f"dialog-{button.lower().replace(' ', '-')}-light-phone.png")
        wrong += violations(page)
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Menu").click()
    page.screenshot(path=shots / "menu-light-phone.png")
    wrong += violations(page)
    context.close()
    console.check()
    assert wrong == []


def longest_beginning(service: Service) -> int:
    """Bytes of a stream's first two events, had it all the past that is kept."""
    service.server.client.get("/console/events", params={"samples": 3})  # a past, if there was none
    text = service.server.client.get("/console/events", params={"samples": 1}).text
    history, sample = text.split("\n\n")[:2]
    points = json.loads(history.partition("data: ")[2])["points"]
    return len(history) // len(points) * HISTORY + len(sample)


def test_the_first_view_is_small(browser: Browser, furnished: Service) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    console = Console(context, furnished)
    sizes: dict[str, int] = {}

    def count(request: Any) -> None:
        told = request.sizes()
        sizes[request.url] = told["responseBodySize"] + told["responseHeadersSize"]

    console.page.on("requestfinished", count)
    console.sign_in()
    expect(console.page.get_by_text("Live", exact=True)).to_be_visible()
    stream = longest_beginning(furnished)
    context.close()
    console.check()
    assert any(url.endswith("app.js") for url in sizes)
    assert sum(sizes.values()) + stream < FIRST_VIEW_BYTES
    print(f"first view: {sum(sizes.values())} bytes in {len(sizes)} requests, and at most {stream} of the stream")
