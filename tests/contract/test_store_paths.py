"""Hostile paths: every store refuses the same ones, and none gets outside the root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.log_store.store import Store, StoreConflict, StoreError, StoreNotFound, check_path, open_store

OPERATIONS: dict[str, Callable[[Store, str], object]] = {
    "put": lambda store, path: store.put(path, b"x"),
    "put_if_absent": lambda store, path: store.put_if_absent(path, b"x"),
    "replace": lambda store, path: store.replace(path, b"x"),
    "get": lambda store, path: store.get(path),
    "get_range": lambda store, path: store.get_range(path, 0, 1),
    "stat": lambda store, path: store.stat(path),
    "open_input": lambda store, path: store.open_input(path).close(),
    "list": lambda store, path: store.list(path),
    "list_folders": lambda store, path: store.list_folders(path),
    "delete": lambda store, path: store.delete(path),
    "delete_folder": lambda store, path: store.delete_folder(path),
}
TAKES_ROOT = {"list", "list_folders"}

HOSTILE = [
    "",
    "/",
    "/etc/passwd",
    "//etc",
    ".",
    "..",
    "../up",
    "a/../../up",
    "a/..",
    "a/./b",
    "a//b",
    "a/",
    "a/b/",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "a\\..\\b",
    "..\\up",
    ".hidden",
    "a/.hidden",
    "a/.hidden/b",
    "a\ud800",
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("path", HOSTILE)
def test_refused_by_every_operation(store: Store, operation: str, path: str) -> None:
    if path == "" and operation in TAKES_ROOT:
        return
    with pytest.raises(ValueError, match="not a path below the root"):
        OPERATIONS[operation](store, path)


def test_sync_checks_paths_too(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a path below the root"):
        open_store(tmp_path / "root").sync(["../up"])


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "topics/orders~9f/3/_delta_log/00000000000000000000.json",
        "a b/c%2e%2e/d",
        "a..b/c...",
        "é/日本/🙂",
        "a:b?*[]",
    ],
)
def test_ordinary_and_odd_names_work(store: Store, path: str) -> None:
    store.put_if_absent(path, b"x")

    folder, _, name = path.rpartition("/")
    assert store.get(path) == b"x"
    assert [item.name for item in store.list(folder)] == [name]


def test_a_name_too_long_for_a_disk_is_a_bad_path(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("a/short", b"")  # a missing folder would be what the kernel finds first
    for operation in sorted(OPERATIONS.keys() - {"delete_folder"}):
        with pytest.raises(ValueError, match="too long"):
            OPERATIONS[operation](store, "a/" + "n" * 300)


@pytest.fixture(scope="module")
def fenced() -> Iterator[tuple[Store, Path]]:
    """A root three levels down, so that a path that climbs lands somewhere the test can see."""
    with tempfile.TemporaryDirectory() as top:
        yield open_store(Path(top) / "1" / "2" / "root", fsync=False), Path(top)


NASTY = st.text(st.sampled_from("./\\\0\n~%a…\ud800"), max_size=12)
PARTS = st.lists(st.sampled_from(["..", ".", "", "a", "b", "~", "%2e%2e", "..;", "\0", "root", "\\.."]), max_size=6)


@given(path=NASTY | PARTS.map("/".join) | st.text(max_size=8))
def test_generated_paths_never_escape_the_root(fenced: tuple[Store, Path], path: str) -> None:
    store, top = fenced
    for operation in OPERATIONS.values():
        with suppress(ValueError, StoreConflict, StoreNotFound, StoreError):
            operation(store, path)

    assert os.listdir(top) == ["1"]
    assert os.listdir(top / "1") == ["2"]
    assert os.listdir(top / "1" / "2") == ["root"]


@given(path=NASTY | PARTS.map("/".join) | st.text(max_size=8))
def test_an_accepted_path_is_its_own_normal_form(path: str) -> None:
    try:
        check_path(path)
    except ValueError:
        return
    assert os.path.normpath(path) == path
    assert not os.path.isabs(path)
    assert ".." not in path.split("/")
    path.encode()
