"""Networks that lose answers and servers that come back elsewhere, below a real client."""

from __future__ import annotations

import httpx

from tests.support.server import Server


class LosesAnswers(httpx.HTTPTransport):
    """The server gets every request; the answer to every second try of a produce is lost on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0
        self.lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if "Sluice-Sequence" not in request.headers:
            return response
        self.tries += 1
        if self.tries % 2:
            response.read()
            self.lost += 1
            raise httpx.ReadError("the answer was lost", request=request)
        return response


class Follows(httpx.HTTPTransport):
    """As behind a name that always leads to the present address of the server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=httpx.URL(self._server.url).port)
        return super().handle_request(request)
