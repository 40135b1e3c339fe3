"""Addresses of what the HTTP service has."""

from __future__ import annotations

from urllib.parse import quote

from sluice.log_store.errors import InvalidRequest

CLUSTER = "/v3/clusters/-"


def topic_path(topic: str) -> str:
    return f"{CLUSTER}/topics/{quote(topic, safe='')}"


def group_path(group: str) -> str:
    if not group:
        raise InvalidRequest("the name of a group must not be empty", field="group")
    return f"{CLUSTER}/consumer-groups/{quote(group, safe='')}"
