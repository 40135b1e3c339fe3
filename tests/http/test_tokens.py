"""Access tokens over HTTP: every route asks for what it declares, and changes hold from the next request on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute

from sluice.api.auth_needs import ADMIN, NEEDS, OPEN, OPEN_PATHS, Level, Need
from sluice.api.routing import LimitedRoute, RawRoute
from sluice.log_store.tokens_admin import issue
from sluice.log_store.tokens_grants import Resource
from tests.http.checks import V3, error_of
from tests.http.conftest import App
from tests.support.server import QUICK, running

TOKENS = f"{V3}/tokens"
V3_RECORD = b'{"value":{"type":"JSON","data":1}}'
PATH = {
    "{c}": "-",
    "{t}": "orders",
    "{p}": "0",
    "{b}": "0",
    "{g}": "billing",
    "{i}": "one",
    "{m}": "one-1",
    "{name}": "retention.ms",
    "{id}": "none",
    "{query}": "q",
    "{batch}": "7",
    "{part}": "p.http.arrows",
    "{job}": "retention",
    "{file}": "app.js",
}
"""An example of each part of a path."""


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def make(app: App, *grants: str, **more: Any) -> dict[str, str]:
    """Headers of a new token."""
    now_ms = app.log.runtime.clock.wall_ms()
    return bearer(issue(app.log.catalog, "test", grants, now_ms=now_ms, **more).text)


@pytest.fixture
def admin(app: App) -> dict[str, str]:
    return make(app, "admin")


# --- all routes --------------------------------------------------------------------------------


def routes(app: App) -> list[BaseRoute]:
    found: Any = app._app
    while not isinstance(found, FastAPI):
        found = found._app
    return list(flat(found.router.routes))


def flat(found: Iterable[Any]) -> Iterator[BaseRoute]:
    """FastAPI keeps an included router as one entry."""
    for route in found:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            assert route.include_context.prefix == ""
            yield from flat(inner.routes)


def test_every_route_declares_what_it_needs(app: App) -> None:
    declared = set()
    for route in routes(app):
        path, methods = getattr(route, "path", None), getattr(route, "methods", None)
        assert path is not None, f"{route}: a route that is not ours; nothing checks its grants"
        for method in set(methods or ()) - {"HEAD"}:
            assert (method, path) in NEEDS, f"{method} {path}: declare its need in api/auth_needs.py"
            declared.add((method, path))
            need = NEEDS[method, path]
            checked = isinstance(route, RawRoute | LimitedRoute)
            assert checked or need == OPEN, f"{method} {path}: must be a RawRoute or a LimitedRoute to be checked"
            assert not checked or route.need == need
    assert NEEDS.keys() == declared


def call(app: App, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    for part, value in PATH.items():
        path = path.replace(part, value)
    assert "{" not in path, "give its parts an example in PATH"
    path += {"/console/events": "?samples=1"}.get(path, "")  # it would not end
    body = V3_RECORD if path.endswith("/records") else b'{"records":[{"value":1}]}'
    more = {"content": body, "headers": {"Content-Type": "application/json", **headers}} if method != "GET" else {}
    return app.call(method, path, **({"headers": headers} | more))


def right(need: Need) -> str:
    if need.resource is Resource.CLUSTER:
        return "admin"
    return f"{need.operation or 'consume'}:{need.resource}:{'orders' if need.resource is Resource.TOPIC else 'billing'}"


@pytest.mark.parametrize(("method", "path"), sorted(NEEDS), ids=lambda part: part)
def test_a_route_refuses_who_may_not_and_takes_who_may(app: App, admin: dict[str, str], method: str, path: str) -> None:
    need = NEEDS[method, path]
    app.log.create_topic("orders")
    unknown = call(app, method, path, {})
    nothing = call(app, method, path, make(app))
    elsewhere = call(app, method, path, make(app, "consume:topic:other", "admin:group:other", "produce:topic:order"))
    if need.level is Level.OPEN:
        assert unknown.status_code == nothing.status_code == 200
        return
    refused = error_of(unknown, 401)
    assert (refused["error_code"], refused["error"]) == (40101, "SASL_AUTHENTICATION_FAILED")
    assert unknown.headers["WWW-Authenticate"] == "Bearer"
    if need.level is Level.TOKEN:
        assert nothing.status_code == 200
        return
    told = error_of(nothing, 403)
    assert (told["error_code"], told["error"]) == (40301, f"{need.resource.upper()}_AUTHORIZATION_FAILED")
    if need.parameter is not None:
        error_of(elsewhere, 403)
    for grant in (right(need), "admin"):
        taken = call(app, method, path, make(app, grant))
        assert taken.status_code not in (401, 403), taken.text
        assert taken.status_code < 500


def test_what_is_no_route_tells_nothing_without_a_token(app: App, admin: dict[str, str]) -> None:
    for method, path in (("GET", "/none"), ("PUT", "/topics/t"), ("POST", "/metrics"), ("GET", "/topics/a/b/c")):
        error_of(app.call(method, path), 401)
        assert app.call(method, path, headers=admin).status_code in (404, 405)


def test_a_topic_that_may_not_be_seen_is_like_one_that_is_not_there(app: App, admin: dict[str, str]) -> None:
    app.log.create_topic("there")
    who = make(app, "produce:topic:mine")
    for method, path in sorted(NEEDS):
        if "{t}" not in path:
            continue
        there, gone = (call(app, method, path.replace("{t}", name), who) for name in ("there", "gone"))
        assert there.status_code == gone.status_code == 403
        assert there.text.replace("there", "gone") == gone.text
        names = ("x-request-id", "content-length")
        assert [(k, v) for k, v in there.headers.items() if k not in names] == [
            (k, v) for k, v in gone.headers.items() if k not in names
        ]


def test_lists_show_what_may_be_seen(app: App, admin: dict[str, str]) -> None:
    for name in ("orders-1", "orders-2", "bills"):
        app.log.create_topic(name)
    who = make(app, "produce:topic:orders-*")
    seen = ["orders-1", "orders-2"]
    assert app.call("GET", "/topics", headers=who).json() == seen
    listed = app.call("GET", f"{V3}/topics?internal=true", headers=who).json()["data"]
    assert [one["topic_name"] for one in listed] == seen
    configs = app.call("GET", f"{V3}/topics/-/configs", headers=who).json()["data"]
    assert {one["topic_name"] for one in configs} == set(seen)
    assert app.call("GET", "/topics", headers=make(app)).json() == []
    assert app.call("GET", "/topics", headers=admin).json() == ["bills", *seen]


def test_produce_creates_only_what_it_may_write(app: App, admin: dict[str, str]) -> None:
    who, body = make(app, "produce:topic:new-*"), {"records": [{"value": 1}]}
    assert app.call("POST", "/topics/new-1", json=body, headers=who).status_code == 200
    error_of(app.call("POST", "/topics/other", json=body, headers=who), 403)
    assert [meta.name for meta in app.log.topics()] == ["new-1"]


def test_admin_of_a_pattern_creates_and_deletes_within_it(app: App, admin: dict[str, str]) -> None:
    who = make(app, "admin:topic:team-*")
    assert app.call("POST", f"{V3}/topics", json={"topic_name": "team-1"}, headers=who).status_code == 201
    refused = app.call("POST", f"{V3}/topics", json={"topic_name": "other"}, headers=who)
    assert error_of(refused, 403)["error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert app.call("DELETE", f"{V3}/topics/team-1", headers=who).status_code == 204
    error_of(app.call("POST", TOKENS, json={"name": "x", "grants": ["admin"]}, headers=who), 403)


def test_internal_topics_are_for_admins_who_may_read_only(app: App, admin: dict[str, str]) -> None:
    who = make(app, "produce:topic:*", "consume:topic:*", "admin:topic:*")
    for path in (f"{V3}/topics/__cluster_metadata", f"{V3}/topics/__cluster_metadata/partitions/0/records?offset=0"):
        error_of(app.call("GET", path, headers=who), 403)
    body = {"records": [{"value": 1}]}
    error_of(app.call("POST", "/topics/__cluster_metadata", json=body, headers=who), 403)
    for name in ("__cluster_metadata", "__consumer_offsets"):
        assert app.call("POST", f"/topics/{name}", json=body, headers=admin).status_code in (400, 404)


# --- hostile headers ---------------------------------------------------------------------------


def test_only_the_header_counts(app: App, admin: dict[str, str]) -> None:
    text = admin["Authorization"].removeprefix("Bearer ")
    for query in (f"?token={text}", f"?access_token={text}", f"?Authorization=Bearer%20{text}"):
        error_of(app.call("GET", f"/topics{query}"), 401)
    error_of(app.call("GET", "/topics", headers={"Cookie": f"token={text}"}), 401)
    error_of(app.call("GET", "/topics", headers={"Proxy-Authorization": f"Bearer {text}"}), 401)
    for value in (f"Basic {text}", text, "Bearer", f"Bearer {text}x", "Bearer " + "x" * 100_000):
        refused = app.call("GET", "/topics", headers={"Authorization": value})
        error_of(refused, 401)
        assert text not in refused.text
        assert text not in str(refused.headers)
    for twice in ([value for _ in range(2) for value in admin.items()], [*admin.items(), ("authorization", "x")]):
        error_of(app.call("GET", "/topics", headers=twice), 401)
    error_of(app.call("GET", "/topics", headers=[(b"Authorization", b"Bearer \xff\x00")]), 401)
    assert app.call("GET", "/topics", headers=admin).status_code == 200


def test_a_refused_request_leaves_its_body_alone(app: App, admin: dict[str, str]) -> None:
    taken = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            yield b"x" * 1000

    async def work(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/topics/t", content=body())

    error_of(app.run(work), 401)
    assert taken <= 1
    assert app.service.bodies_bytes == 0


def test_open_calls_do_not_look_at_tokens(app: App, admin: dict[str, str]) -> None:
    for path in sorted(OPEN_PATHS):
        assert call(app, "GET", path, {"Authorization": "Bearer wrong"}).status_code == 200
    schema = app.call("GET", "/openapi.json").json()
    assert schema["security"] == [{"token": []}]
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert schema["paths"]["/healthz"]["get"]["security"] == []


# --- create, list, revoke ----------------------------------------------------------------------


def test_the_first_token_opens_the_time_of_tokens(app: App) -> None:
    refused = app.call("POST", TOKENS, json={"name": "web", "grants": ["produce:topic:*"]})
    assert error_of(refused, 400)["error"] == "POLICY_VIOLATION"
    assert app.call("GET", "/topics").status_code == 200
    made = app.call("POST", TOKENS, json={"name": "ops", "grants": ["admin"]})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    body = made.json()
    error_of(app.call("GET", "/topics"), 401)
    error_of(app.call("POST", TOKENS, json={"name": "me too", "grants": ["admin"]}), 401)
    (listed,) = app.call("GET", TOKENS, headers=bearer(body["token"])).json()["data"]
    assert (listed["name"], listed["grants"], listed["expires_ms"]) == ("ops", ["admin"], None)
    assert listed["token_id"] == body["token_id"]
    assert "token" not in listed
    shown = app.call("GET", f"{TOKENS}/{body['token_id']}", headers=bearer(body["token"]))
    assert shown.json() == listed
    assert body["token"].rsplit("_", 1)[1] not in shown.text
    last = app.call("DELETE", f"{TOKENS}/{body['token_id']}", headers=bearer(body["token"]))
    assert error_of(last, 400)["error"] == "POLICY_VIOLATION"


def test_the_first_token_is_made_from_this_machine(app: App) -> None:
    def create(peer: tuple[str, int] | None) -> httpx.Response:
        async def inside() -> httpx.Response:
            transport = httpx.ASGITransport(app=app._app, client=peer)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://sluice") as client:
                return await client.post(TOKENS, json={"name": "n", "grants": ["admin"]})

        return asyncio.run(inside())

    for peer in (("10.0.0.9", 1), ("::ffff:10.0.0.9", 1), None):
        error_of(create(peer), 403)
    assert not app.log.catalog.tokens
    assert create(("::1", 1)).status_code == 201


def test_of_many_first_tokens_one_wins(app: App) -> None:
    async def work(client: httpx.AsyncClient) -> list[httpx.Response]:
        one = {"name": "n", "grants": ["admin"]}
        return await asyncio.gather(*(client.post(TOKENS, json=one) for _ in range(8)))

    answers = app.run(work)
    assert sorted(answer.status_code for answer in answers) == [201] + [401] * 7
    assert len(app.log.catalog.tokens.all()) == 1


def test_revocation_holds_for_the_next_request(app: App, admin: dict[str, str]) -> None:
    app.log.create_topic("orders")
    made = app.call(
        "POST", TOKENS, json={"name": "web", "grants": ["consume:topic:orders"], "expires_in_ms": 10_000}, headers=admin
    ).json()
    who = bearer(made["token"])
    path = f"{V3}/topics/orders/partitions/0/records?offset=0&max_wait_ms=0"
    assert app.call("GET", path, headers=who).status_code == 200
    assert app.call("DELETE", f"{TOKENS}/{made['token_id']}", headers=admin).status_code == 204
    error_of(app.call("GET", path, headers=who), 401)
    assert error_of(app.call("DELETE", f"{TOKENS}/{made['token_id']}", headers=admin), 404)["error"] == (
        "RESOURCE_NOT_FOUND"
    )


def test_a_poll_that_waits_does_not_outlive_its_token(app: App, admin: dict[str, str]) -> None:
    app.log.create_topic("orders")
    who = make(app, "consume:topic:orders")
    token_id = who["Authorization"].split("_")[1]

    async def work(client: httpx.AsyncClient) -> httpx.Response:
        path = f"{V3}/topics/orders/partitions/0/records?offset=0&max_wait_ms=60000"
        poll = asyncio.create_task(client.get(path, headers=who))
        while not app.service.waiting.count:
            await asyncio.sleep(0.002)
        assert (await client.delete(f"{TOKENS}/{token_id}", headers=admin)).status_code == 204
        sent = await client.post("/topics/orders", json={"records": [{"value": "secret"}]}, headers=admin)
        assert sent.status_code == 200
        return await poll

    refused = app.run(work)
    error_of(refused, 401)
    assert "secret" not in refused.text


def test_a_poll_that_waits_does_not_outlive_an_expiry(app: App, admin: dict[str, str]) -> None:
    app.log.create_topic("orders")
    who = make(app, "consume:topic:orders", expires_in_ms=1_000)

    async def work(client: httpx.AsyncClient) -> httpx.Response:
        path = f"{V3}/topics/orders/partitions/0/records?offset=0&max_wait_ms=60000"
        poll = asyncio.create_task(client.get(path, headers=who))
        while not app.service.waiting.count:
            await asyncio.sleep(0.002)
        app.log.runtime.clock.advance(2)  # type: ignore[attr-defined]
        assert (await client.post("/topics/orders", json={"records": [{"value": 1}]}, headers=admin)).status_code == 200
        return await poll

    assert "expired" in error_of(app.run(work), 401)["message"]


def test_a_stream_of_records_ends_with_its_token(app: App, admin: dict[str, str]) -> None:
    app.log.create_topic("orders")
    who = make(app, "produce:topic:orders")
    token_id = who["Authorization"].split("_")[1]

    async def work(client: httpx.AsyncClient) -> httpx.Response:
        async def body() -> AsyncIterator[bytes]:
            yield V3_RECORD
            while app.log.partition("orders", 0).high_watermark < 1:
                await asyncio.sleep(0.002)
            assert (await client.delete(f"{TOKENS}/{token_id}", headers=admin)).status_code == 204
            yield V3_RECORD

        headers = who | {"Content-Type": "application/json"}
        return await client.post(f"{V3}/topics/orders/records", content=body(), headers=headers)

    answer = app.run(work)
    assert '"error_code":40101' in answer.text.splitlines()[-1]
    assert app.log.partition("orders", 0).high_watermark == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "n", "grants": ["fly"]},
        {"name": "n", "grants": ["produce:topic:../x"]},
        {"name": "n", "grants": ["admin"] * 1001},
        {"name": "", "grants": ["admin"]},
        {"name": "a\nb", "grants": ["admin"]},
        {"name": "x" * 201, "grants": ["admin"]},
        {"name": "\ud800", "grants": ["admin"]},
        {"name": "n", "grants": ["admin"], "expires_in_ms": 0},
        {"name": "n", "grants": ["admin"], "expires_in_ms": 2**70},
        {"name": "n", "grants": "admin"},
        {"name": "n", "grants": ["admin"], "id": "mine"},
    ],
)
def test_a_wrong_token_is_refused(app: App, admin: dict[str, str], body: dict[str, Any]) -> None:
    headers = admin | {"Content-Type": "application/json"}
    error_of(app.call("POST", TOKENS, content=json.dumps(body), headers=headers), 400)
    assert len(app.log.catalog.tokens.all()) == 1


def test_names_that_no_storage_should_see_are_refused(app: App) -> None:
    headers = {"Content-Type": "application/json"}
    for name in ("\ud800", "x\udfff", "x" * 250, ""):
        for path, body in ((f"{V3}/producers", {"name": name}), (f"{V3}/topics", {"topic_name": name})):
            error_of(app.call("POST", path, content=json.dumps(body), headers=headers), 400)
    app.log.create_topic("t")
    wrong = {"data": [{"name": "retention.ms", "value": "\ud800"}]}
    error_of(app.call("POST", f"{V3}/topics/t/configs:alter", content=json.dumps(wrong), headers=headers), 400)
    plan = {"plan_id": "p", "kind": "trim", "reason": "\ud800", "base_version": 0, "log_start": 0}
    error_of(app.call("POST", f"{V3}/topics/t/partitions/0/plans", content=json.dumps(plan), headers=headers), 400)


def test_tokens_are_not_logged(app: App, admin: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    text = admin["Authorization"].rsplit("_", 1)[1]
    app.call("GET", "/topics", headers=admin)
    app.call("GET", "/none", headers=admin)
    made = app.call("POST", TOKENS, json={"name": "n", "grants": []}, headers=admin).json()["token"]
    app.call("GET", f"{V3}/tokens", headers=bearer(made))
    assert text not in caplog.text
    assert made.rsplit("_", 1)[1] not in caplog.text


# --- the process -------------------------------------------------------------------------------


def test_tokens_survive_kill_9(tmp_path: Path) -> None:
    with running(tmp_path / "root") as server:
        first = server.client.post(TOKENS, json={"name": "ops", "grants": ["admin"]}).json()
        admin = bearer(first["token"])
        made = server.client.post(TOKENS, json={"name": "a", "grants": ["produce:topic:a"]}, headers=admin).json()
        gone = server.client.post(TOKENS, json={"name": "b", "grants": ["admin"]}, headers=admin).json()
        assert server.client.delete(f"{TOKENS}/{gone['token_id']}", headers=admin).status_code == 204
        server.kill()
        server.start()
        http = server.client
        error_of(http.get("/topics"), 401)
        error_of(http.get("/topics", headers=bearer(gone["token"])), 401)
        assert http.get("/topics", headers=admin).status_code == 200
        body = {"records": [{"value": 1}]}
        assert http.post("/topics/a", json=body, headers=bearer(made["token"])).status_code == 200
        error_of(http.post("/topics/b", json=body, headers=bearer(made["token"])), 403)
        assert http.get("/healthz").status_code == 200
        error_of(http.get("/topics", headers={"Authorization": "Bearer " + "x" * 20_000}), 401)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-c", "from sluice.api.cli import main; main()", *arguments]
    return subprocess.run(
        run, env=os.environ | QUICK | environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_open_address_needs_a_token_and_the_command_makes_one(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with running(root) as server:  # a cluster without tokens
        in_use = command("tokens", "list", "--root", str(root))
        assert in_use.returncode == 1
        assert server.url in in_use.stderr
        server.terminate()
    refused = command("serve", "--root", str(root), "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "there are no access tokens" in refused.stderr
    assert refused.stdout == ""
    made = command("tokens", "create", "--name", "ops", "--grant", "admin", "--root", str(root))
    assert made.returncode == 0, made.stderr
    with running(root, SLUICE_SERVER_HOST="0.0.0.0") as server:
        assert "://0.0.0.0:" in server.url
        error_of(server.client.get("/topics"), 401)
        assert server.client.get("/topics", headers=bearer(made.stdout.strip())).status_code == 200


def test_need_of_tokens_is_admin() -> None:
    assert all(need == ADMIN for (_, path), need in NEEDS.items() if "/tokens" in path)
