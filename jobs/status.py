"""`sluice jobs status`: the last run of each job, or the runs of one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sluice.jobs.runs import HISTORY
from sluice.log_store.job_reports import jobs_that_ran, last_report, newest_reports, running_report
from sluice.log_store.store import Store


def status_rows(store: Store, job: str | None, *, full: bool) -> list[dict[str, Any]]:
    """`full`: the stored reports as they are."""
    if job is not None:
        reports = newest_reports(store, job, HISTORY)
    else:
        names = jobs_that_ran(store)
        found = [report for name in names for report in (_begun(store, name), last_report(store, name))]
        reports = [report for report in found if report is not None]
    return reports if full else [_row(report) for report in reports]


def _begun(store: Store, job: str) -> dict[str, Any] | None:
    report = running_report(store, job)
    return None if report is None else report | {"outcome": "running, or killed"}


def _row(report: Mapping[str, Any]) -> dict[str, Any]:
    started = datetime.fromtimestamp(report["started_ms"] / 1000, UTC)
    return {
        "job": report["job"],
        "started": f"{started:%Y-%m-%d %H:%M:%S}Z",
        "outcome": report["outcome"],
        "seconds": report["seconds"],
        "steps": f"{report['done']}/{report['planned']}",
        "records": report["records"],
        "bytes": report["bytes"],
        "files": f"-{report['files_removed']} +{report['files_added']}",
        "mode": report["mode"],
        "error": report["error"],
    }
