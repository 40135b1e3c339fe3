"""A connection is an open file, and most systems allow a process 1,024 of them unless it asks for more."""

from __future__ import annotations

import logging
import resource

_log = logging.getLogger(__name__)
OWN_FILES = 1_000
"""For the log: files being read, the write-ahead log, sockets to an object store."""


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files as far as it may."""
    wanted = count + OWN_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    if raised < wanted:
        _log.warning(
            "only %d files may be open: %d connections (max.connections) would need %d, see ulimit -Hn",
            raised,
            count,
            wanted,
        )
