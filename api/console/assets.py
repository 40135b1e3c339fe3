"""The console's files, as the package ships them: read once, served from memory, under a strict policy.

Nothing of a cluster is in them, so they need no token. Whatever a page shows it asks of the API, with the token that
was typed into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from sluice.api.errors import NotFound
from sluice.api.service import service_of
from sluice.api.static_files import StaticFile, policy, static_file

PAGE = "index.html"
# No string ever becomes markup or script, whatever a record says.
POLICY = policy("require-trusted-types-for 'script'", "trusted-types 'none'")


@lru_cache(maxsize=1)
def assets() -> Mapping[str, StaticFile]:
    folder = files("sluice.api.console").joinpath("static")
    found = {file.name: static_file(file.name, file.read_bytes()) for file in folder.iterdir() if file.is_file()}
    return {name: file for name, file in found.items() if file is not None}


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
    return found.answer(request, POLICY)
