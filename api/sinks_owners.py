"""Whose a query of a Spark sink is: the user that first staged or committed under its id.

A batch at or below the last one is answered and adds nothing, so whoever commits under another's id could make that
one's batches vanish. A user is the name of a token, as for quotas: only an admin gives names, and a new token of the
same name goes on where the old one was.
"""

from __future__ import annotations

from sluice.api.auth import Principal
from sluice.log_store import staging
from sluice.log_store.errors import ClusterAuthorizationFailed
from sluice.log_store.store import Store

MOST_KNOWN = 10_000


class SinkOwners:
    """For threads that may wait: an owner who is not known yet is read from storage."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, str] = {}

    def claim(self, query: str, principal: Principal) -> None:
        """Check, and own it from now on if nobody does. Without tokens everybody may do everything."""
        if principal.token_id is not None and self._known.get(query) != principal.name:
            self._judge(query, principal, staging.claim(self._store, query, principal.name))

    def check(self, query: str, principal: Principal) -> bool:
        """Whether it is known to be theirs; 403 if it is another's, False if it is nobody's yet."""
        if principal.token_id is None or self._known.get(query) == principal.name:
            return True
        owner = staging.owner_of(self._store, query)
        if owner is not None:
            self._judge(query, principal, owner)
        return owner is not None or principal.grants.admin

    def forget(self) -> None:
        """Some may have been swept."""
        self._known.clear()

    def _judge(self, query: str, principal: Principal, owner: str) -> None:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[query] = owner
        if owner != principal.name and not principal.grants.admin:
            raise ClusterAuthorizationFailed(
                f"query {query} belongs to another user: only tokens of the name that began it, and admin, may go on; "
                "another query.id is free"
            )
