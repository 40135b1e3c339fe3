"""How `sluice consume` prints a record: a format as kcat has it, or a JSON envelope."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sluice.api.client import FetchedRecord
from sluice.api.client_codec import base64_text

Printer = Callable[[FetchedRecord], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}


def formatted(template: str, null: bytes = b"") -> Printer:
    """A printer for `%t %p %o %k %s %T %h %K %S` and `\\n`, `\\t`. ValueError for a token that is not known."""
    parts = list(_parts(template, _tokens(null)))
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)


def _parts(template: str, tokens: dict[str, Printer]) -> list[bytes | Printer]:
    parts: list[bytes | Printer] = []
    characters = iter(template)
    for character in characters:
        if character == "%":
            letter = next(characters, "")
            if letter == "%":
                parts.append(b"%")
            elif letter in tokens:
                parts.append(tokens[letter])
            else:
                raise ValueError(f"%{letter} is none of {' '.join('%' + name for name in tokens)} %%")
        elif character == "\\":
            escape = next(characters, "")
            parts.append(_ESCAPES.get(escape, f"\\{escape}".encode()))
        else:
            parts.append(character.encode())
    return parts


def _tokens(null: bytes) -> dict[str, Printer]:
    return {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    }


def envelope(record: FetchedRecord) -> bytes:
    """One line of JSON. What is no UTF-8 comes in base64, under a name that says so."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [{"name": name, **_text("value", value)} for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64_text(data)}
