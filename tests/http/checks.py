"""Small questions to a service, and what every refusal must look like."""

from __future__ import annotations

from typing import Any

import httpx

V3 = "/v3/clusters/-"


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The body of a refusal, after checking its shape."""
    assert response.status_code == status, response.text
    body: dict[str, Any] = response.json()
    assert {"error_code", "message", "error", "retriable"} <= body.keys(), body
    code = body["error_code"]
    assert status in (code, code // 100), body
    assert body["message"]
    assert body["error"].isupper()
    if status in (429, 503):
        assert int(response.headers["Retry-After"]) >= 1
    return body


def produce(http: httpx.Client, topic: str, *values: Any, partition: int = 0, **options: Any) -> httpx.Response:
    records = {"records": [{"value": value} for value in values]}
    return http.post(f"/topics/{topic}/partitions/{partition}", json=records, **options)


def fetch(http: httpx.Client, topic: str, offset: int = 0, *, partition: int = 0, **query: Any) -> dict[str, Any]:
    response = http.get(
        f"{V3}/topics/{topic}/partitions/{partition}/records", params={"offset": offset, "max_wait_ms": 0, **query}
    )
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def values(http: httpx.Client, topic: str, partition: int = 0) -> list[Any]:
    return [record["value"] for record in fetch(http, topic, partition=partition, max_records=100_000)["data"]]


def offsets(response: httpx.Response) -> list[tuple[int, int]]:
    assert response.status_code == 200, response.text
    return [(one["partition"], one["offset"]) for one in response.json()["offsets"]]


def new_producer(http: httpx.Client, mode: str, **more: Any) -> dict[str, str]:
    """Headers of a producer, without its sequence."""
    made = http.post(f"{V3}/producers", json={"mode": mode, **more})
    assert made.status_code == 200, made.text
    body = made.json()
    return {"Sluice-Producer-Id": str(body["producer_id"]), "Sluice-Producer-Epoch": str(body["producer_epoch"])}
