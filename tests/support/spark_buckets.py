"""A root in a bucket, as each side is told of it: settings of a log in this process, of a service, options of Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.s3_server import S3Server

_NAMES = ("endpoint", "region", "access_key_id", "secret_access_key")


def bucket_settings(s3: S3Server, folder: Path) -> dict[str, Any]:
    """For `settings_of`; the write-ahead log is in `folder`."""
    found = {f"s3_{name}": s3.options[name] for name in _NAMES}
    return {**found, "s3_allow_http": True, "wal_dir": str(folder / "wal")}


def bucket_environment(s3: S3Server, folder: Path) -> dict[str, str]:
    """For a service process."""
    found = {f"SLUICE_S3_{name.upper()}": s3.options[name] for name in _NAMES}
    return {**found, "SLUICE_S3_ALLOW_HTTP": "true", "SLUICE_WAL_DIR": str(folder / "wal")}


def bucket_options(s3: S3Server) -> dict[str, str]:
    """For the source and the sink."""
    found = {f"s3.{name.replace('_', '.')}": s3.options[name] for name in _NAMES}
    return {**found, "s3.allow.http": "true"}
