"""The OpenAPI document is true: schemathesis makes requests from it and finds no answer that it does not describe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckContext, CheckFunction, not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.transport import Response
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi import checks

from sluice.api.auth_needs import NEEDS
from tests import counts
from tests.http.checks import V3
from tests.support.server import Server, running

ARROW_ONLY = "/parts/"
"""Takes bytes that schemathesis cannot make; `test_sinks` does."""


def wrong_data_is_refused(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """A batch refuses its entries one by one: 207, and none of them was taken."""
    if response.status_code == 207 and response.json().get("successes") == []:
        return None
    return checks.negative_data_rejection(ctx, response, case)


def the_server_does_not_fail(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """Who asks for an answer within a few milliseconds may be told that they have passed."""
    if response.status_code == 504 and "timeout_ms" in (case.query or {}):
        return None
    return not_a_server_error(ctx, response, case)


CHECKS: list[CheckFunction] = [
    the_server_does_not_fail,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    wrong_data_is_refused,
]
SINK = {"query": "q", "batch": 7, "part": "00000-0-5f3c1a2b-00000.http.arrows"}
GROUP = {"g": "billing", "i": "reader", "m": "reader-5f3c1a2b"}
PLACES = {"c": "-", "t": "payments", "p": 0, "b": "0", "name": "retention.ms", "job": "retention"} | SINK | GROUP
"""What there is: addresses made of chance alone would all answer 404."""
Json = dict[str, Any]
LONG_MS = 50


@contextmanager
def furnished(root: Path) -> Iterator[Server]:
    """A service with a token, a topic with records, and a group."""
    few = {"SLUICE_CLUSTER_MAX_PARTITIONS": "60", "SLUICE_FETCH_MAX_WAIT_MS": "20"}
    with running(root, **few) as found:
        made = found.client.post(f"{V3}/tokens", json={"name": "root", "grants": ["admin"]})
        found.client.headers["Authorization"] = f"Bearer {made.json()['token']}"
        created = found.client.post(f"{V3}/topics", json={"topic_name": "payments", "partitions_count": 2})
        assert created.status_code == 201, created.text
        stored = found.client.post("/topics/payments/partitions/0", json={"records": [{"key": "k", "value": 1}] * 60})
        assert stored.status_code == 200, stored.text
        made = found.client.post("/consumers/billing", json={"name": "reader", "format": "json"})
        assert made.status_code == 200, made.text
        reads = {"partitions": [{"topic": "payments", "partition": 0}]}
        assigned = found.client.post("/consumers/billing/instances/reader/assignments", json=reads)
        assert assigned.status_code == 204, assigned.text
        committed = found.client.post(
            f"{V3}/consumer-groups/billing/offsets",
            json={"offsets": [{"topic_name": "payments", "partition_id": 0, "offset": 9}]},
        )
        assert committed.status_code == 200, committed.text
        yield found


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with furnished(tmp_path_factory.mktemp("openapi") / "root") as found:
        yield found


@pytest.fixture(scope="module")
def document(described: Server) -> Json:
    found: Json = described.client.get("/openapi.json").json()
    return found


# --- schemathesis --------------------------------------------------------------------------------


def operations(server: Server) -> list[APIOperation[Any, Any, Any]]:
    """Quotas come last, for they may slow everything down, and what deletes comes before them."""
    authorization = {"Authorization": server.client.headers["Authorization"]}
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=authorization)
    schema.config.generation.update(with_security_parameters=False)
    found = [one.ok() for one in schema.get_all_operations()]
    wanted = [one for one in found if ARROW_ONLY not in one.path]
    return sorted(wanted, key=lambda one: ("quotas" in one.path, one.method == "delete"))


def in_a_real_place(case: Case) -> None:
    """Unless it is the address that is wrong on purpose."""
    meta = case.meta
    wrong = meta.components.get(ParameterLocation.PATH) if meta is not None else None
    if wrong is None or wrong.mode.is_positive:
        deleted = case.method == "DELETE" and "t" in case.path_parameters and "name" not in case.path_parameters
        places = PLACES | ({"t": "nothing"} if deleted else {})
        case.path_parameters = {name: places.get(name, given) for name, given in case.path_parameters.items()}


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: str(mode.value))
def test_schemathesis_finds_nothing(described: Server, mode: GenerationMode, subtests: pytest.Subtests) -> None:
    authorization = {"Authorization": described.client.headers["Authorization"]}
    with requests.Session() as session:
        session.headers.update(authorization)
        for operation in operations(described):
            with subtests.test(operation.label):
                attempt(operation, mode, session)


def attempt(operation: APIOperation[Any, Any, Any], mode: GenerationMode, session: requests.Session) -> None:
    numbers = iter(range(1 << 30))

    @settings(
        max_examples=counts.OPENAPI_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        if next(numbers) % 4:
            in_a_real_place(case)
        if case.query and isinstance(wait_ms := case.query.get("timeout"), int) and wait_ms > LONG_MS:
            case.query["timeout"] = LONG_MS  # a poll that is asked to wait for ages does
        case.call_and_validate(checks=CHECKS, session=session)

    try:
        run()
    except Unsatisfiable:
        assert mode.is_negative, "there must be a right request"
        anything = {"type": "string", "minLength": 1}
        assert all(one["schema"] == anything for one in operation.definition.raw.get("parameters", ()))


# --- the document itself -------------------------------------------------------------------------


def described_operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


_MEMBER = "/v3/clusters/{c}/consumer-groups/{g}/consumers"
UNFIT = {
    ("post", "/v3/clusters/{c}/topics/{t}/partitions/{p}/plans"): 409,
    ("get", "/v3/clusters/{c}/tokens/{id}"): 404,
    ("delete", "/v3/clusters/{c}/tokens/{id}"): 404,
    ("post", "/v3/clusters/{c}/sinks/{query}/batches/{batch}"): 400,
    ("get", f"{_MEMBER}/{{m}}"): 404,
    ("get", f"{_MEMBER}/{{m}}/assignments"): 404,
    ("post", "/consumers/{g}"): 409,
    ("post", "/consumers/{g}/instances/{i}/subscription"): 409,
    ("post", "/v3/clusters/{c}/consumer-groups/{g}/members:join"): 409,
    ("post", "/v3/clusters/{c}/consumer-groups/{g}/members:sync"): 404,
    ("post", "/v3/clusters/{c}/consumer-groups/{g}/members:heartbeat"): 404,
}
"""Examples of what is not there: a version, files, a token, what a task staged, a member; and of what is already."""


def test_the_examples_work(tmp_path: Path, document: Json) -> None:
    def order(one: tuple[str, str, Json]) -> tuple[bool, bool, bool, int]:
        """What deletes comes last, and among it parts before the whole."""
        method, path, _ = one
        whole = (method, path) == ("delete", "/v3/clusters/{c}/topics/{t}")
        return method != "get", "delete" in method + path, whole, -len(path) if method == "delete" else 0

    with furnished(tmp_path / "root") as server:
        for method, path, operation in sorted(described_operations(document), key=order):
            try_example(server, method, path, operation)


def try_example(server: Server, method: str, path: str, operation: Json) -> None:
    required = [one for one in operation.get("parameters", ()) if one["in"] == "query" and one["required"]]
    query = {one["name"]: one["schema"].get("minimum", 1) for one in required}
    bodies = operation.get("requestBody", {"content": {"": {}}})["content"]
    for media, content in bodies.items():
        if media and "example" not in content:
            continue  # Arrow is no text
        answer = server.client.request(
            method,
            path.format_map({"id": "k3v9"} | PLACES),
            params=query,
            json=content.get("example"),
            headers={"Content-Type": media} if media else {},
        )
        wanted = UNFIT.get((method, path))
        place = (method, path, media, answer.text[:500])
        assert answer.status_code == wanted or (wanted is None and answer.status_code < 300), place
        assert str(answer.status_code) in operation["responses"], place


def test_every_route_is_described(document: Json) -> None:
    routes = {(method.lower(), path) for method, path in NEEDS}
    told = {(method, path) for path, operations in document["paths"].items() for method in operations}
    left_out = ("/docs", "/openapi.json", "/console")  # for people and their browsers
    assert {(method, path) for method, path in routes if not path.startswith(left_out)} <= told


def test_every_operation_says_what_it_takes_and_answers(document: Json) -> None:
    names = [operation.get("operationId") for _, _, operation in described_operations(document)]
    assert None not in names
    assert len(set(names)) == len(names)
    for method, path, operation in described_operations(document):
        place = f"{method} {path}"
        assert operation["summary"], place
        assert operation["tags"], place
        good = [status for status in operation["responses"] if status.startswith("2")]
        assert good, place
        assert {"500", "503"} <= operation["responses"].keys(), place
        bodies = {status: answer.get("content", {}) for status, answer in operation["responses"].items()}
        if "requestBody" in operation:
            bodies["taken"] = operation["requestBody"]["content"]
        for status, content in bodies.items():
            assert content or status == "204", (place, status)
            for media, body in content.items():
                assert body["schema"], (place, status)
                if media.endswith("json"):
                    check_examples(document, body, f"{place} {status}")
        for status, content in bodies.items():
            if status.startswith(("4", "5")):
                assert error_schema(document, content), (place, status)
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], (place, parameter)


def check_examples(document: Json, body: Json, place: str) -> None:
    examples = [body["example"]] if "example" in body else [one["value"] for one in body["examples"].values()]
    whole = body["schema"] | {"components": document["components"]}
    for example in examples:
        assert jsonschema_rs.is_valid(whole, example), (place, example)


def error_schema(document: Json, content: Json) -> bool:
    """ErrorModel, or one with more members."""
    name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    model = document["components"]["schemas"][name]
    return {"error_code", "message", "error", "retriable"} <= set(model["required"])
