"""One produce request and its answer, shared by the one-shot calls and by the batching producer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import httpx

from sluice.api.client_values import UNKNOWN, Acks, Delivery, PartitionDelivery
from sluice.streaming.http_client import Connection, json_of
from sluice.streaming.http_errors import RequestFailed, failure_of, failure_of_record

ANSWER_MARGIN_S = 10.0
"""How much longer than `timeout_ms` an answer is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Who sends, and the number of the request: a repeat carries the same."""

    producer_id: int
    producer_epoch: int
    sequence: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Sluice-Producer-Id": str(self.producer_id),
            "Sluice-Producer-Epoch": str(self.producer_epoch),
            "Sluice-Sequence": str(self.sequence),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest:
    topic: str
    content: bytes
    content_type: str
    count: int
    headers: dict[str, str] = field(default_factory=dict)
    acks: Acks | None = None
    partition: int | None = None
    timeout_ms: int = 30_000
    stamp: Stamp | None = None
    answer: Literal["full", "summary"] = "full"
    """An offset for each record, or one range for each partition."""

    @property
    def path(self) -> str:
        whole = f"/topics/{quote(self.topic, safe='')}"
        return whole if self.partition is None else f"{whole}/partitions/{self.partition}"

    @property
    def params(self) -> dict[str, str | int]:
        params: dict[str, str | int] = {"timeout_ms": self.timeout_ms, "response": self.answer}
        return params if self.acks is None else params | {"acks": self.acks}


def send(connection: Connection, request: ProduceRequest) -> httpx.Response:
    """One try. Records that failed for a reason that may pass fail the request if it may be repeated in whole."""
    response = connection.once(
        "POST",
        request.path,
        params=request.params,
        content=request.content,
        headers={
            "Content-Type": request.content_type,
            **request.headers,
            **(request.stamp.headers if request.stamp else {}),
        },
        timeout_s=request.timeout_ms / 1000 + ANSWER_MARGIN_S,
    )
    failures, whole = _failures(response)
    if response.status_code >= httpx.codes.BAD_REQUEST:
        failed = failure_of(response)
        if failures:
            failed.fields["response"] = response
        raise failed
    passing = [error for error in failures if error.retriable]
    if whole or (passing and request.stamp is not None):
        failed = (passing or failures)[0]
        failed.fields["response"] = response
        raise failed
    return response


def deliveries(request: ProduceRequest, response: httpx.Response) -> list[Delivery | RequestFailed]:
    """For each record of the request, in its order, where it went or why it did not."""
    entries = (json_of(response) or {}).get("offsets") or []
    if len(entries) != request.count:
        return [Delivery(topic=request.topic, partition=UNKNOWN, offset=UNKNOWN)] * request.count
    return [_failure(entry) or _delivery(request.topic, entry) for entry in entries]


def partition_deliveries(response: httpx.Response) -> list[PartitionDelivery]:
    parts = (json_of(response) or {}).get("partitions") or []
    for part in parts:
        if (failed := _failure(part)) is not None:
            raise failed
    return [
        PartitionDelivery(partition=part["partition"], base_offset=_number(part["base_offset"]), count=part["count"])
        for part in parts
    ]


def _failures(response: httpx.Response) -> tuple[Sequence[RequestFailed], bool]:
    """What failed of the request, and whether nothing else is left of it."""
    if b'"error_code":' not in response.content:
        return (), False
    answer = json_of(response) or {}
    entries = answer.get("offsets") or answer.get("partitions") or []
    failures = [failed for entry in entries if (failed := _failure(entry)) is not None]
    return failures, bool(failures) and len(failures) == len(entries)


def _failure(entry: dict[str, Any]) -> RequestFailed | None:
    code = entry.get("error_code")
    return failure_of_record(int(code), entry.get("error")) if code else None


def _delivery(topic: str, entry: dict[str, Any]) -> Delivery:
    return Delivery(topic=topic, partition=_number(entry.get("partition")), offset=_number(entry.get("offset")))


def _number(value: int | None) -> int:
    return UNKNOWN if value is None else value
