"""Content encodings: compressed body to plain bytes, never more of them than allowed.

A body that is too large, before or after decompression, is RECORD_LIST_TOO_LARGE (HTTP 413): it is the request
that breaks `request.max.bytes`. MESSAGE_TOO_LARGE stays the answer to one record above `max.message.bytes` (R-12).
"""

from __future__ import annotations

import io

import pyarrow as pa

from sluice.ingest.limits import DEFAULT_LIMITS
from sluice.log_store.errors import InvalidRequest, RecordListTooLarge

ENCODINGS = ("identity", "gzip", "zstd")
_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_CHUNK = 256 << 10


def encoding_of(header: str | None) -> str:
    """The one coding named by `Content-Encoding`. Several on top of each other are refused: nobody needs them."""
    name = (header or "identity").strip().lower()
    if name in ("", "identity"):
        return "identity"
    if name not in _CODECS:
        raise InvalidRequest(
            f"Content-Encoding: must be one of {', '.join(ENCODINGS)}, not {name[:40]!r}", field="Content-Encoding"
        )
    return _CODECS[name]


def decode_body(body: bytes, encoding: str | None, *, max_bytes: int = DEFAULT_LIMITS.max_body_bytes) -> bytes:
    """The plain body. Decompression goes in pieces and stops at the first byte too many."""
    name = encoding_of(encoding)
    if len(body) > max_bytes:
        raise _too_large(max_bytes)
    if name == "identity":
        return body
    return _decompress(body, name, max_bytes)


def _decompress(body: bytes, codec: str, max_bytes: int) -> bytes:
    if not body:
        raise InvalidRequest(f"body: is empty, which is no {codec} stream", field="body")
    plain = io.BytesIO()  # getvalue() hands its memory over, so that there is never a second copy
    try:
        # Arrow's reader takes several members or frames in a row and notices a cut one, which zstd's own do not.
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while piece := stream.read(min(_CHUNK, max_bytes + 1 - plain.tell())):
                plain.write(piece)
                if plain.tell() > max_bytes:
                    raise _too_large(max_bytes)
    except (OSError, pa.ArrowException) as error:
        raise InvalidRequest(f"body: is not a valid {codec} stream: {str(error)[:200]}", field="body") from None
    return plain.getvalue()


def _too_large(limit: int) -> RecordListTooLarge:
    return RecordListTooLarge(f"body: must not be larger than {limit} bytes, decompressed", field="body", limit=limit)
