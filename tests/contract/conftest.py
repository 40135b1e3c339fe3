"""The stores that every contract test runs on: a rule proven on one of them only is not proven."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.log_store.store import Store, open_store
from tests.support.s3_server import S3Server

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: open_store("memory://"),
    "local-fsync": lambda folder: open_store(folder / "root", fsync=True),
    "local": lambda folder: open_store((folder / "root").as_uri(), fsync=False),
}


@pytest.fixture(params=[*STORES, "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return open_store(f"{server.bucket('contract')}/{uuid.uuid4().hex}", storage_options=server.options)
    return STORES[request.param](tmp_path)
