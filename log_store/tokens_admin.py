"""Issue and revoke access tokens of a cluster that this process leads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sluice.log_store.catalog import Catalog
from sluice.log_store.errors import InvalidRequest
from sluice.log_store.tokens import Token, parse_grants
from sluice.log_store.tokens_text import new_token

MAX_LIFE_MS = 100 * 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Issued:
    token: Token
    text: str = field(repr=False)
    """Shown once: only a hash of it is kept."""


def issue(
    catalog: Catalog,
    name: str,
    grants: Collection[str],
    *,
    now_ms: int,
    expires_in_ms: int | None = None,
    first_only: bool = False,
) -> Issued:
    """Committed and in force when it returns."""
    if expires_in_ms is not None and not 1 <= expires_in_ms <= MAX_LIFE_MS:
        raise InvalidRequest(f"expires_in_ms: must be from 1 to {MAX_LIFE_MS}", field="expires_in_ms")
    text, token_id, secret_sha256 = new_token()
    expires_ms = None if expires_in_ms is None else now_ms + expires_in_ms
    token = Token(token_id, name, parse_grants(grants), secret_sha256, now_ms, expires_ms)
    return Issued(catalog.change_tokens(lambda tokens: tokens.create(token, first_only=first_only)), text)


def revoke(catalog: Catalog, token_id: str, *, now_ms: int) -> Token:
    """Committed and refused from now on when it returns."""
    return catalog.change_tokens(lambda tokens: tokens.revoke(token_id, now_ms))
