"""Reports of maintenance jobs, as their runs left them in the root. `sluice.jobs.runs` writes them; this only reads."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from sluice.log_store.store import Store, StoreNotFound

FOLDER = "_sluice/jobs"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_NO_JOBS = frozenset({"leases"})
Report = dict[str, Any]


def is_job_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _NO_JOBS


def jobs_that_ran(store: Store) -> list[str]:
    return sorted(name for name in store.list_folders(FOLDER) if is_job_name(name))


def last_report(store: Store, job: str) -> Report | None:
    return _read(store, f"{FOLDER}/{job}/last.json")


def running_report(store: Store, job: str) -> Report | None:
    """Of a run that began and has not ended, or was killed."""
    return _read(store, f"{FOLDER}/{job}/running.json")


def newest_reports(store: Store, job: str, most: int) -> list[Report]:
    """Newest first."""
    names = [item.name for item in store.list(f"{FOLDER}/{job}/history")][-most:]
    found = [_read(store, f"{FOLDER}/{job}/history/{name}") for name in reversed(names)]
    return [one for one in found if one is not None]


def _read(store: Store, path: str) -> Report | None:
    try:
        body = msgspec.json.decode(store.get(path))
    except (StoreNotFound, msgspec.DecodeError):
        return None
    return body if isinstance(body, dict) else None
