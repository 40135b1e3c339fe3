"""The access tokens of a cluster: one more state that is a replay of `__cluster_metadata`, beside `CatalogState`.

Commands decide and return records, `apply` alone changes anything. A revocation deletes the record: the key's newest
value is a tombstone, and the id, being random, never comes back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from sluice.log_store.catalog_records import Change, Record, decode_key, decode_value, encode, record
from sluice.log_store.errors import AuthenticationFailed, CorruptData, InvalidRequest, PolicyViolation, ResourceNotFound
from sluice.log_store.tokens_grants import Grant, Grants

TOKEN_TYPE = "token"  # noqa: S105 - the type of a record
MAX_TOKEN_NAME, MAX_GRANTS = 200, 1000
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Token:
    token_id: str
    name: str
    """For people; need not be unique."""
    grants: tuple[Grant, ...]
    secret_sha256: str = field(repr=False)
    created_ms: int
    expires_ms: int | None = None
    allowed: Grants = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed", Grants(self.grants))

    def expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms


class TokenRegistry:
    TYPES = frozenset({TOKEN_TYPE})

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self.version = 0
        """Rises with every change, after it: what was learnt under the same number still holds."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenRegistry):
            return NotImplemented
        return self._tokens == other._tokens

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __bool__(self) -> bool:
        """Are there any? From then on every request needs one, also when all of them have expired."""
        return bool(self._tokens)

    def find(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)

    def get(self, token_id: str) -> Token:
        token = self._tokens.get(token_id)
        if token is None:
            raise ResourceNotFound(f"there is no token {token_id[:80]!r}", token_id=token_id)
        return token

    def all(self) -> list[Token]:
        """Oldest first."""
        return sorted(self._tokens.values(), key=lambda token: (token.created_ms, token.token_id))

    # --- commands ------------------------------------------------------------------------------

    def create(self, token: Token, *, first_only: bool = False) -> Change[Token]:
        """`first_only`: its maker proved nothing, so this must be the very first."""
        if self._tokens and first_only:
            raise AuthenticationFailed("there are access tokens now: send one in the header Authorization")
        if not self._tokens and not token.allowed.admin:
            raise PolicyViolation("the first token must grant admin: nobody could create another one", field="grants")
        _check(token)
        if token.token_id in self._tokens:
            raise ValueError(f"{token.token_id!r} is no fresh token id")
        return Change((record(_key(token.token_id), _value(token)),), token)

    def revoke(self, token_id: str, now_ms: int) -> Change[Token]:
        token = self.get(token_id)
        admins = [one for one in self._tokens.values() if one.allowed.admin and not one.expired(now_ms)]
        if admins == [token]:
            raise PolicyViolation(
                f"{token_id} is the last token that grants admin: create another one first", field="token_id"
            )
        return Change(((encode(_key(token_id)), None),), token)

    # --- replay --------------------------------------------------------------------------------

    def apply(self, key: bytes, value: bytes | None) -> None:
        try:
            token_id = str(decode_key(key)["id"])
            if value is None:
                self._tokens.pop(token_id, None)
            else:
                self._tokens[token_id] = _token_from_json(token_id, decode_value(value))
        except (AttributeError, InvalidRequest, KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"metadata record {key!r} is damaged: {type(error).__name__}", key=key) from error
        self.version += 1

    def apply_all(self, records: Iterable[Record]) -> None:
        for key, value in records:
            self.apply(key, value)


def parse_grants(texts: Collection[str]) -> tuple[Grant, ...]:
    """In order, without repeats. InvalidRequest with the first that is wrong."""
    if len(texts) > MAX_GRANTS:
        raise InvalidRequest(f"grants: must not be more than {MAX_GRANTS}", field="grants")
    return tuple(dict.fromkeys(Grant.parse(text) for text in texts))


def _check(token: Token) -> None:
    if not 1 <= len(token.name) <= MAX_TOKEN_NAME or not token.name.isprintable():
        raise InvalidRequest(f"name: must be 1 to {MAX_TOKEN_NAME} printable characters", field="name")
    if token.expired(token.created_ms):
        raise InvalidRequest("expires: must lie in the future", field="expires_in_ms")


def _key(token_id: str) -> dict[str, Any]:
    return {"type": TOKEN_TYPE, "id": token_id}


def _value(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "grants": [str(grant) for grant in token.grants],
        "secret_sha256": token.secret_sha256,
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
    }


def _token_from_json(token_id: str, value: dict[str, Any]) -> Token:
    expires_ms, secret_sha256 = value["expires_ms"], str(value["secret_sha256"])
    if not _HASH.fullmatch(secret_sha256):
        raise ValueError("no hash")
    return Token(
        token_id=token_id,
        name=str(value["name"]),
        grants=tuple(Grant.parse(text) for text in value["grants"]),
        secret_sha256=secret_sha256,
        created_ms=int(value["created_ms"]),
        expires_ms=None if expires_ms is None else int(expires_ms),
    )
