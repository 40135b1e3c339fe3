"""Who may see what, hostile data, the keyboard alone, and a service that goes away: in a real Chromium."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Console, Service
from tests.http.checks import V3

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&amp;{{7*7}}'


# --- who may ------------------------------------------------------------------------------------


def test_nothing_is_shown_without_a_token(console: Console) -> None:
    console.refusals = True
    page = console.page
    page.goto(f"{console.origin}/console#/topics")
    field = page.get_by_label("Access token")
    expect(field).to_be_focused()
    field.fill("sluice_nobody_knows")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("SASL_AUTHENTICATION_FAILED")
    assert not any("/v3/" in url for url in console.requests)
    field.fill(console.service.admin)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_visible()
    places = "JSON.stringify({...localStorage}), document.cookie, location.href, document.documentElement.outerHTML"
    stored = page.evaluate(f"() => [{places}]")
    assert not any(console.service.admin in text for text in stored)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Access token")).to_be_visible()
    assert page.evaluate("() => sessionStorage.length") == 0


def test_a_token_sees_and_does_what_its_grants_allow(console: Console, service: Service) -> None:
    service.topic("mine-orders")
    service.topic("secret-plans")
    service.produce("mine-orders", {"value": 1})
    service.commit("hidden-group", "secret-plans", 0)
    token = service.token("consume:topic:mine-*", "consume:group:mine-*", name="reader")["token"]
    console.sign_in(token)
    console.refusals = True
    page = console.page
    expect(page.get_by_text("count the topics that this token may see")).to_be_visible()
    expect(page.get_by_role("link", name="mine-orders")).to_be_visible()
    assert "secret-plans" not in page.content()
    assert "hidden-group" not in page.content()
    for area in ("tokens", "jobs"):
        console.open(area)
        expect(page.get_by_text("CLUSTER_AUTHORIZATION_FAILED")).to_be_visible()
    console.open("topics", "secret-plans")
    expect(page.get_by_text("TOPIC_AUTHORIZATION_FAILED")).to_be_visible()
    console.open("groups", "hidden-group")
    expect(page.get_by_text("GROUP_AUTHORIZATION_FAILED")).to_be_visible()
    console.open("produce", "mine-orders")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("TOPIC_AUTHORIZATION_FAILED")
    console.open("messages", "mine-orders")
    expect(page.get_by_text("1 record, newest first.")).to_be_visible()


def test_a_token_that_is_revoked_is_asked_for_again(console: Console, service: Service) -> None:
    made = service.token("consume:topic:*", name="short-lived")
    console.sign_in(made["token"])
    page = console.page
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    console.refusals = True
    assert service.server.client.delete(f"{V3}/tokens/{made['token_id']}").status_code == 204
    expect(page.get_by_label("Access token")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("SASL_AUTHENTICATION_FAILED")


# --- hostile data, the keyboard ------------------------------------------------------------------


def test_hostile_data_is_only_text(console: Console, service: Service) -> None:
    topic = service.topic("hostile")
    header = {"name": HOSTILE, "value": "PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4="}
    service.produce(topic, {"key": HOSTILE, "value": {HOSTILE: HOSTILE}, "headers": [header]})
    service.commit(HOSTILE[:60].replace("/", ""), topic, 0)
    made = service.token("consume:topic:none", name=HOSTILE)
    page = console.sign_in().page
    console.open("messages", topic)
    page.get_by_role("button", name="Record 0:0").click()
    shown = page.get_by_role("region", name="Value")
    expect(shown).to_contain_text("<script>window.hacked=1</script>")
    assert json.loads(shown.inner_text()) == {HOSTILE: HOSTILE}
    expect(page.locator(".detail:visible")).to_contain_text("= <script>window.hacked=1</script>")
    console.open("groups")
    page.get_by_role("link", name="<img src=x").click()
    expect(page.get_by_role("heading", level=1, name="<img src=x")).to_be_visible()
    console.open("tokens")
    expect(page.get_by_role("row").filter(has_text="<img src=x")).to_be_visible()
    made_of_it = "document.querySelectorAll('main img, main script').length"
    assert page.evaluate(f"() => [window.hacked, {made_of_it}]") == [None, 0]
    assert "x" not in {url.rpartition("/")[2] for url in console.requests}
    service.server.client.delete(f"{V3}/tokens/{made['token_id']}")


def test_markup_from_text_is_forbidden_by_the_policy(console: Console) -> None:
    page = console.sign_in().page
    attempt = "try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; }"
    refused = page.evaluate(f"() => {{ {attempt} }}")
    assert refused == "TypeError"
    console.errors.clear()  # the browser reports the attempt, as it should


def test_the_keyboard_is_enough(console: Console, service: Service) -> None:
    page = console.sign_in().page
    page.reload()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    press = page.keyboard.press
    press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    assert skip.bounding_box()["y"] >= 0  # it can be seen while it has the focus
    press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.reload()
    for _ in range(12):
        press("Tab")
        if page.evaluate("() => document.activeElement.textContent") == "Topics":
            break
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    press("Enter")
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_focused()
    press("Tab")
    make = page.get_by_role("button", name="Create topic")
    expect(make).to_be_focused()
    press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    press("Escape")
    expect(make).to_be_focused()
    press("Enter")
    page.keyboard.type("typed")
    press("Enter")
    expect(page.get_by_role("link", name="typed", exact=True)).to_be_visible()
    assert service.server.client.get(f"{V3}/topics/typed").status_code == 200


def test_a_service_that_stops_and_comes_back(console: Console, service: Service) -> None:
    page = console.sign_in().page
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    server = service.server
    server.port = int(server.url.rpartition(":")[2])
    assert server.terminate() == 0
    expect(page.get_by_text("Reconnecting")).to_be_visible()
    authorization = server.client.headers["Authorization"]
    server.start()
    server.client.headers["Authorization"] = authorization
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    assert all("net::ERR_" in text for text in console.errors)  # the browser reports each attempt
    console.errors.clear()


@pytest.mark.parametrize("path", ["nowhere", "topics/a/b"])
def test_a_page_that_is_none(console: Console, path: str) -> None:
    page = console.sign_in().page
    console.open(*path.split("/"))
    expect(page.get_by_role("heading", level=1, name="Not found")).to_be_visible()


# --- the page of HTTP calls ---------------------------------------------------------------------


def test_the_calls_are_shown_without_a_request_to_anybody_else(console: Console) -> None:
    page = console.page
    page.goto(f"{console.origin}/docs")
    call = page.locator("#calls").get_by_role("link", name="/topics/{t}", exact=True).first
    call.click()
    expect(page.get_by_role("button", name="Try it out").first).to_be_visible()
    assert {url.partition("/docs/assets/")[2] for url in console.requests if "/assets/" in url} >= {
        "swagger-ui-bundle.js",
        "swagger-ui.css",
        "app.js",
    }
