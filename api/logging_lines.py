"""How a log record becomes one line: JSON for machines, text for people. Nothing that a client sent can add a line.

`extra={"fields": {...}}` of a logging call adds members to the line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

MAX_TEXT = 8_000
"""Characters of one message; a traceback may have more."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_TEXT],
            **fields_of(record),
        }
        if record.exc_info or record.exc_text:
            line["exception"] = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
        # Only ASCII: control characters, and those that some viewers take for the end of a line, come escaped.
        return json.dumps(line, ensure_ascii=True, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = " ".join(
            f"{name}={_plain(str(value))}" for name, value in fields_of(record).items() if value is not None
        )
        message = _plain(record.getMessage()[:MAX_TEXT])
        line = f"{_time(record)} {record.levelname:<7} {record.name}: {message}" + (f" {told}" if told else "")
        if record.exc_info or record.exc_text:
            trace = record.exc_text or self.formatException(record.exc_info)  # type: ignore[arg-type]
            # Marked, so that text inside an exception cannot pass for a line of its own.
            line += "".join(f"\n  | {_plain(part)}" for part in trace.splitlines())
        return line


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(text: str) -> str:
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
