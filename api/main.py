"""`sluice serve`: open the log, recover, listen, serve, stop in order."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version

import uvicorn

from sluice.api import groups_shortcuts, long_polls, small_produce
from sluice.api.app import build_app
from sluice.api.auth import is_loopback
from sluice.api.groups_shortcuts import either
from sluice.api.logging_setup import logging_to_stderr
from sluice.api.open_files import allow_connections
from sluice.api.service import Service
from sluice.api.shortcuts import protocol_class
from sluice.api.tls import server_context
from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import Settings
from sluice.log_store.engine import LogStore

_log = logging.getLogger(__name__)
BACKLOG = 4096
SWITCH_S = 0.0002
"""Arrow lets go of the interpreter in each call: the loop must not wait Python's 5 ms to get it back from a commit."""


class _Server(uvicorn.Server):
    """Says when it is ready, and lets nobody's long poll hold up the stop."""

    def __init__(self, config: uvicorn.Config, service: Service, address: str, *, as_json: bool) -> None:
        super().__init__(config)
        self._service = service
        self._address = address
        self._line = json.dumps({"listening": address}) if as_json else f"sluice listening on {address}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._service.lag.start(asyncio.get_running_loop())
        fields = {"address": self._address, "version": version("sluice"), "cluster_id": self._service.log.cluster_id}
        _log.info("listening on %s", self._address, extra={"fields": fields})
        sys.stdout.write(f"{self._line}\n")
        sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        _log.info("stopping: %d requests are at work", self._service.active)
        self._service.stop()
        await super().shutdown(sockets)
        self._service.lag.stop()


def serve(settings: Settings, *, insecure: bool = False, force: bool = False, as_json: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. The log is recovered before the port is listened on.

    A stop takes no more connections, answers what is at work, commits what was accepted and releases the leadership.
    """
    sys.setswitchinterval(SWITCH_S)
    tls = server_context(settings.tls)
    listener = bind(settings.server.host, settings.server.port)
    exposed = not is_loopback(listener.getsockname()[0])
    if exposed and not insecure and _is_new(settings.storage.root):
        listener.close()
        raise _no_tokens(settings.server.host)
    address = _address_of(listener, "http" if tls is None else "https")
    if not settings.cluster.advertised_address:
        settings = replace(settings, cluster=replace(settings.cluster, advertised_address=address))
    # uvicorn raises the signal that stopped it once more when it is done: we leave in order and with 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop_early)
    with logging_to_stderr(settings.logging), _told(), listener, LogStore.open(settings, force=force) as log:
        # Bound, but nobody can connect before it listens.
        if exposed and not insecure and not log.catalog.tokens:
            raise _no_tokens(settings.server.host)
        if exposed and tls is None:
            _log.warning(
                "%s is plain HTTP on an address that others can reach: tokens and records can be read on the way",
                address,
            )
        allow_connections(settings.server.max_connections)
        service = Service(log, settings)
        config = uvicorn.Config(
            build_app(service),
            loop="uvloop",
            http=protocol_class(
                service,
                {
                    b"POST": either(small_produce.recogniser(service), groups_shortcuts.recogniser(service)),
                    b"GET": long_polls.recogniser(service),
                },
            ),
            ws="none",
            lifespan="off",
            proxy_headers=False,
            access_log=False,
            log_config=None,
            log_level="warning",
            timeout_keep_alive=-(-settings.server.keep_alive_timeout_ms // 1000),
            server_header=False,
            backlog=BACKLOG,
            ssl_context_factory=None if tls is None else lambda *_: tls,
            timeout_graceful_shutdown=settings.server.shutdown_timeout_ms // 1000,
        )
        server = _Server(config, service, address, as_json=as_json)
        _spare_collections()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        server.run(sockets=[listener])
        service.close()


def _spare_collections() -> None:
    """A full garbage collection holds everybody up for as long as it looks at every object: 100 ms for all that was
    loaded by now (seen in p99 of acks=1). What is here stays for good, so it is looked at once and never again, and of
    the rest most goes by itself, without cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(3_000, 20, 100)


@contextmanager
def _told() -> Iterator[None]:
    """The last line of the log says that everything else went well."""
    yield
    _log.info("stopped: everything accepted is committed, the leadership is released")


def _stop_early(_number: int, _frame: object) -> None:
    """A signal while the log is still being recovered."""
    raise SystemExit(0)


def bind(host: str, port: int) -> socket.socket:
    """A bound socket. ConfigurationError for an address that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _refused("server.host", host, str(error.strerror)) from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _refused("server.port", port, f"cannot listen on {host}: {error.strerror}") from error
    return listener


def _refused(key: str, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(key=key, value=value, origin="serve", rule=rule)


def _no_tokens(host: str) -> ConfigurationError:
    return _refused(
        "server.host",
        host,
        "there are no access tokens, so only loopback is allowed; --insecure serves everybody who can reach it, "
        "`sluice tokens create --root` makes a first token",
    )


def _is_new(root: str) -> bool:
    """A folder that is not there holds no tokens: it is refused before anything is made."""
    return "://" not in root and not os.path.isdir(root)


def _address_of(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
