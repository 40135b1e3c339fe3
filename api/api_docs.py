"""`GET /docs`: the OpenAPI document in Swagger UI, whose files come from this service, not from a third party."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from sluice.api.errors import NotFound
from sluice.api.routing import RawRoute
from sluice.api.static_files import StaticFile, policy, static_file

_PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sluice: HTTP calls</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
</head>
<body>
<div id="calls"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script>
<script src="/docs/assets/app.js"></script>
</body>
</html>
"""
_START = b"""SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#calls",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
  layout: "BaseLayout",
});
"""
_FROM_PACKAGE = ("swagger-ui-bundle.js", "swagger-ui.css")
_POLICY = policy(style="'self' 'unsafe-inline'")  # Swagger UI writes style attributes


@lru_cache(maxsize=1)
def _files() -> Mapping[str, StaticFile]:
    shipped = files("fastapi_offline").joinpath("static")
    contents = {name: shipped.joinpath(name).read_bytes() for name in _FROM_PACKAGE}
    contents |= {"index.html": _PAGE, "app.js": _START}
    found = {name: static_file(name, content) for name, content in contents.items()}
    return {name: file for name, file in found.items() if file is not None}


async def page(request: Request) -> Response:
    return _files()["index.html"].answer(request, _POLICY)


async def asset(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in _files():
        raise NotFound(f"the page of HTTP calls has no file {name[:80]!r}")
    return _files()[name].answer(request, _POLICY)


ROUTES = [RawRoute("GET", "/docs", page), RawRoute("GET", "/docs/assets/{file}", asset)]
