"""Lists in the documents against the service: calls with their grants, metrics, alerts, panels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sluice.api.auth_needs import NEEDS, Level, Need
from sluice.jobs.job_metrics import JobMetrics
from sluice.jobs.work import DONE
from sluice.streaming.spark.job_progress import BatchFigures, metrics_text
from tests.support.documents import DOCUMENTS, METRIC, ROOT, column, exposed_metrics, unknown_metrics
from tests.support.server import Server

HTTP, OPERATIONS = ROOT / "docs" / "http.md", ROOT / "docs" / "operations.md"
MONITORING = ROOT / "conf" / "monitoring"
METHODS = ("get", "post", "put", "patch", "delete")
Json = dict[str, Any]


# --- calls ---------------------------------------------------------------------------------------


def _plain(call: str) -> str:
    """What a parameter is called does not matter."""
    return re.sub(r"\{\w+\}", "{}", call)


def _grant(need: Need) -> str:
    if need.level is Level.OPEN:
        return "none"
    if need.level is Level.TOKEN:
        return "any token"
    if need.resource.value == "cluster":
        return "`admin`"
    operation = f"`{need.operation.value}`" if need.operation else "any"
    return f"{operation} on the {need.resource.value}" if need.parameter else f"{operation} on something"


def test_the_reference_has_every_call_with_its_grant(server: Server):
    document = server.client.get("/openapi.json").json()
    served = {_plain(f"{method.upper()} {path}") for path, calls in document["paths"].items() for method in calls}
    assert {call.split()[0].lower() for call in served} <= set(METHODS)
    calls = [_plain(cell.strip("`")) for cell in column(HTTP, "All calls")[1:]]
    assert len(calls) == len(set(calls))
    assert set(calls) == served
    needs = {_plain(f"{method} {path}"): _grant(need) for (method, path), need in NEEDS.items()}
    assert dict(zip(calls, column(HTTP, "All calls", 1)[1:], strict=True)) == {call: needs[call] for call in calls}


# --- metrics -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_service(server: Server) -> dict[str, str]:
    return exposed_metrics(server.client.get("/metrics").text)


@pytest.fixture(scope="module")
def of_jobs() -> dict[str, str]:
    """Of the scheduler, and of a consumer job's file."""
    jobs = JobMetrics()
    jobs.began("retention", 1)
    jobs.ended("retention", DONE, 2, None)
    figures = BatchFigures(batch=1, rows=1, rows_per_s=1.0, seconds=1.0, lag={})
    return exposed_metrics(jobs.text()) | exposed_metrics(metrics_text("job", figures, 1))


@pytest.fixture(scope="module")
def known(of_service: dict[str, str], of_jobs: dict[str, str]) -> dict[str, str]:
    return of_service | of_jobs


def test_metrics_that_documents_name_exist(known: dict[str, str]):
    for document in DOCUMENTS:
        named = "\n".join(re.findall(r"`[^`\n]*`", document.read_text()))
        assert unknown_metrics(named, known) == set(), document.name


def test_every_metric_of_the_service_is_explained(of_service: dict[str, str]):
    assert of_service
    assert set(of_service) - set(METRIC.findall(OPERATIONS.read_text())) == set()


# --- rules and dashboard -------------------------------------------------------------------------


def _balanced(expression: str) -> bool:
    closing, waiting = {")": "(", "]": "[", "}": "{"}, []
    for character in re.sub(r'"[^"]*"', "", expression):
        if character in closing.values():
            waiting.append(character)
        elif character in closing and (not waiting or waiting.pop() != closing[character]):
            return False
    return not waiting


def test_the_rules_ask_for_what_there_is(known: dict[str, str]):
    rules = yaml.safe_load((MONITORING / "sluice-rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 10
    assert len({group["name"] for group in rules["groups"]}) == len(rules["groups"])
    for rule in alerts:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert unknown_metrics(rule["expr"], known) == set()
        assert METRIC.search(rule["expr"]) or re.search(r"\bup\b", rule["expr"])
        assert _balanced(rule["expr"])


def test_what_to_scrape_names_the_rules_and_the_jobs_that_they_use():
    scraped = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert all((MONITORING / name).exists() for name in scraped["rule_files"])
    jobs = {job["job_name"] for job in scraped["scrape_configs"]}
    rules = (MONITORING / "sluice-rules.yml").read_text()
    dashboard = json.dumps(_dashboard()).replace('\\"', '"')
    assert set(re.findall(r'up\{job="([^"]+)"', rules + dashboard)) <= jobs


def _dashboard() -> Json:
    found: Json = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return found


def _queries(dashboard: Json) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def test_the_dashboard_asks_for_what_there_is(known: dict[str, str]):
    dashboard = _dashboard()
    queries = list(_queries(dashboard))
    assert len(queries) > 20
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for query in queries:
        assert unknown_metrics(query, known) == set(), query
        assert METRIC.search(query) or "up{" in query
        assert _balanced(query), query
        assert set(re.findall(r"\$(?!__)(\w+)", query)) <= variables, query


def test_panels_have_names_of_their_own_and_do_not_overlap():
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or panel["targets"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & covered, panel["title"]
        covered |= cells
