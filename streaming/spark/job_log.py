"""The job's log: one JSON object a line on standard error, beside Spark's own lines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FIELDS = "fields"
job_logger = logging.getLogger("sluice.job")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"at": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    ours = logging.getLogger("sluice")
    ours.handlers[:] = [handler]
    ours.setLevel(logging.INFO)
    ours.propagate = False


def say(event: str, level: int = logging.INFO, **fields: object) -> None:
    job_logger.log(level, event, extra={FIELDS: fields})
