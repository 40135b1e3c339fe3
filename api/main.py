"""`sluice serve`: open the log, recover, listen, serve, stop in order."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

import uvicorn

from sluice.api.app import build_app
from sluice.api.service import Service
from sluice.conf.errors import ConfigurationError
from sluice.conf.settings import Settings
from sluice.log_store.engine import LogStore

BACKLOG = 4096
SWITCH_S = 0.0005
"""Arrow lets go of the interpreter in each call: the loop must not wait Python's 5 ms to get it back from a commit."""


class _Server(uvicorn.Server):
    """Says when it is ready, and lets nobody's long poll hold up the stop."""

    def __init__(self, config: uvicorn.Config, service: Service, address: str) -> None:
        super().__init__(config)
        self._service = service
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        sys.stdout.write(f"sluice listening on {self._address}\n")
        sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        await super().shutdown(sockets)


def serve(settings: Settings, *, insecure: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. The log is recovered before the port is listened on.

    A stop takes no more connections, answers what is at work, commits what was accepted and releases the leadership.
    """
    sys.setswitchinterval(SWITCH_S)
    listener = bind(settings.server.host, settings.server.port, insecure=insecure)
    address = _address_of(listener)
    if not settings.cluster.advertised_address:
        settings = replace(settings, cluster=replace(settings.cluster, advertised_address=address))
    # uvicorn raises the signal that stopped it once more when it is done: we leave in order and with 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop_early)
    with listener, LogStore.open(settings) as log:
        service = Service(log, settings)
        config = uvicorn.Config(
            build_app(service),
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_level="warning",
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=settings.server.shutdown_timeout_ms // 1000,
        )
        server = _Server(config, service, address)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        server.run(sockets=[listener])
        service.close()


def _stop_early(_number: int, _frame: object) -> None:
    """A signal while the log is still being recovered."""
    raise SystemExit(0)


def bind(host: str, port: int, *, insecure: bool) -> socket.socket:
    """A bound socket. ConfigurationError for an address that others could reach, or that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _refused("server.host", host, str(error.strerror)) from error
    if not insecure and not _all_loopback([str(entry[4][0]) for entry in found]):
        raise _refused(
            "server.host",
            host,
            "there are no access tokens, so only loopback is allowed; --insecure serves everybody who can reach it",
        )
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


def _all_loopback(addresses: Sequence[str]) -> bool:
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
