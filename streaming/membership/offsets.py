"""Committed offsets as they travel over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from sluice.log_store.values import TopicPartition
from sluice.streaming.http_client import Connection, RetryPolicy, json_of
from sluice.streaming.http_errors import RequestFailed, failure, failure_of

NO_OFFSET = -1
ONCE = RetryPolicy(budget_s=0.0)
"""Who calls decides whether and when to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """`offset` is the next one to read."""

    offset: int
    metadata: str = ""
    commit_timestamp_ms: int | None = None
    topic_id: str | None = None
    """Of the topic that it was committed for (R-8)."""
    query: str | None = None
    """The Spark query that committed it, and as of which of its batches."""
    batch: int | None = None


def committed_of(answer: Any) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(entry["topic_name"], entry["partition_id"]): CommittedOffset(
            offset=entry["offset"],
            metadata=entry.get("metadata") or "",
            commit_timestamp_ms=entry.get("commit_timestamp"),
            topic_id=entry.get("topic_id"),
            query=entry.get("query"),
            batch=entry.get("batch"),
        )
        for entry in answer["offsets"]
        if entry.get("offset", NO_OFFSET) >= 0
    }


def send_offsets(connection: Connection, method: str, path: str, body: object, **request: Any) -> None:
    """Raise what the first partition was refused for. An answer of 4xx has a row for each partition too."""

    def attempt() -> httpx.Response:
        response = connection.once(method, path, body=body, **request)
        rows = _rows(response)
        if rows is None and response.is_error:
            raise failure_of(response)
        for row in rows or ():
            if row.get("error_code"):
                raise _refusal(row)
        return response

    connection.repeat(attempt, ONCE)


def _rows(response: httpx.Response) -> list[dict[str, Any]] | None:
    body = json_of(response)
    found = body.get("offsets") if isinstance(body, dict) else None
    return found if isinstance(found, list) else None


def _refusal(row: Mapping[str, Any]) -> RequestFailed:
    where = f"{row.get('topic_name')}-{row.get('partition_id')}"
    made = failure(str(row.get("error")), f"{where}: {row.get('message') or row.get('error')}")
    made.error_code = row["error_code"]
    made.status = made.error_code // 100 if made.error_code >= 1000 else made.error_code
    return made
