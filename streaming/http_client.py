"""One HTTP connection pool to a Sluice server: typed errors, and repeats with back-off where they are harmless."""

from __future__ import annotations

import random
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from sluice.log_store.clock import Clock, SystemClock
from sluice.log_store.errors import InvalidRequest
from sluice.streaming.http_errors import ClientClosed, RequestFailed, failure_of, network_failure, throttle_s

Wait = Callable[[float], object]
Params = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to repeat a request that failed, and after how long: doubling, with a jitter of a fifth either way."""

    budget_s: float = 30.0
    """From the first try to the start of the last one."""
    first_s: float = 0.1
    longest_s: float = 5.0
    refused_connection: bool = True
    """Also repeat when nothing listens at the address. A command line would rather say so."""

    def delay(self, attempt: int, error: RequestFailed, elapsed_s: float, jitter: float) -> float | None:
        """Seconds to wait after try number `attempt` (from 0); None: give up. `jitter` is between 0 and 1."""
        if not error.worth_repeating or (not error.sent and not self.refused_connection):
            return None
        pause = min(self.longest_s, self.first_s * 2.0 ** min(attempt, 30)) * (0.8 + 0.4 * jitter)
        if error.retry_after_s is not None:
            pause = max(pause, error.retry_after_s)
        return pause if elapsed_s + pause <= self.budget_s else None


class Connection:
    """Thread-safe. `transport`, `clock` and `wait` are for tests."""

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        ca_file: str | None = None,
        client_id: str | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        wait: Wait | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        self.timeout_s = timeout_s
        self.retry = retry or RetryPolicy()
        self.clock = clock or SystemClock()
        self.given_wait = wait
        self.wait = wait or threading.Event().wait
        self._lock = threading.Lock()
        self._active = 0
        self._closing = False
        self._produce_at = float("-inf")
        """Until then a quota refuses to take records; sending them would be in vain."""
        self._http = httpx.Client(
            base_url=self.server,
            headers=_authorization(token) | ({"Sluice-Client-Id": client_id} if client_id else {}),
            verify=_trusted(ca_file),
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            transport=transport,
        )

    def close(self) -> None:
        """No new requests. Sockets that are in use, perhaps by a long poll, are closed when they are not any more."""
        with self._lock:
            self._closing = True
            idle = not self._active
        if idle:
            self._http.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._lock:
            if self._closing:
                raise ClientClosed("the client is closed")
            self._active += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._active -= 1
            last = self._closing and not self._active
        if last:
            self._http.close()

    def once(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """The answer, whatever its status; raises only when there is none."""
        sent = dict(headers or {})
        if body is not None:
            content = msgspec.json.encode(body)
            sent.setdefault("Content-Type", "application/json")
        produces = method == "POST" and path.startswith("/topics/")
        if produces and (early_s := self._produce_at - self.clock.boottime()) > 0:
            self.wait(min(early_s, self.timeout_s))
        try:
            with self._in_use():
                response = self._http.request(
                    method,
                    path,
                    params=params,
                    content=content,
                    headers=sent,
                    timeout=self.timeout_s if timeout_s is None else timeout_s,
                )
            if produces and response.is_success and (pause_s := throttle_s(response)):
                self._produce_at = self.clock.boottime() + pause_s
            return response
        except httpx.TransportError as error:
            raise network_failure(error, self.server) from error

    def call(
        self, method: str, path: str, *, repeatable: bool, policy: RetryPolicy | None = None, **request: Any
    ) -> httpx.Response:
        """A good answer. What is not `repeatable` is repeated only if the server did nothing with it."""
        return self.repeat(
            lambda: _checked(self.once(method, path, **request)),
            policy or self.retry,
            lambda error: repeatable or error.refused,
        )

    def repeat(
        self,
        attempt: Callable[[], httpx.Response],
        policy: RetryPolicy,
        allowed: Callable[[RequestFailed], bool] = lambda _: True,
        elapsed_s: float = 0.0,
        wait: Wait | None = None,
    ) -> httpx.Response:
        started = self.clock.boottime() - elapsed_s
        tries = 0
        while True:
            try:
                return attempt()
            except RequestFailed as error:
                passed = self.clock.boottime() - started
                pause = policy.delay(tries, error, passed, random.random()) if allowed(error) else None
                if pause is None:
                    raise
            tries += 1
            (wait or self.wait)(pause)

    def json(self, method: str, path: str, *, repeatable: bool, **request: Any) -> Any:
        response = self.call(method, path, repeatable=repeatable, **request)
        return json_of(response)


def _authorization(token: str | None) -> dict[str, str]:
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise InvalidRequest("the access token has characters that no token has", field="token")
    return {"Authorization": f"Bearer {token.strip()}"}


def _trusted(ca_file: str | None) -> ssl.SSLContext | bool:
    """What a certificate is checked against: the usual authorities, or those of a file instead."""
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        why = error.strerror if not isinstance(error, ssl.SSLError) else "it holds no certificates in PEM format"
        raise InvalidRequest(f"cannot use the CA file {ca_file}: {why}", field="ca_file") from error


def json_of(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise failure_of(response) from error


def _checked(response: httpx.Response) -> httpx.Response:
    if response.status_code >= httpx.codes.BAD_REQUEST:
        raise failure_of(response)
    return response
