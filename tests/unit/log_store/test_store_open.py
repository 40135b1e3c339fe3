"""Which URL opens which store, and how obstore's errors become ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.log_store.local_store import LocalStore
from sluice.log_store.object_store import MemoryStore, ObjectStore
from sluice.log_store.store import StoreError, open_store


def test_a_folder_is_local_and_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in [tmp_path / "a b", f"{tmp_path}/a b", f"{tmp_path}/x/../a b/", "a b", (tmp_path / "a b").as_uri()]:
        store = open_store(url)
        assert isinstance(store, LocalStore)
        assert store.local_path == tmp_path / "a b"
        assert store.url == f"file://{tmp_path}/a%20b"
        assert store.delta_uri == f"{tmp_path}/a b"
        assert store.delta_storage_options is None
        assert store.fsync
        assert not store.durable_puts
    assert (tmp_path / "a b").is_dir()
    assert not open_store(tmp_path, fsync=False).fsync


def test_memory_without_a_name_is_new_each_time() -> None:
    first, second = open_store("memory://"), open_store("memory://")
    first.put("a", b"x")

    assert second.list("") == []
    assert (first.url, first.local_path, first.delta_uri) == ("memory://", None, None)
    assert not first.durable_puts
    assert not first.fsync


def test_memory_of_one_name_is_one_store() -> None:
    open_store("memory://test-open-shared").put("a", b"x")

    again = open_store("memory://test-open-shared")
    assert again.get("a") == b"x"
    assert again.url == "memory://test-open-shared"
    assert open_store("memory://test-open-other").list("") == []


@pytest.mark.parametrize(
    "url", ["", "hdfs://a/b", "http://a", "file://", "file://host/a", "file:///a?b", "://", "S3://bucket"]
)
def test_what_cannot_be_opened(url: str) -> None:
    with pytest.raises(ValueError, match=r"root needs a name|cannot store at|not a local folder"):
        open_store(url)


OPTIONS = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "id",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


def test_a_bucket_is_an_object_store_and_deltalake_gets_the_same_options() -> None:
    store = open_store("s3://lake/root/", storage_options=OPTIONS)

    assert isinstance(store, ObjectStore)
    assert store.url == store.delta_uri == "s3://lake/root"
    assert store.delta_storage_options == OPTIONS
    assert store.durable_puts
    assert store.local_path is None


def test_an_option_that_nobody_knows() -> None:
    with pytest.raises(StoreError, match="open s3://lake"):
        open_store("s3://lake", storage_options={"aws_colour": "red"})


def test_a_foreign_error_dies_at_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.exceptions import GenericError

    def fail(*_: object, **__: object) -> None:
        raise GenericError("no route to host\n\nDebug source:\n…")

    monkeypatch.setattr("obstore.put", fail)
    with pytest.raises(StoreError) as caught:
        MemoryStore().put("a/b", b"x")

    assert str(caught.value) == "put a/b: no route to host"
    assert caught.value.fields == {"operation": "put", "path": "a/b", "errno": None}
    assert isinstance(caught.value.__cause__, GenericError)
