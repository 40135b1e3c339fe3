"""Last runs, stored in the root: `_sluice/jobs/<name>/last.json` and a short history. `log_store.job_reports` reads."""

from __future__ import annotations

import logging

import msgspec

from sluice.jobs.work import Report
from sluice.log_store.errors import StorageError
from sluice.log_store.job_reports import FOLDER
from sluice.log_store.store import Store

_log = logging.getLogger(__name__)
HISTORY = 50
STORED_ROWS = 200
"""Rows of a report that are kept; the whole report was printed."""


def mark_running(store: Store, report: Report, *, needed: bool = True) -> None:
    """For `status`: a run that is killed leaves this, and is shown as begun and never ended."""
    try:
        store.replace(f"{FOLDER}/{report.job}/running.json", msgspec.json.encode(report.to_json()))
    except StorageError as error:
        _log.log(_level(needed), "the start of %s could not be noted: %s", report.job, error)


def _level(needed: bool) -> int:
    return logging.WARNING if needed else logging.INFO


def store_report(store: Store, report: Report, *, needed: bool = True) -> None:
    """A run whose report cannot be stored has run all the same. `needed=False`: of one that may not be able to."""
    body = report.to_json()
    if len(report.rows) > STORED_ROWS:
        body["rows"] = report.rows[:STORED_ROWS]
        body["notes"] = [*report.notes, f"{len(report.rows) - STORED_ROWS} more rows were printed and not kept"]
    data = msgspec.json.encode(body)
    folder = f"{FOLDER}/{report.job}"
    try:
        store.replace(f"{folder}/history/{report.started_ms:015d}-{report.run_id}.json", data)
        store.replace(f"{folder}/last.json", data)
        store.delete(f"{folder}/running.json")
        for item in store.list(f"{folder}/history")[:-HISTORY]:
            store.delete(f"{folder}/history/{item.name}")
    except StorageError as error:
        _log.log(_level(needed), "the report of %s could not be stored: %s", report.job, error)
