"""Files that the package ships, kept in memory and served with a tag, under a strict policy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked again each time, answered 304: an upgrade is seen at once.
    "Cache-Control": "no-cache",
}


def policy(*more: str, style: str = "'self'") -> str:
    """Nothing but what this service sends, and no script in markup."""
    rules = [
        "default-src 'none'",
        "script-src 'self'",
        f"style-src {style}",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return "; ".join([*rules, *more])


def guarding(policy: str) -> dict[str, str]:
    """The headers under which a browser shows what this service sends."""
    return {**_HEADERS, "Content-Security-Policy": policy}


class StaticFile(NamedTuple):
    content: bytes
    media: str
    tag: str

    def answer(self, request: Request, policy: str) -> Response:
        headers = {**guarding(policy), "ETag": self.tag}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, 200, headers, self.media)


def static_file(name: str, content: bytes) -> StaticFile | None:
    """Nothing for a kind of file that is not served."""
    media = MEDIA.get(name[name.rfind(".") :])
    return None if media is None else StaticFile(content, media, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
