"""What an access token allows: operations on topics and groups by name pattern. Pure.

::

    admin                       everything, tokens and internal topics included
    admin:topic:orders-*        create, change, delete, produce to and read the topics of that prefix
    produce:topic:orders        append to one topic
    consume:topic:*             read every topic that is not internal
    consume:group:billing       take part in one consumer group
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sluice.log_store.errors import InvalidRequest
from sluice.log_store.topic import MAX_NAME

RESERVED_PREFIX = "__"
"""Topics of this prefix belong to the service: no pattern reaches them, only an admin of the cluster reads them."""

EVERYTHING = "admin"
_PATTERN = re.compile(r"\*|[a-zA-Z0-9._-]+\*?")


class Operation(StrEnum):
    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"


class Resource(StrEnum):
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


_ALLOWED = {
    Resource.TOPIC: frozenset(Operation),
    Resource.GROUP: frozenset({Operation.CONSUME, Operation.ADMIN}),
}


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    operation: Operation
    resource: Resource
    pattern: str
    """A name, a prefix with `*` at its end, or `*`."""

    @classmethod
    def parse(cls, text: str) -> Grant:
        """InvalidRequest for anything but `admin` and `OPERATION:topic|group:PATTERN`."""
        if text == EVERYTHING:
            return CLUSTER_ADMIN
        parts = text.split(":")
        if len(parts) != 3 or parts[0] not in tuple(Operation) or parts[1] not in tuple(_ALLOWED):
            raise _refused(text, "must be admin, or OPERATION:topic:PATTERN or OPERATION:group:PATTERN")
        operation, resource, pattern = Operation(parts[0]), Resource(parts[1]), parts[2]
        if operation not in _ALLOWED[resource]:
            raise _refused(text, f"{operation} has no meaning for a {resource}")
        _check_pattern(text, resource, pattern)
        return cls(operation, resource, pattern)

    def __str__(self) -> str:
        return EVERYTHING if self == CLUSTER_ADMIN else f"{self.operation}:{self.resource}:{self.pattern}"


CLUSTER_ADMIN = Grant(Operation.ADMIN, Resource.CLUSTER, "*")


def _check_pattern(text: str, resource: Resource, pattern: str) -> None:
    name = pattern.removesuffix("*")
    if not _PATTERN.fullmatch(pattern) or len(name) > MAX_NAME or pattern in (".", ".."):
        rule = f"must be up to {MAX_NAME} ASCII letters, digits, '.', '_' and '-', with or without '*' at the end"
        raise _refused(text, f"the pattern {rule}")
    if resource is Resource.TOPIC and name.startswith(RESERVED_PREFIX):
        raise _refused(text, f"topics that begin with {RESERVED_PREFIX} are for admin alone")


def _refused(text: str, rule: str) -> InvalidRequest:
    return InvalidRequest(f"grant {text[:300]!r}: {rule}", field="grants")


@dataclass(frozen=True, slots=True)
class _Names:
    """Some patterns, made quick to ask."""

    literal: frozenset[str]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> _Names:
        found = set(patterns)
        prefixes = sorted(pattern[:-1] for pattern in found if pattern.endswith("*"))
        return cls(frozenset(pattern for pattern in found if not pattern.endswith("*")), tuple(prefixes))

    def match(self, name: str) -> bool:
        return name in self.literal or name.startswith(self.prefixes)

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixes)


class Grants:
    """All grants of one token. Admin on a pattern implies the other operations on it."""

    __slots__ = ("_names", "admin")

    def __init__(self, grants: Iterable[Grant]) -> None:
        given = tuple(grants)
        self.admin = CLUSTER_ADMIN in given
        """Of the cluster: everything is allowed."""
        self._names: dict[tuple[Operation | None, Resource], _Names] = {}
        for resource, operations in _ALLOWED.items():
            here = [grant for grant in given if grant.resource is resource]
            for operation in operations:
                implying = (operation, Operation.ADMIN)
                names = [grant.pattern for grant in here if grant.operation in implying]
                self._names[operation, resource] = _Names.of(names)
            self._names[None, resource] = _Names.of(grant.pattern for grant in here)

    def allow(self, operation: Operation | None, resource: Resource, name: str | None) -> bool:
        """May this be done? No operation: is there any grant on it. No name: is it allowed on anything at all."""
        if self.admin:
            return True
        names = self._names.get((operation, resource))
        if names is None:
            return False
        if name is None:
            return bool(names)
        if resource is Resource.TOPIC and name.startswith(RESERVED_PREFIX):
            return False
        return names.match(name)


EVERYTHING_ALLOWED = Grants((CLUSTER_ADMIN,))
