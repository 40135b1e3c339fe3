"""How much one produce request may ask for. The API fills it from its settings; decoders only obey."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestLimits:
    """Every limit is checked before the memory it protects is used."""

    max_body_bytes: int = 64 * MIB
    """Decompressed body, and whatever an Arrow body unfolds to (`request.max.bytes`, R-12). At most 1 GiB."""
    max_records: int = 100_000
    """Records of one JSON or base64 body: each costs some Python objects while it is decoded."""
    max_entries: int = 10_000
    """Entries of one `records:batch`."""
    max_arrow_records: int = 1_000_000
    max_arrow_batches: int = 1_000
    """Messages of one Arrow stream."""
    max_depth: int = 64
    """Nesting of a JSON key or value: `[[1]]` is 2. Beyond about 900 the parser's own limit comes first."""
    max_headers: int = 100
    """Headers of one record."""
    max_header_bytes: int = 64 * KIB
    """Names and values of the headers of one record."""
    max_request_headers: int = 500_000
    """Headers of one JSON request, all records together."""
    max_object_bytes: int = 8 * MIB
    """JSON text of one record in a v3 stream: what the splitter holds back at most."""
    max_text_bytes: int = 64 * MIB
    """JSON text of one record of a long body, with the white space in front of it: it is parsed by one call, during
    which nobody else's work goes on. The API lowers it to what the topic could take."""


DEFAULT_LIMITS = IngestLimits()
