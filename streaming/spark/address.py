"""Where a cluster is: a storage root that executors can read, the service, or both. Shared by source and sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sluice.conf.declare import keys_of
from sluice.conf.settings import StorageSettings
from sluice.log_store.store import OBJECT_SCHEMES
from sluice.streaming.spark.option_values import OptionValues, wrong

STORAGE_PREFIX = "storage."
"""`storage.<key>`: any key of the object store library, such as `storage.google_service_account`."""

# The storage settings of the service, under their own names: s3.endpoint, s3.region, …
_S3_KEYS = {attribute: key for attribute, key in keys_of(StorageSettings) if attribute.startswith("s3_")}
ADDRESS_OPTIONS = ("path", "server", "token", "ca.file", *(key.name for key in _S3_KEYS.values()))


@dataclass(frozen=True, slots=True)
class Address:
    """Picklable, and the same in every process: what came from the driver's environment is in it."""

    path: str | None = None
    """The storage root, absolute."""
    server: str | None = None
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    s3: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)
    """The S3 settings that were given, by attribute of `StorageSettings`."""
    extra: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Options of the object store library that have no setting of ours."""

    def storage_options(self, root: str) -> dict[str, str]:
        """For `open_store(root)`; `root` may have come from the service."""
        return {**StorageSettings(root=root, **self.s3).options, **self.extra}

    @classmethod
    def parse(cls, values: OptionValues, environ: Mapping[str, str]) -> Address:
        """Options go before the environment (SLUICE_SERVER is not read: where to read from is said in the query)."""
        path, server = values.text("path"), values.text("server")
        if path is None and server is None:
            raise wrong("path", "give the storage root, or the address of the service with 'server', or both")
        return cls(
            path=None if path is None else _checked_root(path),
            server=None if server is None else _checked_url(server),
            token=values.text("token") or environ.get("SLUICE_TOKEN") or None,
            ca_file=values.text("ca.file") or environ.get("SLUICE_CA_FILE") or None,
            s3=_s3_settings(values, environ),
            extra=values.family(STORAGE_PREFIX),
        )


def _s3_settings(values: OptionValues, environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute, key in _S3_KEYS.items():
        raw = values.text(key.name) or environ.get(key.env_name)
        if raw:
            try:
                found[attribute] = key.parse(raw)
            except ValueError:
                raise wrong(key.name, f"must be {key.rule}") from None
    return found


def _checked_root(path: str) -> str:
    """The same root for every process: a folder is made absolute, `file:/x` becomes `file:///x`."""
    text = path.strip()
    scheme, separator, _ = text.partition("://")
    if not separator:
        if text.startswith("file:/"):
            return "file:///" + text.removeprefix("file:/").lstrip("/")
        return os.path.abspath(text)
    if scheme == "memory":
        raise wrong("path", "memory:// is visible in one process only, Spark has several")
    if scheme != "file" and scheme not in OBJECT_SCHEMES:
        raise wrong("path", f"must be a folder, or a URL with file, s3, gs or az, not {path!r}")
    return text.rstrip("/")


def _checked_url(server: str) -> str:
    parts = urlsplit(server.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong("server", f"must be a URL such as http://host:8080, not {server!r}")
    return server.strip().rstrip("/")
