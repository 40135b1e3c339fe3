"""Access tokens over HTTP. Their server wants a token that grants admin, or has none yet and runs on this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from sluice.streaming.http_client import Connection
from sluice.streaming.http_paths import CLUSTER

_PATH = f"{CLUSTER}/tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    token_id: str
    name: str
    grants: tuple[str, ...]
    created_ms: int
    expires_ms: int | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken(TokenInfo):
    token: str = field(repr=False)
    """What a client sends. It cannot be shown again."""


class Tokens:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, name: str, grants: Collection[str], *, expires_in_ms: int | None = None) -> NewToken:
        """Grants are `admin` or `produce|consume|admin:topic|group:PATTERN`."""
        body = {"name": name, "grants": list(grants), "expires_in_ms": expires_in_ms}
        answer = self._connection.json("POST", _PATH, body=body, repeatable=False)
        return NewToken(**_facts(answer), token=answer["token"])

    def list(self) -> list[TokenInfo]:
        """Oldest first."""
        answer = self._connection.json("GET", _PATH, repeatable=True)
        return [TokenInfo(**_facts(entry)) for entry in answer["data"]]

    def revoke(self, token_id: str) -> None:
        """Refused from the next request on."""
        self._connection.call("DELETE", f"{_PATH}/{quote(token_id, safe='')}", repeatable=False)


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = ("token_id", "name", "created_ms", "expires_ms", "expired")
    return {name: entry[name] for name in names} | {"grants": tuple(entry["grants"])}
