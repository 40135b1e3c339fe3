"""The shortcut of small produce requests: recognised by their URL and headers, answered by `gathering`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qsl

import msgspec
import numpy as np

from sluice.api import gathering
from sluice.api.appending import Outcome, Target
from sluice.api.gathering import SMALL_BYTES, Destination, Gathering, Many, Single
from sluice.api.offsets_text import offsets_list
from sluice.api.produce import ROUTES, PartSummary, acks_of, answer, partition_number, timeout_of, wants_summary
from sluice.api.routing import RawRoute
from sluice.api.service import Service
from sluice.api.shortcuts import Answer, Headers, Recognise, Reply
from sluice.log_store.errors import SluiceError

_ADDRESS = re.compile(rb"/topics/([A-Za-z0-9._-]{1,249})(?:/partitions/([0-9]{1,10}))?(?:\?([A-Za-z0-9_=&-]{0,200}))?")
"""Without escapes: what has any takes the ordinary way."""
_MEDIA: Mapping[bytes, str] = {
    b"application/vnd.kafka.json.v2+json": gathering.JSON,
    b"application/json": gathering.JSON,
    b"application/vnd.kafka.binary.v2+json": gathering.BINARY,
}
PLAIN = frozenset({b"host", b"user-agent", b"accept-encoding", b"connection", b"authorization", b"content-length"})
"""Headers that change nothing here; `authorization` is looked at by the access check."""
_ACCEPTS = frozenset({b"*/*", b"application/json"})
_QUERY = frozenset({"acks", "timeout_ms", "response"})
_ONE = b'{"offsets":[{"partition":%d,"offset":%d,"error_code":null,"error":null}]}'
_LIST = b'{"offsets":%b}'
_ONE_SUMMARY = b'{"partitions":[{"partition":%d,"base_offset":%d,"count":1}]}'
JSON_HEAD = b"content-type: application/json\r\n"


class Address(NamedTuple):
    destinations: Mapping[str, Destination]
    """By format."""
    summary: bool
    route: RawRoute
    params: Mapping[str, str]


class SmallProduce:
    method = "POST"
    __slots__ = ("_address", "_answer", "_form", "_gathering", "_service", "_size")

    def __init__(self, service: Service, gathering: Gathering, address: Address, form: str) -> None:
        self._service = service
        self._gathering = gathering
        self._address = address
        self._form = form
        self._size = 0
        self._answer: Answer

    @property
    def route(self) -> RawRoute:
        return self._address.route

    @property
    def params(self) -> Mapping[str, str]:
        return self._address.params

    def begin(self, body: bytes, answer: Answer) -> Callable[[], None] | None:
        self._answer, self._size = answer, len(body)
        self._service.bodies_bytes += len(body)
        self._gathering.add(self._address.destinations[self._form], body, self._told)
        return None  # what was accepted is appended, whoever waits for it

    def _told(self, outcome: Single | Many | Outcome | None) -> None:
        self._service.bodies_bytes -= self._size
        self._answer(None if outcome is None else self._reply(outcome))

    def _reply(self, outcome: Single | Many | Outcome) -> Reply:
        if isinstance(outcome, Single):
            return Reply(200, JSON_HEAD, (_ONE_SUMMARY if self._address.summary else _ONE) % outcome)
        if isinstance(outcome, Many):
            return Reply(200, JSON_HEAD, _summary(outcome) if self._address.summary else _LIST % offsets_list(*outcome))
        response = answer(outcome, self._address.summary)
        head = b"".join(
            name + b": " + value + b"\r\n" for name, value in response.raw_headers if name != b"content-length"
        )
        error = outcome.first_error if outcome.all_failed else None
        return Reply(response.status_code, head, bytes(response.body), None if error is None else error.error)


def _summary(found: Many) -> bytes:
    """The records that a request has in one partition stand there in a row."""
    numbers, firsts, counts = np.unique(found.partitions, return_index=True, return_counts=True)
    bases = found.offsets[firsts]
    parts = map(PartSummary, numbers.tolist(), bases.tolist(), counts.tolist())
    return msgspec.json.encode({"partitions": list(parts)})


def recogniser(service: Service) -> Recognise:
    together = Gathering(service)

    @lru_cache(maxsize=1024)
    def address_of(url: bytes) -> Address | None:
        return parse_address(service, url)

    def recognise(url: bytes, headers: Headers) -> SmallProduce | None:
        address = address_of(url) if url.startswith(b"/topics/") else None
        if address is None:
            return None
        form, size = _body_of(headers)
        if form is None or service.bodies_bytes + size > service.settings.request_memory_max_bytes:
            return None
        return SmallProduce(service, together, address, form)

    return recognise


def parse_address(service: Service, url: bytes) -> Address | None:
    """What a URL asks for; None where it is no plain produce request, or wrong."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return None
    topic, number, query = (None if part is None else part.decode() for part in found.groups())
    values = plain_query(query or "", _QUERY)
    if values is None or topic is None:
        return None
    params = {"t": topic} if number is None else {"t": topic, "p": number}
    try:
        target = Target(topic, partition_number(params), acks_of(values), timeout_of(values, service))
        summary = wants_summary(values.get("response"), "")
    except SluiceError:
        return None
    destinations = {form: Destination(target, form) for form in (gathering.JSON, gathering.BINARY)}
    return Address(destinations, summary, ROUTES[number is not None], params)


def plain_query(text: str, known: frozenset[str]) -> dict[str, str] | None:
    """The parameters; None if one is given twice or not known."""
    given = parse_qsl(text, keep_blank_values=True)
    values = dict(given)
    return values if len(values) == len(given) and values.keys() <= known else None


def _body_of(headers: Headers) -> tuple[str | None, int]:
    """(format, size) of a body that can go the short way; None as format if it cannot."""
    form: str | None = gathering.JSON
    size = 0
    for name, value in headers:
        if name == b"content-length":
            size = int(value) if value.isdigit() and len(value) < 8 else 0
        elif name == b"content-type":
            form = _MEDIA.get(value)
        elif name not in PLAIN and (name != b"accept" or value not in _ACCEPTS):
            return None, 0
    return (form, size) if 0 < size <= SMALL_BYTES else (None, 0)
