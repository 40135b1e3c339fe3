"""Hostile bodies for everything that changes the cluster: refused with a reason and without a trace, or done."""

from __future__ import annotations

import copy
import json
from collections import Counter

import httpx
import pytest

from tests import counts
from tests.http.checks import error_of
from tests.http.conftest import App
from tests.http.test_hostile import refused
from tests.support.hostile_admin import CALLS, AdminAttack, admin_attacks
from tests.support.logs import append, batch


def fingerprint(app: App) -> tuple[object, ...]:
    """All that these calls may change."""
    catalog = app.log.catalog
    topic = [(led.log_start, led.high_watermark, led.state.version) for led in (app.log.partition("t", 0),)]
    return copy.deepcopy(catalog.state), [str(token) for token in catalog.tokens.all()], topic


def test_hostile_bodies_of_admin_calls(app: App) -> None:
    app.log.create_topic("t")
    append(app.log, "t", 0, batch("a", "b", "c"))
    statuses: Counter[tuple[str, str, bool]] = Counter()

    async def work(client: httpx.AsyncClient) -> None:
        made = await client.post("/v3/clusters/-/tokens", json={"name": "root", "grants": ["admin"]})
        client.headers["Authorization"] = f"Bearer {made.json()['token']}"
        for attack in admin_attacks(counts.HOSTILE_ADMIN_BODIES):
            before = fingerprint(app)
            answer = await client.request(
                attack.method,
                attack.path.format(t="t"),
                content=attack.body,
                headers={"Content-Type": "application/json"},
            )
            good = answer.status_code < 300
            statuses[attack.method, attack.path, good] += 1
            if not good:
                told(attack, answer)
                assert fingerprint(app) == before, str(attack)

    app.run(work)
    for method, path in CALLS:
        assert statuses[method, path, False], (method, path)
    assert sum(count for (_, _, good), count in statuses.items() if good) > counts.HOSTILE_ADMIN_BODIES // 50


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "/", "../../../_sluice/x", "a/b", "\0", "٠" * 20 + "-0-a.parquet", "0" * 20 + "-1-a.parquet/x"],
)
def test_a_plan_cannot_name_a_file_outside_its_partition(app: App, path: str) -> None:
    app.log.create_topic("t")
    plan = json.loads(json.dumps(CALLS["POST", "/v3/clusters/-/topics/{t}/partitions/0/plans"]))
    plan["adds"][0]["path"] = path
    answer = app.call("POST", "/v3/clusters/-/topics/t/partitions/0/plans", json=plan | {"removes": []})
    assert "not a plain data file name" in error_of(answer, 409)["message"]


def told(attack: AdminAttack, answer: httpx.Response) -> None:
    assert answer.status_code < 500, (str(attack), answer.text)
    refused(str(attack), error_of(answer, answer.status_code))
