"""The jobs by name. Each module has a `JOB`; it is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from sluice.jobs.framework import Job
from sluice.log_store.errors import InvalidRequest

MODULES = {
    "retention": "sluice.jobs.retention",
    "compaction": "sluice.jobs.compaction",
    "merge": "sluice.jobs.merge",
    "vacuum": "sluice.jobs.vacuum",
    "orphans": "sluice.jobs.orphans",
    "offset-expiry": "sluice.jobs.offset_expiry",
    "assignment": "sluice.jobs.assignment",
    "verify": "sluice.jobs.verify",
    "mirror": "sluice.jobs.mirror",
}


def job_named(name: str) -> Job:
    """A file `jobs/a_b.py` is the job `a-b`; both names are taken."""
    name = name.replace("_", "-")
    if name not in MODULES:
        raise InvalidRequest(f"there is no job {name!r}; there are {', '.join(sorted(MODULES))}", field="name")
    job: Job = import_module(MODULES[name]).JOB
    return job
