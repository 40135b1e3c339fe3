"""Logs of the service: written to standard error by a thread of its own, within bounds.

A terminal or pipe that nobody reads must not stop the service, so a full queue drops lines and says later how many;
and whatever repeats itself is written a few times, then counted.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from sluice.api.logging_lines import JsonLines, TextLines, fields_of
from sluice.conf.settings import LoggingSettings

QUEUE_LINES = 10_000
FLUSH_S = 2.0
INTERVAL_S = 10.0
BURST = 20
BURST_ERRORS = 200
MAX_KEYS = 1_000


class Repeats(logging.Filter):
    """Lets through so many alike lines in ten seconds. The next one after that says how many were left out.

    Alike are lines of one logger, level and text before its arguments, or with the same `extra={"alike": …}`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._seen: dict[tuple[object, ...], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        alike = getattr(record, "alike", None) or record.msg
        most = BURST_ERRORS if record.levelno >= logging.ERROR else BURST
        with self._lock:
            if len(self._seen) >= MAX_KEYS:
                self._seen.clear()
            entry = self._seen.setdefault((record.name, record.levelno, str(alike)), [record.created, 0.0])
            suppressed = 0
            if record.created - entry[0] >= INTERVAL_S or record.created < entry[0]:
                suppressed = max(0, int(entry[1]) - most)
                entry[:] = [record.created, 0.0]
            entry[1] += 1
            if entry[1] > most:
                return False
        if suppressed:
            record.fields = {**fields_of(record), "suppressed": suppressed}
        return True


class QueuedLines(logging.Handler):
    """Formats and writes behind a bounded queue, so that a log call never waits for whoever reads the log."""

    def __init__(self, stream: TextIO, lines: int = QUEUE_LINES) -> None:
        super().__init__()
        self._stream = stream
        self._queue: queue.Queue[logging.LogRecord | None] = queue.Queue(lines)
        self._counting = threading.Lock()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="sluice-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        # Rendered here: arguments may change later, and frames of an exception must not live on in the queue.
        record.msg, record.args = record.getMessage(), None
        if record.exc_info:
            record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            with self._counting:
                self._dropped += 1

    def close(self) -> None:
        """Writes what waits, unless nobody takes it."""
        with suppress(queue.Full):
            self._queue.put(None, timeout=FLUSH_S)
        self._thread.join(FLUSH_S)
        super().close()

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            with self._counting:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                record.fields = {**fields_of(record), "dropped_before": dropped}
            try:
                self._stream.write(self.format(record) + "\n")
                if self._queue.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                continue  # a closed pipe: the service goes on without its log


@contextmanager
def logging_to_stderr(settings: LoggingSettings) -> Iterator[None]:
    """For the life of the service. Puts back what was there before: tests run several in one process."""
    handler = QueuedLines(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines())
    handler.addFilter(Repeats())
    root, access = logging.getLogger(), logging.getLogger("sluice.access")
    before = (root.handlers[:], root.level, access.level)
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    access.setLevel(settings.log_access_level.upper())
    try:
        yield
    finally:
        root.handlers[:], level, access_level = before
        root.setLevel(level)
        access.setLevel(access_level)
        handler.close()
