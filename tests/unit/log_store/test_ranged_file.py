"""A large object is read piece by piece, by as many requests as there are reads."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from sluice.log_store.ranged_file import RangedFile
from sluice.log_store.store import StoreNotFound, open_store
from tests.support.faulty_store import FaultyStore

CONTENT = bytes(range(200))


@pytest.fixture
def store() -> FaultyStore:
    store = FaultyStore(open_store("memory://"))
    store.put("file", CONTENT)
    return store


def test_each_read_is_one_request(store: FaultyStore) -> None:
    with pa.PythonFile(RangedFile(store, "file", len(CONTENT)), mode="r") as file:
        assert file.size() == len(CONTENT)
        file.seek(150)
        assert file.read(20) == CONTENT[150:170]
        assert file.read(1_000) == CONTENT[170:]
        assert file.read(1) == b""
        file.seek(-5, os.SEEK_END)
        assert file.read() == CONTENT[-5:]
        assert file.tell() == len(CONTENT)
    assert store.counts["get_range"] == 3
    assert store.counts["stat"] == store.counts["get"] == 0


def test_a_file_that_vanishes_while_it_is_read(store: FaultyStore) -> None:
    """I-9: the reader plans the same offsets again."""
    with pa.PythonFile(RangedFile(store, "file", len(CONTENT)), mode="r") as file:
        assert file.read(10) == CONTENT[:10]
        store.delete("file")
        with pytest.raises(StoreNotFound):
            file.read(10)
