"""The console's files, as the package ships them: read once, served from memory, under a strict policy.

Nothing of a cluster is in them, so they need no token. Whatever a page shows it asks of the API, with the token that
was typed into it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sluice.api.errors import NotFound
from sluice.api.service import service_of

PAGE = "index.html"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No string ever becomes markup or script, whatever a record says.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked again each time, answered 304: an upgrade is seen at once.
    "Cache-Control": "no-cache",
}


class Asset(NamedTuple):
    content: bytes
    media: str
    tag: str


@lru_cache(maxsize=1)
def assets() -> Mapping[str, Asset]:
    found = {}
    for file in files("sluice.api.console").joinpath("static").iterdir():
        media = MEDIA.get(file.name[file.name.rfind(".") :])
        if media is not None:
            content = file.read_bytes()
            found[file.name] = Asset(content, media, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def check_enabled(request: Request) -> None:
    if not service_of(request).settings.console_enable:
        raise NotFound("the console is switched off: console.enable = false")


async def page(request: Request) -> Response:
    return _answer(request, PAGE)


async def asset(request: Request) -> Response:
    return _answer(request, request.path_params["file"])


def _answer(request: Request, name: str) -> Response:
    check_enabled(request)
    found = assets().get(name)
    if found is None:
        raise NotFound(f"the console has no file {name[:80]!r}")
    headers = {**HEADERS, "ETag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, 200, headers, found.media)
