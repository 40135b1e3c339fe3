"""Who asks, and may they: the access check in front of every route.

Without any stored token everything is allowed, which is why such a service listens on loopback only. From the first
token on every call but the open ones needs one. The registry of the log is asked each time, so a token that was
revoked is refused by the next request; only the work of verifying a secret is remembered.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from sluice.api.auth_needs import Level, Need
from sluice.log_store.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    SluiceError,
    TopicAuthorizationFailed,
)
from sluice.log_store.tokens import Token, TokenRegistry
from sluice.log_store.tokens_grants import EVERYTHING_ALLOWED, Grants, Operation, Resource
from sluice.log_store.tokens_text import matches, split

MAX_HEADER_BYTES = 256
"""A token has 67 characters; nothing longer is worth a hash."""

_REFUSALS: Mapping[Resource, type[AuthorizationFailed]] = {
    Resource.TOPIC: TopicAuthorizationFailed,
    Resource.GROUP: GroupAuthorizationFailed,
    Resource.CLUSTER: ClusterAuthorizationFailed,
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request."""

    token_id: str | None
    """None: nobody in particular; there are no tokens."""
    name: str
    grants: Grants
    expires_ms: int | None = None


ANYBODY = Principal(None, "anybody", EVERYTHING_ALLOWED)


class Access:
    """Belongs to the event loop. `fenced` answers the error of a process that another one replaced, or None."""

    def __init__(
        self, tokens: TokenRegistry, now_ms: Callable[[], int], fenced: Callable[[], SluiceError | None] = lambda: None
    ) -> None:
        self._tokens = tokens
        self._now_ms = now_ms
        self._fenced = fenced
        self._version = -1
        self._verified: dict[bytes, Principal] = {}
        """By the SHA-256 of the token's text, so that the time of the lookup tells nothing about a text."""

    @property
    def asks(self) -> bool:
        """Whether there are tokens at all."""
        return bool(self._tokens)

    def authenticate(self, scope: Scope) -> Principal:
        """Who asks; also left in the scope. AuthenticationFailed without a valid token where there are tokens."""
        principal = self._authenticated(scope["headers"]) if self._tokens else ANYBODY
        scope["sluice.principal"] = principal
        if principal.token_id is not None:
            scope["sluice.user"] = principal.name  # what quotas and the log call it
        return principal

    def enter(self, scope: Scope) -> None:
        """The whole check for the route that was found. May be repeated while a request goes on."""
        need: Need = scope["route"].need
        if need.level is not Level.OPEN:
            authorize(self.authenticate(scope), need, scope["path_params"])

    async def guard(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """Call the handler if that is allowed, and keep what it read if that is not allowed any more."""
        scope, version = request.scope, self._tokens.version
        self.enter(scope)
        response = await handler(request)
        # A poll may have waited for minutes. What was written is written: only reads are asked again.
        if scope["method"] == "GET" and (self._tokens.version != version or _may_expire(scope)):
            self.enter(scope)
        return response

    def _authenticated(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        refusal = self._fenced()
        if refusal is not None:
            raise refusal  # its tokens may have been revoked where this process cannot see it
        text = _bearer(headers)
        version = self._tokens.version
        if version != self._version:
            self._version, self._verified = version, {}
        digest = hashlib.sha256(text).digest()
        principal = self._verified.get(digest)
        if principal is None:
            principal = self._verified[digest] = self._verify(text)
        if principal.expires_ms is not None and self._now_ms() >= principal.expires_ms:
            raise AuthenticationFailed("the access token has expired")
        return principal

    def _verify(self, text: bytes) -> Principal:
        parts = split(text)
        if parts is None:
            raise _invalid()
        token_id, secret = parts
        token: Token | None = self._tokens.find(token_id)
        if not matches(secret, None if token is None else token.secret_sha256) or token is None:
            raise _invalid()
        return Principal(token_id, token.name, token.allowed, token.expires_ms)


def _may_expire(scope: Scope) -> bool:
    principal: Principal | None = scope.get("sluice.principal")
    return principal is not None and principal.expires_ms is not None


def _bearer(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The token of the one Authorization header. Nothing of it is ever repeated in an answer."""
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        raise AuthenticationFailed("this service needs an access token: send Authorization: Bearer TOKEN")
    if len(given) > 1:
        raise AuthenticationFailed("the header Authorization must be given once")
    value = given[0]
    if len(value) > MAX_HEADER_BYTES or value[:7].lower() != b"bearer ":
        raise AuthenticationFailed("the header Authorization must be: Bearer TOKEN")
    return value[7:].strip(b" ")


def _invalid() -> AuthenticationFailed:
    return AuthenticationFailed("the access token is not valid, or was revoked")


# --- may they ------------------------------------------------------------------------------------


def authorize(principal: Principal, need: Need, params: Mapping[str, Any]) -> None:
    """AuthorizationFailed with Kafka's name for what is not granted, whether or not the thing exists."""
    if need.level is not Level.GRANT:
        return
    name = None if need.parameter is None else str(params[need.parameter])
    if need.every is not None and name == need.every:
        return
    _refuse_unless(principal, need.operation, need.resource, name)


def principal_of(request: Request) -> Principal:
    principal: Principal = request.scope["sluice.principal"]
    return principal


def check_topic(request: Request, operation: Operation, name: str) -> None:
    """For a handler that finds a topic in the body."""
    _refuse_unless(principal_of(request), operation, Resource.TOPIC, name)


def check_group(request: Request, operation: Operation, name: str) -> None:
    _refuse_unless(principal_of(request), operation, Resource.GROUP, name)


def sees_topic(request: Request, name: str) -> bool:
    """May it be shown in a list? Any grant on it is enough."""
    return principal_of(request).grants.allow(None, Resource.TOPIC, name)


def _refuse_unless(principal: Principal, operation: Operation | None, resource: Resource, name: str | None) -> None:
    if principal.grants.allow(operation, resource, name):
        return
    what = "the cluster" if resource is Resource.CLUSTER else f"any {resource}" if name is None else None
    verb = "see" if operation is None else "administer" if operation is Operation.ADMIN else f"{operation} on"
    raise _REFUSALS[resource](f"this token may not {verb} {what or f'{resource} {str(name)[:250]!r}'}")


# --- addresses -----------------------------------------------------------------------------------


def is_loopback(address: str) -> bool:
    """Also for the IPv4 addresses that a socket of both families sees inside IPv6 ones."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def from_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(str(client[0]))
