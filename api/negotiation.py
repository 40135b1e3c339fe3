"""Which media type an answer carries: what the client accepts among what the address offers (RFC 9110, 12.5.1)."""

from __future__ import annotations

from functools import lru_cache

from sluice.api.errors import JSON, NotAcceptable
from sluice.ingest.arrow_body import CONTENT_TYPE as ARROW

V2 = "application/vnd.kafka.v2+json"
EMBEDDED = ("application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json")
_Ranges = tuple[tuple[str, float], ...]


def offers(path: str) -> tuple[str, ...]:
    """In order of preference. Nothing: the address does not negotiate."""
    if path.startswith("/v3/"):
        return (JSON, ARROW) if path.endswith("/records") else (JSON,)
    first = path.partition("?")[0].split("/", 2)[1] if path.startswith("/") else ""
    if first in ("topics", "brokers"):
        return (JSON, V2)
    return (JSON, V2, *EMBEDDED) if first == "consumers" else ()


def media_type(path: str, accept: str) -> str | None:
    """The type to answer with; None where nothing was asked for. NotAcceptable if nobody can serve it."""
    if not (offered := offers(path)) or not accept.strip():
        return None
    found = _chosen(accept[:2000], offered)
    if found is None:
        raise NotAcceptable(f"Accept: must allow {' or '.join(offered)}", field="Accept")
    return found


@lru_cache(maxsize=256)
def _chosen(accept: str, offered: tuple[str, ...]) -> str | None:
    ranges = _parse(accept)
    best = max(offered, key=lambda offer: _quality(offer, ranges))  # of equals the first
    return best if _quality(best, ranges) > 0 else None


def _parse(accept: str) -> _Ranges:
    found = []
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((one[2:] for one in parameters if one.startswith("q=")), "1")
        found.append((name, _weight(weight)))
    return tuple(found)


def _weight(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def _quality(offer: str, ranges: _Ranges) -> float:
    """The most specific range that fits decides."""
    kind = offer.partition("/")[0]
    for wanted in (offer, f"{kind}/*", "*/*"):
        fitting = [weight for name, weight in ranges if name == wanted]
        if fitting:
            return max(fitting)
    return 0.0
