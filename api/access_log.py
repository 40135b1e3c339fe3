"""One line for a request: what was asked, by whom, how it went. Never a token, a query, or a record.

5xx are errors, 429 are warnings, other answers are information, those to probes are for debugging.
"""

from __future__ import annotations

import logging

from starlette.types import Scope

PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_log = logging.getLogger("sluice.access")


def level_of(status: int, path: str) -> int:
    if status >= 500:
        return logging.ERROR
    if status == 429:
        return logging.WARNING
    return logging.DEBUG if path in PROBES and status < 400 else logging.INFO


def write(scope: Scope, *, status: int, seconds: float, bytes_in: int, bytes_out: int, route: str) -> None:
    level = level_of(status, scope["path"])
    if not _log.isEnabledFor(level):
        return
    client = scope.get("client")
    fields = {
        "request_id": scope.get("sluice.request_id"),
        "method": scope["method"],
        "route": route,
        "status": status,
        "ms": round(seconds * 1000, 2),
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "error": scope.get("sluice.error"),
        "user": scope.get("sluice.user"),
        "client_id": scope.get("sluice.client_id"),
        "client": None if client is None else f"{client[0]}:{client[1]}",
    }
    alike = f"{status} {route} {fields['error']}"
    _log.log(level, "%s %s %d", scope["method"], route, status, extra={"fields": fields, "alike": alike})
